//! Construction of networks: shape inference, edges and errors.

use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, GraphError, GroupNorm, LayerGraph, LayerId, LayerKind,
    LeakyRelu, Opaque, Pad, Pool2d, Shape, SoftmaxCrossEntropy,
};
use proptest::prelude::*;

fn image_net(channels: usize, height: usize, width: usize) -> LayerGraph {
    LayerGraph::new("net", Shape::image(channels, height, width)).unwrap()
}

/// Counts the positions of a window one by one.
fn count_windows(size: usize, kernel: usize, stride: usize, padding: usize) -> usize {
    (0..size + 2 * padding).step_by(stride).filter(|start| start + kernel <= size + 2 * padding).count()
}

proptest! {
    #[test]
    fn convolution_shapes_match_counted_windows(
        size in prop::array::uniform2(1usize..20),
        kernel in prop::array::uniform2(1usize..6),
        stride in prop::array::uniform2(1usize..4),
        padding in prop::array::uniform2(0usize..3),
        groups in 1usize..4,
    ) {
        let mut net = image_net(2 * groups, size[0], size[1]);
        let conv = Conv2d { stride, padding, groups, ..Conv2d::rectangular(3 * groups, kernel) };
        let input = net.input();
        let expected = [0, 1].map(|i| count_windows(size[i], kernel[i], stride[i], padding[i]));
        match net.add("conv", conv, [input]) {
            Ok(id) => {
                let layer = net.layer(id);
                prop_assert_eq!(layer.output_shape(), &Shape::image(3 * groups, expected[0], expected[1]));
                prop_assert_eq!(layer.parameter_count(), 3 * groups * (2 * kernel[0] * kernel[1] + 1));
                let per_output = (2 * 2 * kernel[0] * kernel[1] + 1) as u64;
                prop_assert_eq!(layer.forward_flops(), layer.output_shape().elements() as u64 * per_output);
            }
            Err(_) => prop_assert!(expected.contains(&0)),
        }
    }
}

#[test]
fn inputs_keep_their_order_and_may_repeat() {
    let mut net = image_net(1, 4, 4);
    let input = net.input();
    let a = net.add("a", Conv2d::new(2, 1), [input]).unwrap();
    let b = net.add("b", Conv2d::new(3, 1), [input]).unwrap();
    let c = net.add("c", LayerKind::Concat, [b, a, b]).unwrap();
    assert_eq!(net.producers(c), [b, a, b]);
    assert_eq!(net.consumers(b), [(c, 0), (c, 2)]);
    assert_eq!(net.layer(c).output_shape(), &Shape::image(8, 4, 4));
    assert_eq!(net.find("b"), Some(b));
}

#[test]
fn misfit_errors_name_the_layer() {
    let bad: Vec<(LayerKind, &str)> = vec![
        (Conv2d::new(8, 9).into(), "does not fit"),
        (Conv2d::new(8, 3).stride(0).into(), "at least 1"),
        (Conv2d::new(8, 3).groups(2).into(), "groups"),
        (Conv2d::new(0, 3).into(), "empty"),
        (LayerKind::MaxPool2d(Pool2d::new(2, 2).padding(2)), "more than half"),
        (AdaptiveAvgPool2d { output: [0, 1] }.into(), "empty"),
        (Pad { before: [0, usize::MAX], after: [1, 1] }.into(), "too large"),
        (LeakyRelu { negative_slope: f64::NAN }.into(), "negative slope"),
        (Dropout::new(1.0).into(), "not in 0..1"),
        (BatchNorm { epsilon: 0.0, momentum: 0.1 }.into(), "epsilon"),
        (GroupNorm::new(2).into(), "2 groups do not divide 3 channels"),
        (GroupNorm { groups: 3, epsilon: -1.0 }.into(), "needs epsilon > 0"),
        (LayerKind::CROSS_ENTROPY, "class scores"),
        (SoftmaxCrossEntropy::ignoring(i32::MIN).into(), "at most 2^24"),
        (SoftmaxCrossEntropy::smoothed(1.5).into(), "label smoothing 1.5 is not in 0..=1"),
        (LayerKind::Add, "at least two"),
        (LayerKind::Multiply, "takes two"),
        (LayerKind::Input, "no inputs"),
    ];
    for (kind, problem) in bad {
        let mut net = image_net(3, 8, 8);
        let input = net.input();
        let error = net.add("culprit", kind.clone(), [input]).unwrap_err().to_string();
        assert!(error.contains("culprit") && error.contains(problem), "{kind:?}: {error}");
        assert_eq!(net.len(), 1, "a rejected layer leaves the graph unchanged");
    }
}

#[test]
fn products_are_of_the_same_shape_or_of_images_and_one_number_a_channel() {
    let output = |inputs: [Shape; 2]| {
        let mut net = LayerGraph::new("net", Shape::features(1)).unwrap();
        let [a, b] = inputs.map(|shape| {
            let (name, input) = (format!("layer{}", net.len()), net.input());
            net.add(name, Opaque::new("any", shape), [input]).unwrap()
        });
        net.add("product", LayerKind::Multiply, [a, b]).map(|id| net.layer(id).output_shape().clone())
    };
    let image = || Shape::image(5, 3, 2);
    assert_eq!(output([image(), image()]).unwrap(), image());
    assert_eq!(output([image(), Shape::image(5, 1, 1)]).unwrap(), image());
    for other in [Shape::image(1, 1, 1), Shape::image(1, 3, 2), Shape::image(5, 3, 1), Shape::features(5)] {
        assert!(output([image(), other.clone()]).is_err());
        assert!(output([other, image()]).is_err());
    }
    assert!(output([Shape::image(5, 1, 1), image()]).is_err());
}

#[test]
fn duplicate_names_and_unknown_inputs_are_rejected() {
    let mut net = image_net(3, 8, 8);
    let mut other = image_net(3, 8, 8);
    let input = net.input();
    let mut elsewhere: LayerId = other.input();
    for i in 0..3 {
        elsewhere = other.add(format!("relu{i}"), LayerKind::Relu, [elsewhere]).unwrap();
    }
    net.add("relu", LayerKind::Relu, [input]).unwrap();
    let twice = net.add("relu", LayerKind::Relu, [input]).unwrap_err();
    assert!(matches!(twice, GraphError::DuplicateName(name) if name == "relu"));
    let unknown = net.add("late", LayerKind::Relu, [elsewhere]).unwrap_err();
    assert!(matches!(unknown, GraphError::UnknownInput { layer, .. } if layer == "late"));
    assert!(LayerGraph::new("none", Shape::image(3, 0, 8)).is_err());
}
