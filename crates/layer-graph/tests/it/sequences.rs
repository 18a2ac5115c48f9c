//! Shapes, parameters and operations of the layers that work on sequences and rearrange samples, and parameters that two
//! layers share.

use layer_graph::{
    Embedding, GraphError, LayerGraph, LayerKind, LayerNorm, Linear, MultiHeadAttention, Permute, Pool2d,
    PositionEmbedding, Reshape, Select, Shape,
};

fn dims(net: &LayerGraph, name: &str) -> Vec<usize> {
    net.layer(net.find(name).unwrap()).output_shape().dims().to_vec()
}

/// A language model of one block without anything that does not change shapes.
fn language_model() -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new("tiny", Shape::features(5))?;
    let tokens = net.input();
    let embedding = net.add("tokens", Embedding { vocabulary: 11, features: 6 }, [tokens])?;
    let x = net.add("positions", PositionEmbedding { positions: 8 }, [embedding])?;
    let x = net.add("norm", LayerNorm::default(), [x])?;
    let x = net.add("projection", Linear::new(18), [x])?;
    let x = net.add("attention", MultiHeadAttention { heads: 2, causal: true }, [x])?;
    let x = net.add_tied("head", Linear::new(11).without_bias(), [x], embedding)?;
    net.add("loss", LayerKind::SoftmaxCrossEntropy, [x])?;
    Ok(net)
}

#[test]
fn a_language_model_has_the_shapes_it_should() {
    let net = language_model().unwrap();
    assert_eq!(dims(&net, "tokens"), [5, 6]);
    assert_eq!(dims(&net, "projection"), [5, 18]);
    assert_eq!(dims(&net, "attention"), [5, 6]);
    assert_eq!(dims(&net, "head"), [5, 11]);
    assert_eq!(dims(&net, "loss"), [1]);
    let layer = |name: &str| net.layer(net.find(name).unwrap());
    assert_eq!(layer("loss").label_count(), 5);
    assert_eq!(layer("projection").forward_flops(), 5 * 18 * (2 * 6 + 1));
    // Two products of 5x3 with 3x5 and 5x5 with 5x3 a head, and five operations a softmax element.
    assert_eq!(layer("attention").forward_flops(), 2 * (2 * 2 * 5 * 5 * 3) + 5 * 2 * 25);
}

#[test]
fn shared_parameters_count_once_and_survive_json() {
    let net = language_model().unwrap();
    let (embedding, head) = (net.find("tokens").unwrap(), net.find("head").unwrap());
    assert_eq!(net.parameter_owner(head), embedding);
    assert_eq!(net.parameter_owner(embedding), embedding);
    assert_eq!(net.parameter_users(embedding), [embedding, head]);
    assert_eq!(net.parameter_users(head), []);
    assert_eq!([embedding, head].map(|id| net.own_parameter_count(id)), [66, 0]);
    assert_eq!(net.layer(head).parameter_count(), 66);
    assert_eq!(net.parameter_count(), 66 + 8 * 6 + 2 * 6 + 18 * 6 + 18);
    let again = LayerGraph::from_json(&net.to_json()).unwrap();
    assert_eq!(again, net);
    assert_eq!(again.parameter_owner(head), embedding);
}

#[test]
fn only_parameters_of_the_same_dimensions_can_be_shared() {
    let mut net = LayerGraph::new("net", Shape::features(4)).unwrap();
    let first = net.add("first", Linear::new(4), [net.input()]).unwrap();
    let relu = net.add("relu", LayerKind::Relu, [first]).unwrap();
    let refused = |net: &mut LayerGraph, kind: LayerKind, owner, expected: &str| {
        let error = net.add_tied("second", kind, [relu], owner).unwrap_err().to_string();
        assert!(error.contains("`second`") && error.contains(expected), "{error}");
        assert_eq!(net.find("second"), None);
    };
    refused(&mut net, Linear::new(3).into(), first, "[[4, 4], [4]]");
    refused(&mut net, LayerKind::Relu, first, "`first`");
    refused(&mut net, LayerKind::Relu, relu, "`relu`");
    let tied = net.add_tied("tied", Linear::new(4), [relu], first).unwrap();
    refused(&mut net, Linear::new(4).into(), tied, "no parameters of its own");
}

#[test]
fn an_image_becomes_a_sequence_of_patches() {
    let mut net = LayerGraph::new("patches", Shape::image(6, 2, 3)).unwrap();
    let x = net.add("flat", Reshape { output: Shape::new([6, 6]) }, [net.input()]).unwrap();
    let x = net.add("sequence", Permute { order: vec![1, 0] }, [x]).unwrap();
    let x = net.add("class", LayerKind::ClassToken, [x]).unwrap();
    net.add("first", Select { index: 0 }, [x]).unwrap();
    assert_eq!(dims(&net, "sequence"), [6, 6]);
    assert_eq!(dims(&net, "class"), [7, 6]);
    assert_eq!(dims(&net, "first"), [6]);
    assert_eq!(net.parameter_count(), 6);
}

#[test]
fn what_does_not_fit_a_sequence_is_refused() {
    let bad: Vec<(LayerKind, &str)> = vec![
        (MultiHeadAttention { heads: 4, causal: false }.into(), "4 heads"),
        (MultiHeadAttention { heads: 0, causal: false }.into(), "0 heads"),
        (PositionEmbedding { positions: 4 }.into(), "4 positions"),
        (Embedding { vocabulary: 3, features: 2 }.into(), "vector of tokens"),
        (Reshape { output: Shape::new([7, 4]) }.into(), "7x4"),
        (Permute { order: vec![0, 0] }.into(), "[0, 0]"),
        (Permute { order: vec![0] }.into(), "[0]"),
        (Select { index: 5 }.into(), "position 5"),
        (LayerNorm { epsilon: f64::NAN }.into(), "epsilon"),
    ];
    for (kind, expected) in bad {
        let mut net = LayerGraph::new("net", Shape::sequence(5, 6)).unwrap();
        let input = net.input();
        let error = net.add("layer", kind, [input]).unwrap_err().to_string();
        assert!(error.contains("`layer`") && error.contains(expected), "{error}");
    }
}

#[test]
fn pooling_may_be_padded_at_one_end_only() {
    let output = |pool: Pool2d, size| {
        let mut net = LayerGraph::new("net", Shape::image(1, size, size)).unwrap();
        let id = net.add("pool", LayerKind::MaxPool2d(pool), [net.input()])?;
        Ok::<_, GraphError>(net.layer(id).output_shape().dims()[1])
    };
    // 112 -> 56 with a kernel of 3: the last window hangs over by one.
    assert_eq!(output(Pool2d::new(3, 2), 112).unwrap(), 55);
    assert_eq!(output(Pool2d::new(3, 2).extra_padding([1, 1]), 112).unwrap(), 56);
    assert!(output(Pool2d::new(3, 2).extra_padding([3, 0]), 112).is_err());
    // The window of the sixth element would see nothing but padding.
    assert!(output(Pool2d::new(2, 5).extra_padding([1, 1]), 6).is_ok());
    assert!(output(Pool2d::new(2, 3).extra_padding([1, 1]), 3).is_ok());
    assert!(output(Pool2d::new(2, 1).padding(1).extra_padding([1, 1]), 3).is_err());
}
