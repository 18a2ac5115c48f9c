"""Tracing of networks of the package `transformers`, with random weights."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from deeppool import Network, plan  # noqa: E402
from deeppool.tracing import check_gradients, trace  # noqa: E402

SMALL = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
GPT2 = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4}
GPT_NEO = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 5,
}
VISION = {name: SMALL[name] for name in SMALL if name != "vocab_size"} | {"image_size": 32, "patch_size": 8}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
T5 = {"vocab_size": 100, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64}

#: Class of the network, options of its configuration, and maximum number of its opaque layers.
NETWORKS = [
    ("LlamaForCausalLM", SMALL | {"num_key_value_heads": 2, "pad_token_id": 0}, 0),
    ("Qwen2ForCausalLM", SMALL | {"num_key_value_heads": 2, "rope_theta": 500000.0}, 0),
    ("OPTForCausalLM", SMALL | {"ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 0}, 0),
    ("GPT2LMHeadModel", GPT2, 0),
    ("GPTNeoForCausalLM", GPT_NEO, 0),
    ("GPTNeoXForCausalLM", SMALL | {"rotary_pct": 0.5}, 0),
    ("GPTJForCausalLM", GPT2 | {"rotary_dim": 4}, 0),
    ("PhiForCausalLM", SMALL, 0),
    ("BloomForCausalLM", {"vocab_size": 100, "hidden_size": 48, "n_layer": 2, "n_head": 6}, 0),
    ("FalconForCausalLM", SMALL | {"new_decoder_architecture": True, "num_kv_heads": 2}, 0),
    ("FalconForCausalLM", SMALL | {"alibi": True, "multi_query": False, "bias": True}, 0),
    ("BertForSequenceClassification", SMALL, 0),
    ("RobertaForSequenceClassification", SMALL | {"max_position_embeddings": 20, "pad_token_id": 1}, 0),
    ("MixtralForCausalLM", SMALL | {"num_key_value_heads": 2, "num_local_experts": 4}, 0),
    ("OlmoeForCausalLM", SMALL | {"num_experts": 6, "num_experts_per_tok": 3}, 0),
    ("T5EncoderModel", T5, 1),
    ("MambaForCausalLM", SMALL | {"state_size": 4}, 2),
]


@pytest.mark.parametrize(("name", "options", "opaque"), NETWORKS)
def test_network_is_traced_and_planned_as_it_comes(name, options, opaque, capfd):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    module = kind(kind.config_class(**options)).eval()
    tokens = torch.randint(2, 100, (2, 16))
    wanted = module(tokens)
    loss = {}
    if "last_hidden_state" in wanted:
        wanted = wanted.last_hidden_state
        loss = {"loss": torch.nn.MSELoss(), "targets": torch.zeros_like(wanted)}
    else:
        wanted = wanted.logits
    capfd.readouterr()
    traced = trace(module, tokens, **loss)
    assert capfd.readouterr() == ("", "")
    assert len(traced.opaque) <= opaque, traced
    assert torch.allclose(traced.run(tokens), wanted, atol=1e-4)
    layers = [layer for layer in traced.network.layers if layer.parameters_of is None]
    used = sum(parameter.numel() for parameter in module.parameters())
    assert sum(layer.parameter_count for layer in layers) == used
    assert plan(traced.network, gpus=64, batch=256, device="a100").iteration_us > 0


def test_cost_of_experts_includes_their_products():
    # Its experts have biases and a gate of another kind.
    kind = transformers.GptOssForCausalLM
    sizes = {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}
    traced = trace(kind(kind.config_class(**SMALL, **sizes)), torch.randint(1, 100, (2, 16)))
    experts = [layer for layer in traced.network.layers if layer.name.endswith(".mlp")]
    # Each of 16 tokens has two experts of three linear layers.
    products = 16 * 2 * 3 * 2 * 32 * 64
    assert len(experts) == 2
    for layer in experts:
        assert products < layer.forward_flops < 1.1 * products
        assert 2 * products < layer.backward_flops < 2.2 * products


def test_experts_of_a_mixtral_are_a_kind():
    torch.manual_seed(0)
    kind = transformers.MixtralForCausalLM
    options = {"num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 3}
    module = kind(kind.config_class(**SMALL | options)).eval()
    # Grouped products are not computed in double precision.
    module.set_experts_implementation("batched_mm")
    traced = trace(module, torch.randint(1, 100, (2, 16)))
    op = {"experts": 5, "chosen": 3, "width": 64, "activation": "silu", "gated": True, "normalised": True}
    documents = {layer["name"]: layer for layer in traced.network.to_dict()["layers"]}
    for prefix in (f"model.layers.{index}.mlp" for index in range(2)):
        assert documents[f"{prefix}.gate"]["op"] == {"linear": {"out_features": 5, "bias": False}}
        assert documents[f"{prefix}.experts"]["op"] == {"mixture_of_experts": op}
        assert documents[f"{prefix}.experts"]["inputs"][1] == f"{prefix}.gate"
    names = {name for island in traced.islands.values() for name, _ in island.named_parameters()}
    assert names == {name for name, _ in module.named_parameters()}
    tokens, labels = torch.randint(100, (3, 16)), torch.randint(100, (3, 16))
    assert check_gradients(traced, tokens, labels).largest_difference < 1e-6


def test_gradients_of_a_llama_match_pytorch():
    torch.manual_seed(0)
    kind = transformers.LlamaForCausalLM
    module = kind(kind.config_class(**SMALL, num_key_value_heads=2, pad_token_id=0)).eval()
    traced = trace(module, torch.randint(1, 100, (2, 16)))
    rotated = [layer for layer in traced.network.to_dict()["layers"] if "rotary_embedding" in layer["op"]]
    assert [layer["op"] for layer in rotated] == 4 * [{"rotary_embedding": {"width": 8, "base": 10000.0}}]
    tokens, labels = torch.randint(100, (3, 16)), torch.randint(100, (3, 16))
    # The network rounds cosines and sines to single precision.
    assert check_gradients(traced, tokens, labels).largest_difference < 1e-6


#: Class of the network, and options of its configuration.
CONFIGURATIONS = [
    (
        "LlamaForCausalLM",
        SMALL
        | {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True}
        | {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    (
        "LlamaForCausalLM",
        SMALL
        | {"hidden_act": "gelu", "pad_token_id": 0, "tie_word_embeddings": True}
        | {"rope_parameters": LLAMA3},
    ),
    ("MistralForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 16, "attention_dropout": 0.2}),
    ("MistralForCausalLM", SMALL | {"num_key_value_heads": 2, "sliding_window": 5}),
    (
        "MixtralForCausalLM",
        SMALL
        | {"num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 3}
        | {"sliding_window": 5, "hidden_act": "gelu"},
    ),
    (
        "Qwen2ForCausalLM",
        SMALL
        | {"num_key_value_heads": 2, "rope_theta": 500000.0}
        | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    ("GPT2LMHeadModel", GPT2 | {"n_inner": 40, "activation_function": "relu"}),
    ("GemmaForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 16, "hidden_act": "gelu"}),
    (
        "GemmaForCausalLM",
        SMALL
        | {"num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": False}
        | {"pad_token_id": None, "rope_theta": 500000.0, "attention_dropout": 0.2},
    ),
    ("OPTForCausalLM", SMALL | {"ffn_dim": 64, "attention_dropout": 0.2, "dropout": 0.0}),
    (
        "OPTForCausalLM",
        SMALL
        | {"ffn_dim": 40, "word_embed_proj_dim": 16, "do_layer_norm_before": False, "enable_bias": False}
        | {"activation_function": "gelu", "tie_word_embeddings": False, "max_position_embeddings": 40},
    ),
    ("OPTForCausalLM", SMALL | {"_remove_final_layer_norm": True}),
    ("GPTNeoForCausalLM", GPT_NEO | {"resid_dropout": 0.1, "attention_dropout": 0.2}),
    ("GPTNeoForCausalLM", GPT_NEO | {"embed_dropout": 0.1, "intermediate_size": 40, "window_size": 99}),
    ("GPTNeoXForCausalLM", SMALL | {"rotary_pct": 0.5, "hidden_dropout": 0.1, "attention_dropout": 0.2}),
    ("GPTNeoXForCausalLM", SMALL | {"use_parallel_residual": False, "rotary_pct": 1.0}),
    ("RobertaForSequenceClassification", SMALL | {"classifier_dropout": 0.3, "max_position_embeddings": 20}),
    ("RobertaForMaskedLM", SMALL | {"hidden_dropout_prob": 0.0, "pad_token_id": 3, "hidden_act": "relu"}),
    ("BertForSequenceClassification", SMALL | {"classifier_dropout": 0.3, "num_labels": 5}),
    ("BertForTokenClassification", SMALL | {"hidden_dropout_prob": 0.0, "type_vocab_size": 1}),
    ("BertForMaskedLM", SMALL | {"attention_probs_dropout_prob": 0.0, "hidden_act": "relu"}),
    ("BertForMaskedLM", SMALL | {"tie_word_embeddings": False, "pad_token_id": None}),
    ("T5ForTokenClassification", T5 | {"num_labels": 5, "relative_attention_num_buckets": 8}),
    ("T5ForTokenClassification", T5 | {"feed_forward_proj": "gated-gelu", "classifier_dropout": 0.2}),
    ("T5ForTokenClassification", T5 | {"feed_forward_proj": "gated-silu", "dropout_rate": 0.0, "d_kv": 6}),
    ("T5ForConditionalGeneration", T5 | {"num_decoder_layers": 1}),
    ("T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("ViTForImageClassification", VISION | {"num_labels": 3}),
    (
        "ViTForImageClassification",
        VISION
        | {"image_size": [16, 32], "patch_size": [8, 4], "num_channels": 1, "qkv_bias": False}
        | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "hidden_act": "gelu_new"},
    ),
]


@pytest.mark.parametrize(("name", "options"), CONFIGURATIONS)
def test_configurations_match_traced_modules(name, options, tmp_path):
    kind = getattr(transformers, name)
    config = kind.config_class(**options, architectures=[name])
    config.save_pretrained(tmp_path)
    if "image_size" in options:
        sides = options["image_size"]
        height, width = sides if isinstance(sides, list) else [sides] * 2
        inputs, sequence = torch.randn(2, config.num_channels, height, width), None
    else:
        # Sequences without padding, on whose tokens positions of RoBERTa depend.
        inputs, sequence = torch.randint(4, 100, (2, 16)), 16
    more = {"decoder_input_ids": inputs} if name == "T5ForConditionalGeneration" else {}
    traced = trace(kind(config).eval(), inputs, **more).network.to_dict()
    read = Network.from_hf(tmp_path / "config.json", sequence).to_dict()
    assert [read.get(key) for key in ("input", "further_inputs")] == [
        traced.get(key) for key in ("input", "further_inputs")
    ]
    assert len(read["layers"]) == len(traced["layers"])
    for layer, expected in zip(read["layers"], traced["layers"]):
        assert layer["name"] == expected["name"]
        if "opaque" in expected["op"] and expected["op"]["opaque"]["saved_bytes"] == 0:
            del expected["op"]["opaque"]["saved_bytes"]
        assert layer["op"] == expected["op"], layer["name"]
        if layer["op"] == "add":
            assert sorted(layer["inputs"]) == sorted(expected["inputs"])
        else:
            assert layer["inputs"] == expected["inputs"]
        assert layer.get("parameters_of") == expected.get("parameters_of")
