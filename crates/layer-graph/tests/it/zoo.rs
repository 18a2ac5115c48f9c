//! Models of the zoo compared with published figures.

use layer_graph::zoo::{self, GnmtSize};
use layer_graph::{LayerGraph, LayerKind, Shape};

#[test]
fn parameter_counts_match_publications() {
    let published = [
        ("alexnet", 61_100_840),
        ("vgg11", 132_863_336),
        ("vgg13", 133_047_848),
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("resnet-18", 11_689_512),
        ("resnet-34", 21_797_672),
        ("resnet-50", 25_557_032),
        ("resnet-101", 44_549_160),
        ("resnet-152", 60_192_808),
        ("resnext-101-32x4d", 44_177_704),
        ("wrn-101-2", 126_886_696),
        ("inception-v3", 23_834_568),
        ("vit-b-16", 86_567_656),
        ("efficientnet-b0", 5_288_548),
        ("convnext-t", 28_589_128),
        ("swin-t", 28_288_354),
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        // With PyTorch's second biases.
        ("lstm", 19_775_200 + 2 * 4 * 650),
        ("llama-3-8b", 8_030_261_248),
        // `BertForQuestionAnswering` of Hugging Face without its embedding of segments.
        ("bert-base", 108_893_186 - 2 * 768),
        ("bert-large", 334_094_338 - 2 * 1024),
        // Its tensors are listed in a test of the distributed optimizer of NVIDIA's Apex ("MLPerf
        // GNMT").
        ("gnmt", 160_671_297),
        ("gnmt-in-chunks", 160_671_297),
    ];
    for (name, parameters) in published {
        assert_eq!(zoo::model(name).unwrap().parameter_count(), parameters, "{name}");
    }
}

/// Returns the operations of one sample in matrix products, which are what publications count, and
/// in opaque layers.
fn product_flops(net: &LayerGraph) -> u64 {
    let products = net.layers().map(|(_, layer)| match layer.kind() {
        LayerKind::Conv2d(_)
        | LayerKind::Linear(_)
        | LayerKind::MultiHeadAttention(_)
        | LayerKind::Opaque(_) => layer.forward_flops(),
        _ => 0,
    });
    products.sum()
}

/// Compares with the multiply-adds of a forward pass published by torchvision, in units of 10^9.
/// They count convolutions, linear layers and the products in attentions.
#[test]
fn forward_flops_match_publications() {
    let published = [
        ("alexnet", 0.714),
        ("vgg16", 15.47),
        ("vgg19", 19.63),
        ("resnet-50", 4.09),
        ("resnet-152", 11.51),
        ("resnext-101-32x4d", 7.99),
        ("wrn-101-2", 22.75),
        ("inception-v3", 5.71),
        ("vit-b-16", 17.56),
        ("efficientnet-b0", 0.3859),
        ("convnext-t", 4.456),
        ("swin-t", 4.491),
    ];
    for (name, giga_multiply_adds) in published {
        let net = zoo::model(name).unwrap();
        let ratio = product_flops(&net) as f64 / (2e9 * giga_multiply_adds);
        assert!((ratio - 1.0).abs() < 0.005, "{name}: {ratio}");
    }
}

/// Compares with the operations of a forward pass for each token by appendix B of `PaLM` (Chowdhery
/// et al., 2022): 2 for each parameter except position embeddings, and `4 * layers * features *
/// context` in the attention.
#[test]
fn gpt2_flops_follow_from_its_parameters() {
    let published = 2 * (124_439_808 - 1024 * 768) + 4 * 12 * 768 * 1024_u64;
    let ratio = product_flops(&zoo::model("gpt2").unwrap()) as f64 / (1024 * published) as f64;
    assert!((ratio - 1.0).abs() < 0.005, "{ratio}");
}

#[test]
fn gpt2_ties_its_head_to_the_embedding() {
    let net = zoo::model("gpt2").unwrap();
    let [tokens, head] = ["tokens", "head"].map(|name| net.find(name).unwrap());
    assert_eq!(net.parameter_owner(head), tokens);
    assert_eq!(net.layer(head).output_shape(), &Shape::sequence(1024, 50_257));
    let loss = net.layer(net.find("loss").unwrap());
    assert_eq!(loss.label_count(), 1024);
}

