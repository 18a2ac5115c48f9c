//! Networks from configurations of `transformers`.

use layer_graph::hf::{Configured, from_config, network_name};
use layer_graph::{GraphError, LayerKind, RotaryScaling, Shape};
use proptest::prelude::*;
use serde_json::{Value, json};

fn llama() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096, "architectures": ["LlamaForCausalLM"],
    })
}

/// Returns a configuration with some fields replaced.
fn with(mut config: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

fn build(config: &Value, positions: usize) -> Result<Configured, GraphError> {
    from_config("net", &config.to_string(), Some(positions))
}

fn gemma() -> Value {
    json!({
        "model_type": "gemma", "vocab_size": 256_000, "hidden_size": 2048, "intermediate_size": 16384,
        "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
        "max_position_embeddings": 8192, "hidden_act": "gelu",
    })
}

fn opt() -> Value {
    json!({
        "model_type": "opt", "vocab_size": 50272, "hidden_size": 768, "ffn_dim": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 2048,
        "word_embed_proj_dim": 768, "do_layer_norm_before": true, "dropout": 0.1,
    })
}

fn bert() -> Value {
    json!({
        "model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 512,
        "type_vocab_size": 2, "architectures": ["BertForSequenceClassification"],
    })
}

fn roberta() -> Value {
    let fields = json!({
        "model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1,
        "architectures": ["RobertaForMaskedLM"],
    });
    with(bert(), &fields)
}

fn gpt_neo() -> Value {
    json!({
        "model_type": "gpt_neo", "vocab_size": 50257, "hidden_size": 64, "num_layers": 2, "num_heads": 4,
        "max_position_embeddings": 2048, "attention_types": [[["global", "local"], 1]],
    })
}

/// Pythia with 70 million parameters.
fn gpt_neox() -> Value {
    json!({
        "model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 512, "intermediate_size": 2048,
        "num_hidden_layers": 6, "num_attention_heads": 8, "rotary_pct": 0.25, "hidden_act": "gelu",
        "max_position_embeddings": 2048,
    })
}

fn t5() -> Value {
    json!({
        "model_type": "t5", "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
        "num_heads": 8, "architectures": ["T5ForTokenClassification"], "dropout_rate": 0.1,
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6, "classifier_dropout": 0.0,
    })
}

fn vit() -> Value {
    json!({
        "model_type": "vit", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "image_size": 224, "patch_size": 16, "num_channels": 3,
        "architectures": ["ViTForImageClassification"],
    })
}

fn build_vit(config: &Value) -> Result<Configured, GraphError> {
    from_config("net", &config.to_string(), None)
}

/// Numbers of parameters as published with the weights.
#[test]
fn parameters_are_those_of_published_weights() {
    let mistral = json!({
        "model_type": "mistral", "num_key_value_heads": 8, "intermediate_size": 14336, "sliding_window": 4096,
        "max_position_embeddings": 32768,
    });
    let mixtral = json!({
        "model_type": "mixtral", "num_key_value_heads": 8, "intermediate_size": 14336, "rope_theta": 1e6,
        "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null,
        "max_position_embeddings": 32768,
    });
    let qwen2 = json!({
        "model_type": "qwen2", "vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "rope_theta": 1e6,
    });
    let llama3 = json!({
        "vocab_size": 128_256, "num_key_value_heads": 8, "intermediate_size": 14336, "rope_theta": 5e5,
    });
    let gpt2 = json!({
        "model_type": "gpt2", "vocab_size": 50257, "n_embd": 1600, "n_layer": 48, "n_head": 25,
        "n_positions": 1024,
    });
    let opt_350m = json!({
        "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "word_embed_proj_dim": 512, "do_layer_norm_before": false,
    });
    let neo_125m = json!({
        "hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]],
    });
    for (config, parameters) in [
        (with(gpt_neo(), &neo_125m), 125_198_592),
        (gpt_neox(), 70_426_624),
        (gemma(), 2_506_172_416),
        (opt(), 125_239_296),
        (with(opt(), &opt_350m), 331_196_416),
        (llama(), 6_738_415_616),
        (with(llama(), &llama3), 8_030_261_248),
        (with(llama(), &mistral), 7_241_732_096),
        (with(llama(), &mixtral), 46_702_792_704),
        (with(llama(), &qwen2), 7_615_616_512),
        (gpt2, 1_557_611_200),
        (t5(), 35_331_842),
        (with(t5(), &json!({"architectures": ["T5ForConditionalGeneration"]})), 60_506_624),
    ] {
        let Configured { network, left_out } = build(&config, 1024).unwrap();
        assert_eq!(network.parameter_count(), parameters, "{config}");
        assert_eq!(network.opaque_layers().count(), 0);
        assert!(left_out.is_empty(), "{left_out:?}");
    }
}

#[test]
fn parameters_of_bert_are_those_of_its_last_layers() {
    for (class, parameters) in [
        ("BertForSequenceClassification", 109_483_778),
        ("BertForTokenClassification", 108_893_186),
        ("BertForMaskedLM", 109_514_298),
    ] {
        let config = with(bert(), &json!({"architectures": [class]}));
        let Configured { network, left_out } = build(&config, 512).unwrap();
        assert_eq!(network.parameter_count(), parameters, "{class}");
        assert_eq!(network.opaque_layers().count(), 0, "{class}");
        assert!(left_out.is_empty(), "{left_out:?}");
    }
    let Configured { network, left_out } = build(&roberta(), 512).unwrap();
    assert_eq!((network.parameter_count(), left_out.len()), (124_697_433, 0));
    let untied = json!({"architectures": ["BertForMaskedLM"], "tie_word_embeddings": false});
    let network = build(&with(bert(), &untied), 512).unwrap().network;
    assert_eq!(network.parameter_count(), 109_514_298 + 30522 * 768);
    assert_eq!(network.opaque_layers().count(), 0);
}

/// The size of images is in the configuration, so that there is no number of tokens.
#[test]
fn vit_reads_images_of_its_configuration() {
    let labels: serde_json::Map<_, _> = (0..1000).map(|class| (class.to_string(), json!("label"))).collect();
    let Configured { network, left_out } = build_vit(&with(vit(), &json!({"id2label": labels}))).unwrap();
    assert_eq!(network.parameter_count(), 86_567_656);
    assert!(left_out.is_empty() && network.opaque_layers().count() == 0);
    assert_eq!(network.layer(network.input()).output_shape(), &Shape::image(3, 224, 224));
    let oblong = json!({"image_size": [32, 64], "patch_size": [8, 16], "num_labels": 3});
    let network = build_vit(&with(vit(), &oblong)).unwrap().network;
    let attention = network.find("vit.layers.0.attention").unwrap();
    assert_eq!(network.layer(attention).output_shape(), &Shape::sequence(17, 768));
    assert_eq!(network.layer(network.find("classifier").unwrap()).output_shape(), &Shape::features(3));

    let error = build(&vit(), 64).unwrap_err().to_string();
    assert!(error.contains("`vit` reads images: leave out the number of tokens"), "{error}");
    let error = build_vit(&bert()).unwrap_err().to_string();
    assert!(error.contains("`bert` needs the number of tokens of a sequence"), "{error}");
    for (fields, expected) in [
        (json!({"patch_size": 0}), "patch_embeddings.projection"),
        (json!({"patch_size": 225}), "patch_embeddings.projection"),
        (json!({"image_size": "224"}), "at `image_size`"),
        (json!({"num_labels": 0}), "classifier"),
        (json!({"num_hidden_layers": 10001}), "10001 blocks"),
    ] {
        let error = build_vit(&with(vit(), &fields)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn options_of_encoders_and_opt_are_read() {
    let kinds = |config: Value, fields: Value| -> Vec<LayerKind> {
        let config = with(with(config, &json!({"num_hidden_layers": 1})), &fields);
        build(&config, 64).unwrap().network.layers().map(|(_, layer)| layer.kind().clone()).collect()
    };
    let count = |kinds: &[LayerKind], label: &str| kinds.iter().filter(|kind| kind.label() == label).count();
    let without = json!({"hidden_dropout_prob": 0.0, "classifier_dropout": 0.2});
    assert_eq!(count(&kinds(bert(), json!({})), "dropout"), 4);
    assert_eq!(count(&kinds(bert(), without), "dropout"), 1);
    let is_causal = |kinds: &[LayerKind]| {
        kinds.iter().any(|kind| matches!(kind, LayerKind::MultiHeadAttention(attention) if attention.causal))
    };
    assert!(!is_causal(&kinds(bert(), json!({}))) && is_causal(&kinds(bert(), json!({"is_decoder": true}))));
    assert!(is_causal(&kinds(gemma(), json!({}))));
    assert!(!is_causal(&kinds(gemma(), json!({"use_bidirectional_attention": true}))));
    let padding = |kinds: &[LayerKind]| {
        kinds.iter().find_map(|kind| match kind {
            LayerKind::Embedding(table) => table.padding,
            _ => None,
        })
    };
    for (config, default) in [(bert(), 0), (opt(), 1), (gemma(), 0)] {
        assert_eq!(padding(&kinds(config.clone(), json!({}))), Some(default));
        assert_eq!(padding(&kinds(config, json!({"pad_token_id": null}))), None);
    }
    let norms = |fields: Value| count(&kinds(opt(), fields), "layer_norm");
    assert_eq!(norms(json!({})), 3);
    assert_eq!(norms(json!({"_remove_final_layer_norm": true})), 2);
    let error = build(&with(opt(), &json!({"layer_norm_elementwise_affine": false})), 64).unwrap_err();
    assert!(error.to_string().contains("layer normalisations without parameters"), "{error}");
}

#[test]
fn options_of_llama_are_read() {
    let kinds = |fields: Value| -> Vec<LayerKind> {
        let config = with(with(llama(), &json!({"num_hidden_layers": 1})), &fields);
        build(&config, 64).unwrap().network.layers().map(|(_, layer)| layer.kind().clone()).collect()
    };
    let base = |kinds: &[LayerKind]| {
        kinds.iter().find_map(|kind| match kind {
            LayerKind::RotaryEmbedding(rule) => Some((rule.base, rule.width)),
            _ => None,
        })
    };
    assert_eq!(base(&kinds(json!({}))), Some((1e4, 128)));
    assert_eq!(base(&kinds(json!({"rope_theta": 5e5, "head_dim": 64}))), Some((5e5, 64)));
    let scaling = |kinds: &[LayerKind]| {
        kinds.iter().find_map(|kind| match kind {
            LayerKind::RotaryEmbedding(rule) => rule.scaling,
            _ => None,
        })
    };
    let linear = json!({"rope_scaling": {"type": "linear", "factor": 4}});
    assert_eq!(scaling(&kinds(linear)), Some(RotaryScaling::Linear { factor: 4.0 }));
    let llama3 = json!({
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    });
    let expected = RotaryScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_positions: 8192,
    };
    assert_eq!(scaling(&kinds(json!({"rope_parameters": llama3}))), Some(expected));
    let newer = json!({"rope_parameters": {"rope_type": "default", "rope_theta": 2e6}});
    assert_eq!(base(&kinds(newer)), Some((2e6, 128)));
    let has_padding = |kinds: &[LayerKind]| {
        kinds.iter().any(|kind| matches!(kind, LayerKind::Embedding(table) if table.padding == Some(0)))
    };
    assert!(has_padding(&kinds(json!({"pad_token_id": 0}))) && !has_padding(&kinds(json!({}))));
    // As in PyTorch, a negative number counts from the end.
    assert!(has_padding(&kinds(json!({"pad_token_id": -32000}))));
    assert!(kinds(json!({"hidden_act": "gelu_pytorch_tanh"})).contains(&LayerKind::GeluTanh));
    let tied = build(&with(llama(), &json!({"tie_word_embeddings": true})), 64).unwrap().network;
    assert_eq!(tied.parameter_count(), 6_738_415_616 - 32000 * 4096);
}

#[test]
fn windows_of_blocks_follow_the_family() {
    let windows = |fields: Value, positions| -> Vec<Option<usize>> {
        let blocks = json!({"num_hidden_layers": 3, "max_position_embeddings": 8192});
        let network = build(&with(with(llama(), &blocks), &fields), positions).unwrap().network;
        let window = |kind: &LayerKind| match kind {
            LayerKind::MultiHeadAttention(attention) => Some(attention.window),
            _ => None,
        };
        network.layers().filter_map(|(_, layer)| window(layer.kind())).collect()
    };
    let of = |family: &str, fields: Value| with(fields, &json!({"model_type": family, "sliding_window": 32}));
    assert_eq!(windows(of("llama", json!({})), 64), [None; 3]);
    assert_eq!(windows(of("mistral", json!({})), 64), [Some(32); 3]);
    assert_eq!(windows(of("mistral", json!({})), 32), [None; 3]);
    // Mistral has a window without the field, none with null.
    assert_eq!(windows(json!({"model_type": "mistral"}), 8192), [Some(4096); 3]);
    assert_eq!(windows(json!({"model_type": "mistral", "sliding_window": null}), 8192), [None; 3]);
    assert_eq!(windows(of("qwen2", json!({})), 64), [None; 3]);
    assert_eq!(windows(of("qwen2", json!({"use_sliding_window": true})), 64), [None; 3]);
    let last = json!({"use_sliding_window": true, "max_window_layers": 2});
    assert_eq!(windows(of("qwen2", last), 64), [None, None, Some(32)]);
    let types = json!(["sliding_attention", "full_attention"]);
    let first = json!({"use_sliding_window": true, "layer_types": types});
    assert_eq!(windows(of("qwen2", first), 64), [Some(32), None, None]);
}

#[test]
fn unsupported_options_are_listed() {
    let left_out = |fields: Value| build(&with(llama(), &fields), 64).unwrap().left_out;
    assert!(left_out(json!({"attention_dropout": null, "sliding_window": 32})).is_empty());
    let all = json!({
        "model_type": "mistral", "attention_dropout": 0.1, "sliding_window": 32,
        "rope_scaling": {"type": "yarn", "rope_type": "yarn", "factor": 2.0},
        "architectures": ["MistralForSequenceClassification"],
    });
    assert_eq!(
        left_out(all),
        ["scaled rotary angles (yarn)", "the last layers of MistralForSequenceClassification"]
    );
    let scaled = json!({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 5e5}});
    assert_eq!(left_out(scaled), ["scaled rotary angles (dynamic)"]);
    let gpt2 = json!({
        "model_type": "gpt2", "vocab_size": 97, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 64,
        "attn_pdrop": 0.0, "add_cross_attention": true,
    });
    assert_eq!(build(&gpt2, 64).unwrap().left_out, ["cross attention"]);
    for name in ["BertLMHeadModel", "TFBertForMaskedLM"] {
        let bert = with(bert(), &json!({"architectures": [name]}));
        assert_eq!(build(&bert, 16).unwrap().left_out, [format!("the last layers of {name}")]);
    }
    let of_bert = json!({
        "position_embedding_type": "relative_key", "add_cross_attention": true,
        "problem_type": "regression", "architectures": ["BertForPreTraining"],
    });
    assert_eq!(
        build(&with(bert(), &of_bert), 64).unwrap().left_out,
        [
            "position embeddings of type relative_key",
            "cross attention",
            "the loss of regression",
            "the last layers of BertForPreTraining",
        ]
    );
    let classes = with(t5(), &json!({"architectures": ["T5ForSequenceClassification"]}));
    assert_eq!(
        build(&classes, 64).unwrap().left_out,
        ["the decoder or last layers of T5ForSequenceClassification"]
    );
    let layer_dropout = with(opt(), &json!({"layerdrop": 0.1}));
    assert_eq!(build(&layer_dropout, 64).unwrap().left_out, ["dropout of whole blocks"]);
}

/// The defaults of `transformers` 5, and options that its modules of a family ignore.
#[test]
fn families_have_their_own_defaults() {
    let parameters = |fields: Value| build(&with(llama(), &fields), 64).unwrap().network.parameter_count();
    let of = |family: &str, fields: Value| parameters(with(fields, &json!({"model_type": family})));
    for (family, default) in [("llama", 32), ("mistral", 8), ("mixtral", 8), ("qwen2", 32), ("gemma", 16)] {
        assert_eq!(of(family, json!({})), of(family, json!({"num_key_value_heads": default})));
        assert_eq!(
            of(family, json!({"num_key_value_heads": null})),
            of(family, json!({"num_key_value_heads": 32}))
        );
        let biased = of(family, json!({"attention_bias": true, "mlp_bias": true}));
        let has_options = ["llama", "gemma"].contains(&family);
        assert_eq!(biased > of(family, json!({})), has_options, "{family}");
    }
}

#[test]
fn wrong_configurations_are_refused() {
    let unknown = json!({"model_type": "mamba"});
    let without = |name: &str| {
        let mut config = llama();
        config.as_object_mut().unwrap().remove(name);
        config
    };
    for (config, expected) in [
        (
            unknown,
            "family `mamba` cannot be read; known families: bert, gemma, gpt2, gpt_neo, gpt_neox, llama, \
             mistral, mixtral, opt, qwen2, roberta, t5, vit",
        ),
        (json!({}), "missing field `model_type`"),
        (with(gpt_neo(), &json!({"num_layers": 3})), "not those of its 3 blocks"),
        (with(gpt_neo(), &json!({"num_layers": 1})), "not those of its 1 blocks"),
        (with(gpt_neo(), &json!({"attention_types": [[[], u64::MAX]]})), "not those of its 2 blocks"),
        (with(gpt_neo(), &json!({"attention_types": [[["near"], 2]]})), "attention `near`"),
        (with(roberta(), &json!({"pad_token_id": null})), "`roberta` needs a pad_token_id"),
        (with(roberta(), &json!({"max_position_embeddings": 65})), "longer than its 63 positions"),
        (with(llama(), &json!({"rope_scaling": {"type": "linear"}})), "type linear need a number `factor`"),
        (json!([1]), "invalid type"),
        (without("vocab_size"), "missing field `vocab_size`"),
        (with(llama(), &json!({"hidden_size": "4096"})), "at `hidden_size`"),
        (with(llama(), &json!({"num_key_value_heads": 5})), "32 heads cannot share 5 heads"),
        (with(llama(), &json!({"num_key_value_heads": 0})), "32 heads cannot share 0 heads"),
        (with(llama(), &json!({"num_attention_heads": 33})), "hidden_size 4096 is no multiple of 33 heads"),
        (with(llama(), &json!({"pad_token_id": 32000})), "pad_token_id 32000"),
        (with(llama(), &json!({"pad_token_id": -32001})), "pad_token_id -32001"),
        (with(llama(), &json!({"hidden_act": "mish"})), "activation `mish`"),
        (with(llama(), &json!({"max_position_embeddings": 63})), "longer than its 63 positions"),
        (with(llama(), &json!({"num_hidden_layers": 10001})), "10001 blocks"),
    ] {
        let error = build(&config, 64).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with("not a usable configuration of a network: "), "{error}");
    }
    let error = build(&with(llama(), &json!({"head_dim": 7})), 64).unwrap_err().to_string();
    assert!(error.contains("heads of 7 in pairs"), "{error}");
    let zero = json!({"rope_scaling": {"type": "linear", "factor": 0}});
    let error = build(&with(llama(), &zero), 64).unwrap_err().to_string();
    assert!(error.contains("scaling of its angles"), "{error}");
    assert!(["{", "{} {}"].iter().all(|text| from_config("net", text, Some(64)).is_err()));
}

#[test]
fn network_names_follow_files_and_folders() {
    for (path, name) in
        [("a/llama.json", "llama"), ("models/gpt/config.json", "gpt"), ("config.json", "config")]
    {
        assert_eq!(network_name(path.as_ref()), name);
    }
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0u64..200).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::Null),
    ]
}

proptest! {
    /// Configurations with wrong numbers are networks or errors.
    #[test]
    fn any_numbers_are_networks_or_errors(
        family in 0usize..10,
        field in 0usize..16,
        value in number(),
        positions in 1usize..99,
    ) {
        let gpt2 = json!({
            "model_type": "gpt2", "vocab_size": 97, "n_embd": 12, "n_layer": 2, "n_head": 3,
            "n_positions": 64, "n_inner": 24, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-5,
        });
        let configs = [llama(), gpt2, gemma(), opt(), bert(), vit(), t5(), roberta(), gpt_neo(), gpt_neox()];
        let config = configs[family].clone();
        let positions = Some(positions).filter(|_| config["model_type"] != "vit");
        let fields: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        let changed = with(config, &json!({fields[field % fields.len()].as_str(): value}));
        let built = from_config("net", &changed.to_string(), positions);
        if let Ok(Configured { network, .. }) = built {
            prop_assert!(network.parameter_count() > 0);
        }
    }
}
