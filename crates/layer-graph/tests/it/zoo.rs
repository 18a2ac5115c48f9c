//! The zoo against the published figures.

use layer_graph::{LayerGraph, LayerKind, Shape, zoo};

#[test]
fn parameter_counts_are_the_published_ones() {
    let published = [
        ("vgg11", 132_863_336),
        ("vgg13", 133_047_848),
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("resnet-18", 11_689_512),
        ("resnet-34", 21_797_672),
        ("resnet-50", 25_557_032),
        ("wrn-101-2", 126_886_696),
        ("inception-v3", 23_834_568),
        ("vit-b-16", 86_567_656),
        ("gpt2", 124_439_808),
    ];
    for (name, parameters) in published {
        assert_eq!(zoo::model(name).unwrap().parameter_count(), parameters, "{name}");
    }
}

/// Operations of one sample in products of matrices: what publications count.
fn product_flops(net: &LayerGraph) -> u64 {
    let products = net.layers().map(|(_, layer)| match layer.kind() {
        LayerKind::Conv2d(_) | LayerKind::Linear(_) | LayerKind::MultiHeadAttention(_) => {
            layer.forward_flops()
        }
        _ => 0,
    });
    products.sum()
}

/// Multiply-adds of one forward pass as torchvision publishes them (in units of 10^9); it counts convolutions, linear
/// layers and the products in attentions only.
#[test]
fn forward_flops_are_the_published_ones() {
    let published = [
        ("vgg16", 15.47),
        ("vgg19", 19.63),
        ("resnet-50", 4.09),
        ("wrn-101-2", 22.75),
        ("inception-v3", 5.71),
        ("vit-b-16", 17.56),
    ];
    for (name, giga_multiply_adds) in published {
        let net = zoo::model(name).unwrap();
        let ratio = product_flops(&net) as f64 / (2e9 * giga_multiply_adds);
        assert!((ratio - 1.0).abs() < 0.005, "{name}: {ratio}");
    }
}

/// Operations a token by the formula of `PaLM`'s appendix B (Chowdhery et al., 2022), forward: two for each parameter but
/// those of the positions, and `4 * layers * features * context` in the attention, masked or not.
#[test]
fn flops_of_gpt2_are_those_of_its_parameters() {
    let published = 2 * (124_439_808 - 1024 * 768) + 4 * 12 * 768 * 1024_u64;
    let ratio = product_flops(&zoo::model("gpt2").unwrap()) as f64 / (1024 * published) as f64;
    assert!((ratio - 1.0).abs() < 0.005, "{ratio}");
}

#[test]
fn gpt2_has_one_matrix_for_the_tokens_at_both_ends() {
    let net = zoo::model("gpt2").unwrap();
    let [tokens, head] = ["tokens", "head"].map(|name| net.find(name).unwrap());
    assert_eq!(net.parameter_owner(head), tokens);
    assert_eq!(net.layer(head).output_shape(), &Shape::sequence(1024, 50_257));
    let loss = net.layer(net.find("loss").unwrap());
    assert_eq!(loss.label_count(), 1024);
}

#[test]
fn every_model_ends_in_its_loss_alone() {
    for name in zoo::names() {
        let net = zoo::model(name).unwrap();
        let sinks: Vec<_> =
            net.layers().filter(|(id, _)| net.consumers(*id).is_empty()).map(|(_, layer)| layer).collect();
        assert_eq!(sinks.len(), 1, "{name}");
        assert_eq!(sinks[0].kind(), &LayerKind::SoftmaxCrossEntropy, "{name}");
        assert_eq!(net.name(), name);
    }
}

#[test]
fn an_unknown_model_is_refused_with_the_names_that_exist() {
    let error = zoo::model("vgg17").unwrap_err().to_string();
    assert!(error.contains("vgg17") && error.contains("vgg16") && error.contains("digits-cnn"), "{error}");
}
