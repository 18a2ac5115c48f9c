//! The zoo against the published figures.

use layer_graph::{LayerKind, zoo};

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
    ];
    for (name, parameters) in published {
        assert_eq!(zoo::model(name).unwrap().parameter_count(), parameters, "{name}");
    }
}

/// Multiply-adds of one forward pass as torchvision publishes them (in units of 10^9); it counts convolutions and
/// linear layers only.
#[test]
fn forward_flops_are_the_published_ones() {
    let published = [
        ("vgg16", 15.47),
        ("vgg19", 19.63),
        ("resnet-50", 4.09),
        ("wrn-101-2", 22.75),
        ("inception-v3", 5.71),
    ];
    for (name, giga_multiply_adds) in published {
        let net = zoo::model(name).unwrap();
        let products: u64 = net
            .layers()
            .filter(|(_, layer)| matches!(layer.kind(), LayerKind::Conv2d(_) | LayerKind::Linear(_)))
            .map(|(_, layer)| layer.forward_flops())
            .sum();
        let ratio = products as f64 / (2e9 * giga_multiply_adds);
        assert!((ratio - 1.0).abs() < 0.005, "{name}: {ratio}");
    }
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