/// The paper states 1.8 billion (Jozefowicz et al., 2016, table 1). The graph holds only the
/// sampled rows of the word tables.
#[test]
fn big_lstm_with_its_tables_matches_the_published_parameter_count() {
    let (words, sampled) = (793_471, 8192);
    let [read, predicted] = [words * 1024, words * 1025];
    let all = zoo::model("big-lstm").unwrap().parameter_count() - sampled * 1025 + read + predicted;
    assert_eq!(all, 1_776_882_559);
    assert_eq!(format!("{:.1}", all as f64 / 1e9), "1.8");
}

/// The work does not depend on the number of chunks; only the number of kernel launches does.
#[test]
fn chunking_preserves_parameters_and_flops() {
    let networks = |steps: [usize; 2]| {
        [zoo::gnmt_in_chunks(steps[0]).unwrap(), zoo::big_lstm_in_chunks(steps[1]).unwrap()]
    };
    for (whole, cut) in networks([50, 20]).into_iter().zip(networks([5, 4])) {
        assert!(cut.len() > whole.len());
        assert_eq!(cut.parameter_count(), whole.parameter_count());
        for flops in [LayerGraph::forward_flops, LayerGraph::backward_flops] {
            let ratio = flops(&cut) as f64 / flops(&whole) as f64;
            assert!((ratio - 1.0).abs() < 1e-6, "{}: {ratio}", whole.name());
        }
    }
    assert!(zoo::gnmt_in_chunks(0).is_err());
    assert!(zoo::big_lstm_in_chunks(3).unwrap_err().to_string().contains("20 positions"));
}

/// Two operations for each parameter and token in the LSTM layers, plus the products of the
/// attention.
#[test]
fn gnmt_flops_follow_from_its_parameters() {
    let tokens = 50_u64;
    let products = 2 * (160_671_297 - 32_320 * 1024 - 32_320) * tokens;
    let scores = 7 * tokens * tokens * 1024;
    for name in ["gnmt", "gnmt-in-chunks"] {
        let ratio = zoo::model(name).unwrap().forward_flops() as f64 / (products + scores) as f64;
        assert!((ratio - 1.0).abs() < 0.01, "{name}: {ratio}");
    }
}

#[test]
fn gnmt_has_engines_for_all_layers() {
    let net = zoo::model("gnmt").unwrap();
    assert_eq!(net.opaque_layers().count(), 0);
    // As in the reference's `state_dict`.
    let keys: Vec<String> = net
        .computing_layers()
        .flat_map(|(_, layer)| layer.parameters().into_iter().map(|tensor| layer.tensor_name(&tensor)))
        .collect();
    assert_eq!(keys.len(), 1 + 9 * 4 + 2 + 3 + 2);
    for key in [
        "encoder.rnn_layers.0.weight_ih_l0_reverse",
        "encoder.rnn_layers.3.bias_hh_l0",
        "decoder.att_rnn.rnn.weight_hh_l0",
        "decoder.att_rnn.attn.linear_q.weight",
        "decoder.att_rnn.attn.linear_att",
        "decoder.att_rnn.attn.normalize_scalar",
        "decoder.classifier.classifier.bias",
    ] {
        assert!(keys.iter().any(|found| found == key), "{key}: {keys:?}");
    }
    let dropouts = net.layers().filter(|(_, layer)| matches!(layer.kind(), LayerKind::Dropout(_)));
    assert_eq!(dropouts.count(), 8);
    for size in [0, usize::MAX] {
        let size = GnmtSize { vocabulary: 9, features: size, positions: 3 };
        assert!(zoo::gnmt_of_size(size).is_err(), "{size:?}");
    }
}

#[test]
fn the_loss_is_the_only_sink_of_every_model() {
    for name in zoo::names() {
        let net = zoo::model(name).unwrap();
        let sinks: Vec<_> =
            net.layers().filter(|(id, _)| net.consumers(*id).is_empty()).map(|(_, layer)| layer).collect();
        assert_eq!(sinks.len(), 1, "{name}");
        assert!(sinks[0].kind().is_loss(), "{name}");
        assert_eq!(net.name(), name);
    }
}

#[test]
fn unknown_model_error_lists_the_known_names() {
    let error = zoo::model("vgg17").unwrap_err().to_string();
    assert!(error.contains("vgg17") && error.contains("vgg16") && error.contains("digits-cnn"), "{error}");
}
