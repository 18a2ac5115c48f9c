//! Shapes, parameters and operations of layers that work on sequences or rearrange samples, and
//! weight tying.

use layer_graph::{
    AdditiveAttention, AdditiveSizes, AttentionSizes, Division, Embedding, ExpertActivation, GraphError,
    Layer, LayerGraph, LayerKind, LayerNorm, LayerTensor, Linear, LinearBiases, MixtureOfExperts,
    MultiHeadAttention, NetworkSplits, Permute, Pool2d, PositionEmbedding, Recurrence, RecurrentCell,
    RelativePositions, Reshape, RmsNorm, RotaryEmbedding, RotaryScaling, Scale, Select, Shape, Slice, Split,
};

fn dims(net: &LayerGraph, name: &str) -> Vec<usize> {
    net.layer(net.find(name).unwrap()).output_shape().dims().to_vec()
}

/// Returns a language model of one block with only the layers that change shapes.
fn language_model() -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new("tiny", Shape::features(5))?;
    let tokens = net.input();
    let embedding = net.add("tokens", Embedding::new(11, 6), [tokens])?;
    let x = net.add("positions", PositionEmbedding::new(8), [embedding])?;
    let x = net.add("norm", LayerNorm::default(), [x])?;
    let x = net.add("projection", Linear::new(18), [x])?;
    let x = net.add("attention", MultiHeadAttention::new(2, true), [x])?;
    let x = net.add_tied("head", Linear::new(11).without_bias(), [x], embedding)?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

#[test]
fn language_model_shapes_are_inferred() {
    let net = language_model().unwrap();
    assert_eq!(dims(&net, "tokens"), [5, 6]);
    assert_eq!(dims(&net, "projection"), [5, 18]);
    assert_eq!(dims(&net, "attention"), [5, 6]);
    assert_eq!(dims(&net, "head"), [5, 11]);
    assert_eq!(dims(&net, "loss"), [1]);
    let layer = |name: &str| net.layer(net.find(name).unwrap());
    assert_eq!(layer("loss").label_count(), 5);
    assert_eq!(layer("projection").forward_flops(), 5 * 18 * (2 * 6 + 1));
    // For each head, products of 5x3 with 3x5 and of 5x5 with 5x3; 5 operations for each softmax
    // element.
    assert_eq!(layer("attention").forward_flops(), 2 * (2 * 2 * 5 * 5 * 3) + 5 * 2 * 25);
}

/// Returns a network with an attention of queries, keys and values of these numbers of positions
/// and features, or the error.
fn three_inputs(attention: impl Into<LayerKind>, shapes: [[usize; 2]; 3]) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new("net", Shape::features(3))?;
    let inputs = shapes.map(|[positions, features]| {
        let flat = net.add(format!("{}", net.len()), Linear::new(positions * features), [net.input()])?;
        let output = Shape::sequence(positions, features);
        net.add(format!("{}", net.len()), Reshape { output }, [flat])
    });
    let [queries, keys, values] = inputs;
    net.add("attention", attention, [queries?, keys?, values?])?;
    Ok(net)
}

#[test]
fn attention_of_three_inputs_has_the_shape_of_its_queries() {
    // Four query heads, two key heads.
    let attention = MultiHeadAttention::new(4, false).scaled_by(0.5);
    let net = three_inputs(attention.clone(), [[5, 12], [7, 6], [7, 6]]).unwrap();
    assert_eq!(dims(&net, "attention"), [5, 12]);
    let layer = net.layer(net.find("attention").unwrap());
    // For each head, products of 5x3 with 3x7 and of 5x7 with 7x3; 5 operations for each softmax
    // element.
    assert_eq!(layer.forward_flops(), 4 * (2 * 2 * 5 * 7 * 3) + 5 * 4 * 35);
    assert_eq!(layer.backward_flops(), 2 * layer.forward_flops());
    let expected = AttentionSizes { positions: 5, key_positions: 7, heads: 4, key_heads: 2, width: 3 };
    assert_eq!(attention.sizes(layer.input_shapes()), Some(expected));
    assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net);
    assert!(net.to_json().contains("\"scale\": 0.5"), "{}", net.to_json());
    assert!(!language_model().unwrap().to_json().contains("scale"));
    for (window, keys) in [(1, 1), (3, 3), (9, 5)] {
        let net = three_inputs(MultiHeadAttention::new(4, true).with_window(window), [[5, 12]; 3]).unwrap();
        let layer = net.layer(net.find("attention").unwrap());
        assert_eq!(layer.forward_flops(), 4 * (2 * 2 * 5 * keys * 3) + 5 * 4 * 5 * keys, "{window}");
        assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net);
    }
}

#[test]
fn additive_attention_has_positions_of_its_queries_and_features_of_its_values() {
    for (attention, parameters) in [(AdditiveAttention::new(), 6), (AdditiveAttention::normalised(), 13)] {
        let net = three_inputs(attention.clone(), [[5, 6], [7, 6], [7, 4]]).unwrap();
        assert_eq!(dims(&net, "attention"), [5, 4]);
        let layer = net.layer(net.find("attention").unwrap());
        assert_eq!(layer.parameter_count(), parameters);
        // For each of 5x7 pairs: 13 operations for each unit, a softmax, and 4 features.
        assert_eq!(layer.forward_flops(), 5 * 7 * (13 * 6 + 5 + 2 * 4));
        assert_eq!(layer.backward_flops(), 2 * layer.forward_flops());
        let expected = AdditiveSizes { positions: 5, key_positions: 7, units: 6, features: 4 };
        assert_eq!(attention.sizes(layer.input_shapes()), Some(expected));
        assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net);
        let splits = NetworkSplits::new(&net);
        assert_eq!(splits.splits(net.find("attention").unwrap()), [Split::Copies]);
    }
    for shapes in [[[5, 6], [7, 5], [7, 4]], [[5, 6], [7, 6], [5, 4]]] {
        let error = three_inputs(AdditiveAttention::new(), shapes).unwrap_err().to_string();
        assert!(error.contains("`attention`") && error.contains("units"), "{error}");
    }
    let mut net = LayerGraph::new("net", Shape::features(3)).unwrap();
    for (inputs, expected) in [(2, "three inputs"), (3, "needs a sequence")] {
        let inputs = vec![net.input(); inputs];
        let error = net.add("attention", AdditiveAttention::new(), inputs).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn invalid_attentions_of_three_inputs_are_rejected() {
    let bad = [
        (MultiHeadAttention::new(4, true), [[5, 12], [7, 6], [7, 6]], "as many positions as the queries"),
        (MultiHeadAttention::new(4, false), [[5, 12], [7, 6], [6, 6]], "5x12, 7x6 and 6x6"),
        (MultiHeadAttention::new(4, false), [[5, 12], [7, 5], [7, 5]], "heads of the same size"),
        (MultiHeadAttention::new(4, false), [[5, 12], [7, 9], [7, 9]], "whose number divides 4"),
        (MultiHeadAttention::new(5, false), [[5, 12], [7, 12], [7, 12]], "queries of 5 heads"),
        (MultiHeadAttention::new(0, false), [[5, 12], [7, 12], [7, 12]], "queries of 0 heads"),
        (MultiHeadAttention::new(4, true).with_window(0), [[5, 12]; 3], "a window of at least one position"),
        (MultiHeadAttention::new(4, false).with_window(2), [[5, 12]; 3], "to be causal"),
        (MultiHeadAttention::new(4, false).scaled_by(0.0), [[5, 12]; 3], "scale > 0"),
        (MultiHeadAttention::new(4, false).scaled_by(f64::NAN), [[5, 12]; 3], "scale > 0"),
        (MultiHeadAttention::new(4, false).with_dropout(1.0), [[5, 12]; 3], "0 <= p < 1"),
        (MultiHeadAttention::new(4, false).with_dropout(f64::NAN), [[5, 12]; 3], "0 <= p < 1"),
    ];
    for (attention, shapes, expected) in bad {
        let error = three_inputs(attention, shapes).unwrap_err().to_string();
        assert!(error.contains("`attention`") && error.contains(expected), "{error}");
    }
    let mut net = three_inputs(MultiHeadAttention::new(4, false), [[5, 12]; 3]).unwrap();
    let (attention, input) = (net.find("attention").unwrap(), net.input());
    let two = net.add("two", MultiHeadAttention::new(4, false), [attention; 2]).unwrap_err().to_string();
    assert!(two.contains("one input, or three"), "{two}");
    let vector = net.add("vector", MultiHeadAttention::new(1, false), [input; 3]).unwrap_err().to_string();
    assert!(vector.contains("needs a sequence"), "{vector}");
}

#[test]
fn shared_parameters_count_once_and_round_trip_through_json() {
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
fn reshape_and_permute_turn_an_image_into_patches() {
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

fn llama3(low_frequency_factor: f64, high_frequency_factor: f64) -> RotaryScaling {
    let (factor, original_positions) = (8.0, 8192);
    RotaryScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_positions }
}

/// Frequencies of Llama 3.1: `inv_freq` of six pairs in `transformers`.
#[test]
fn scaled_rotary_embeddings_have_the_frequencies_of_llama() {
    let scaling = Some(llama3(1.0, 4.0));
    let rule = RotaryEmbedding { scaling, ..RotaryEmbedding::new(128, 5e5) };
    for (pair, expected) in [
        (0, 1.0),
        (28, 3.211_446_1e-3),
        (30, 1.371_893_7e-3),
        (33, 3.126_936_5e-4),
        (35, 9.556_212_2e-5),
        (63, 3.068_925_9e-7),
    ] {
        let error = rule.frequency(pair) / expected - 1.0;
        assert!(error.abs() < 1e-6, "{pair}: {}, not {expected}", rule.frequency(pair));
    }
    let mut net = LayerGraph::new("net", Shape::sequence(5, 128)).unwrap();
    net.add("rotary", rule, [net.input()]).unwrap();
    assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net);
}

#[test]
fn invalid_sequence_layers_are_rejected() {
    let rotary = |scaling| RotaryEmbedding { scaling: Some(scaling), ..RotaryEmbedding::new(2, 10.0) }.into();
    let bad: Vec<(LayerKind, &str)> = vec![
        (MultiHeadAttention::new(4, false).into(), "4 heads"),
        (MultiHeadAttention::new(0, false).into(), "0 heads"),
        (PositionEmbedding::new(4).into(), "4 positions"),
        (PositionEmbedding { first: 2, ..PositionEmbedding::new(6) }.into(), "from vector 2 on"),
        (PositionEmbedding { first: 6, repeated: true, ..PositionEmbedding::new(6) }.into(), "6 positions"),
        (PositionEmbedding { first: 7, ..PositionEmbedding::new(6) }.into(), "6 positions"),
        (Embedding::new(3, 2).into(), "vector of tokens"),
        (Scale::Constant(f64::NAN).into(), "finite factor"),
        (Scale::Channels.into(), "needs an image"),
        (Reshape { output: Shape::new([7, 4]) }.into(), "7x4"),
        (Permute { order: vec![0, 0] }.into(), "[0, 0]"),
        (Permute { order: vec![0] }.into(), "[0]"),
        (Select { index: 5 }.into(), "position 5"),
        (Slice { start: 3, length: 3 }.into(), "3 positions from 3"),
        (Slice { start: 1, length: usize::MAX }.into(), "positions from 1"),
        (Slice { start: 1, length: 0 }.into(), "empty"),
        (RotaryEmbedding::new(4, 100.0).into(), "6 features into heads of 4"),
        (RotaryEmbedding::new(3, 100.0).into(), "heads of 3 in pairs"),
        (RotaryEmbedding::new(2, 0.0).into(), "base"),
        (RotaryEmbedding { first: usize::MAX, ..RotaryEmbedding::new(2, 10.0) }.into(), "32 bits"),
        (
            RotaryEmbedding { rotated: Some(4), ..RotaryEmbedding::new(2, 9.0) }.into(),
            "cannot rotate 4 features",
        ),
        (
            RotaryEmbedding { rotated: Some(1), ..RotaryEmbedding::new(2, 9.0) }.into(),
            "cannot rotate 1 features",
        ),
        (
            RotaryEmbedding { rotated: Some(0), ..RotaryEmbedding::new(2, 9.0) }.into(),
            "cannot rotate 0 features",
        ),
        (rotary(RotaryScaling::Linear { factor: 0.0 }), "scaling of its angles"),
        (rotary(llama3(4.0, 4.0)), "scaling of its angles"),
        (rotary(llama3(0.0, 4.0)), "scaling of its angles"),
        (LayerNorm { epsilon: f64::NAN }.into(), "epsilon"),
        (RmsNorm::new(0.0).into(), "epsilon"),
        (Recurrence::new(RecurrentCell::Lstm).into(), "sequence of 4 gates, got 5x6"),
    ];
    for (kind, expected) in bad {
        let mut net = LayerGraph::new("net", Shape::sequence(5, 6)).unwrap();
        let input = net.input();
        let error = net.add("layer", kind, [input]).unwrap_err().to_string();
        assert!(error.contains("`layer`") && error.contains(expected), "{error}");
    }
    let mut net = LayerGraph::new("net", Shape::features(5)).unwrap();
    let kind = Embedding { padding: Some(3), ..Embedding::new(3, 2) };
    let error = net.add("layer", kind, [net.input()]).unwrap_err().to_string();
    assert!(
        error.contains("`layer`") && error.contains("padding token beyond its vocabulary of 3"),
        "{error}"
    );
}

#[test]
fn features_of_vectors_and_sequences_are_concatenated() {
    let joined = |first: Shape, features: usize| {
        let mut net = LayerGraph::new("net", first).unwrap();
        let other = net.add("other", Linear::new(features), [net.input()]).unwrap();
        let both = net.add("both", LayerKind::Concat, [net.input(), other])?;
        Ok::<_, GraphError>(net.layer(both).output_shape().clone())
    };
    assert_eq!(joined(Shape::features(3), 4).unwrap(), Shape::features(7));
    assert_eq!(joined(Shape::sequence(5, 3), 4).unwrap(), Shape::sequence(5, 7));
    assert!(joined(Shape::new([2, 2, 2, 3]), 4).is_err());
    let mut net = LayerGraph::new("net", Shape::sequence(4, 3)).unwrap();
    let shorter = net.add("shorter", Slice { start: 1, length: 3 }, [net.input()]).unwrap();
    let error = net.add("both", LayerKind::Concat, [net.input(), shorter]).unwrap_err().to_string();
    assert!(error.contains("sequences of different lengths, 4x3 and 3x3"), "{error}");
}

#[test]
fn recurrent_layers_have_the_parameters_and_costs_of_pytorchs_modules() {
    // Of `torch.nn.LSTM(6, 8)` and `torch.nn.GRU(6, 8, bias=False)`, over five positions.
    for (cell, bias, parameters, others) in [
        (RecurrentCell::Lstm, true, 4 * 8 * (6 + 8 + 2), 58),
        (RecurrentCell::Gru, false, 3 * 8 * (6 + 8), 38),
    ] {
        let mut net = LayerGraph::new("net", Shape::sequence(5, 6)).unwrap();
        let gates = cell.gates() * 8;
        let products = if bias { Linear::new(gates) } else { Linear::new(gates).without_bias() };
        let input = net.add("rnn.ih_l0", products, [net.input()]).unwrap();
        let output = net.add("rnn.hh_l0", Recurrence { bias, ..Recurrence::new(cell) }, [input]).unwrap();
        let layer = net.layer(output);
        assert_eq!(layer.output_shape(), &Shape::sequence(5, 8));
        assert_eq!(net.parameter_count(), parameters);
        let biases = usize::from(bias) * gates;
        assert_eq!(layer.forward_flops(), 5 * (2 * gates * 8 + biases + others * 8) as u64);
        assert_eq!(layer.backward_flops(), 2 * layer.forward_flops());
        let names = |id| {
            let layer: &Layer = net.layer(id);
            layer.parameters().iter().map(|tensor| layer.tensor_name(tensor)).collect::<Vec<_>>()
        };
        let expected = ["rnn.weight_hh_l0", "rnn.bias_hh_l0"];
        assert_eq!(names(output), expected[..layer.parameters().len()]);
        assert_eq!(names(input)[0], "rnn.weight_ih_l0");
    }
}

/// Adds a router and a mixture of experts to a sequence of ten positions of six features.
fn mixture(rule: MixtureOfExperts, scores: usize) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new("net", Shape::sequence(10, 6))?;
    let x = net.add("norm", RmsNorm::new(1e-5), [net.input()])?;
    let scores = net.add("gate", Linear::new(scores).without_bias(), [x])?;
    net.add("experts", rule, [x, scores])?;
    Ok(net)
}

#[test]
fn mixtures_of_experts_have_the_parameters_of_all_and_the_operations_of_the_chosen() {
    let layer = |rule: MixtureOfExperts| {
        let net = mixture(rule.clone(), 4).unwrap();
        assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net);
        net.layer(net.find("experts").unwrap()).clone()
    };
    let rule = MixtureOfExperts::new(4, 2, 5);
    let gated = layer(rule.clone());
    assert_eq!(gated.output_shape(), &Shape::sequence(10, 6));
    let names = |layer: &Layer| {
        layer
            .parameters()
            .into_iter()
            .map(|tensor| (tensor.name.to_string(), tensor.dims))
            .collect::<Vec<_>>()
    };
    let down = || ("down_proj".into(), vec![4, 6, 5]);
    assert_eq!(names(&gated), [("gate_up_proj".into(), vec![4, 10, 6]), down()]);
    // Of a pair: three products, the activation, the product with the gate, and the weighted sum.
    let softmax = 5 * 10 * 4;
    assert_eq!(gated.forward_flops(), softmax + 20 * (3 * 2 * 6 * 5 + 11 * 5 + 2 * 6));
    assert_eq!(gated.backward_flops(), 2 * gated.forward_flops());
    let plain = MixtureOfExperts { gated: false, activation: ExpertActivation::Relu, ..rule.clone() };
    let plain = layer(plain);
    assert_eq!(names(&plain), [("up_proj".into(), vec![4, 5, 6]), down()]);
    assert_eq!(plain.forward_flops(), softmax + 20 * (2 * 2 * 6 * 5 + 5 + 2 * 6));
    // At most three positions for each of four experts.
    let limited = layer(rule.clone().with_capacity(3));
    assert_eq!(limited.forward_flops(), softmax + 12 * (3 * 2 * 6 * 5 + 11 * 5 + 2 * 6));
    assert_eq!(layer(rule.with_capacity(9)).forward_flops(), gated.forward_flops());
}

#[test]
fn mixtures_of_experts_are_split_by_positions_without_a_limit() {
    let rule = MixtureOfExperts::new(4, 2, 5);
    for (rule, splits) in
        [(rule.clone(), vec![Split::Copies, Split::Positions]), (rule.with_capacity(3), vec![Split::Copies])]
    {
        let net = mixture(rule, 4).unwrap();
        let id = net.find("experts").unwrap();
        let possible = NetworkSplits::new(&net);
        assert_eq!(possible.splits(id), splits);
        if splits.contains(&Split::Positions) {
            let part = possible.part(id, Division { split: Split::Positions, parts: 3 }, 0).unwrap();
            assert_eq!(part.layer.input_shapes(), [Shape::sequence(4, 6), Shape::sequence(4, 4)]);
            assert_eq!(part.layer.parameters(), net.layer(id).parameters());
        }
    }
}

#[test]
fn mixtures_of_experts_that_do_not_fit_are_refused() {
    let rule = || MixtureOfExperts::new(4, 2, 5);
    for (rule, scores, expected) in [
        (MixtureOfExperts { chosen: 5, ..rule() }, 4, "cannot choose 5 of 4 experts"),
        (MixtureOfExperts { chosen: 0, ..rule() }, 4, "cannot choose 0 of 4 experts"),
        (MixtureOfExperts { width: 0, ..rule() }, 4, "at least 1"),
        (rule().with_capacity(0), 4, "at least 1"),
        (rule(), 3, "the scores of 4 experts, got 10x6 and 10x3"),
        (MixtureOfExperts { width: usize::MAX / 2, ..rule() }, 4, "too many parameters"),
    ] {
        let error = mixture(rule, scores).unwrap_err().to_string();
        assert!(error.contains("`experts`") && error.contains(expected), "{error}");
    }
}

#[test]
fn extra_padding_pads_one_side_of_a_pooling() {
    let output = |pool: Pool2d, size| {
        let mut net = LayerGraph::new("net", Shape::image(1, size, size)).unwrap();
        let id = net.add("pool", LayerKind::MaxPool2d(pool), [net.input()])?;
        Ok::<_, GraphError>(net.layer(id).output_shape().dims()[1])
    };
    // From 112 to 56 with a kernel of 3: the last window extends one element beyond the image.
    assert_eq!(output(Pool2d::new(3, 2), 112).unwrap(), 55);
    assert_eq!(output(Pool2d::new(3, 2).extra_padding([1, 1]), 112).unwrap(), 56);
    assert!(output(Pool2d::new(3, 2).extra_padding([3, 0]), 112).is_err());
    // The window of the sixth element would cover only padding.
    assert!(output(Pool2d::new(2, 5).extra_padding([1, 1]), 6).is_ok());
    assert!(output(Pool2d::new(2, 3).extra_padding([1, 1]), 3).is_ok());
    assert!(output(Pool2d::new(2, 1).padding(1).extra_padding([1, 1]), 3).is_err());
}

/// First distances of the buckets, as `transformers` computes them for T5.
#[test]
fn buckets_of_relative_positions_are_those_of_transformers() {
    let exact = |below: usize| 0..below;
    let expected: [(RelativePositions, bool, Vec<usize>); 4] = [
        (RelativePositions::new(32, 128), false, exact(9).chain([12, 16, 23, 32, 46, 64, 91]).collect()),
        (
            RelativePositions::new(32, 128),
            true,
            exact(17).chain([19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]).collect(),
        ),
        (
            RelativePositions::new(64, 256),
            false,
            exact(17).chain([20, 23, 27, 32, 39, 46, 54, 64, 77, 91, 108, 128, 153, 182, 216]).collect(),
        ),
        (RelativePositions::new(9, 11), false, vec![0, 1, 2, 5]),
    ];
    for (relative, causal, firsts) in expected {
        for distance in 0..300 {
            let bucket = firsts.iter().filter(|&&first| first <= distance).count() - 1;
            assert_eq!(relative.bucket(7, 7 + distance, causal), bucket, "{relative:?}: {distance}");
            let later = if causal || distance == 0 { 0 } else { relative.buckets / 2 + bucket };
            assert_eq!(relative.bucket(7 + distance, 7, causal), later, "{relative:?}: {distance}");
        }
    }
}

/// Press, Smith and Lewis, "Train Short, Test Long", 2022: slopes of 8 heads, and of 6 heads as in
/// their code.
#[test]
fn slopes_of_linear_biases_follow_from_the_number_of_heads() {
    let slopes = |heads: usize| -> Vec<f64> {
        (0..heads).map(|head| LinearBiases::new(heads).bias(head, 4, 5).abs().recip()).collect()
    };
    assert_eq!(slopes(8), [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]);
    assert_eq!(slopes(6), [4.0, 16.0, 64.0, 256.0, 2.0, 8.0]);
    assert_eq!(slopes(1), [256.0]);
    let biases = LinearBiases { heads: 8, first: 2, factor: 4.0 };
    assert!((biases.bias(1, 5, 2) + 4.0 * 3.0 / 16.0).abs() < 1e-12);
    let attention = MultiHeadAttention::new(4, true).with_alibi(LinearBiases::new(4));
    let net = three_inputs(attention.clone(), [[5, 12]; 3]).unwrap();
    assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net);
    assert_eq!(net.layer(net.find("attention").unwrap()).parameter_count(), 0);
    let part = NetworkSplits::new(&net);
    let part = part.part(net.find("attention").unwrap(), Division { split: Split::Features, parts: 2 }, 1);
    let LayerKind::MultiHeadAttention(half) = part.unwrap().layer.kind().clone() else { panic!("a part") };
    assert_eq!(half.alibi, Some(LinearBiases { heads: 4, first: 2, factor: 1.0 }));
    for (attention, expected) in [
        (attention.clone().with_relative_positions(RelativePositions::new(6, 9)), "relative positions and"),
        (MultiHeadAttention::new(4, true).with_alibi(LinearBiases::new(3)), "linear biases of 4 heads"),
        (attention.with_alibi(LinearBiases { first: 1, ..LinearBiases::new(4) }), "linear biases of 4 heads"),
    ] {
        let error = three_inputs(attention, [[5, 12]; 3]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn attention_learns_numbers_of_relative_positions() {
    let attention = || MultiHeadAttention::new(4, false);
    let with = |buckets, far| attention().with_relative_positions(RelativePositions::new(buckets, far));
    let net = three_inputs(with(6, 9), [[5, 12], [7, 6], [7, 6]]).unwrap();
    let layer = net.layer(net.find("attention").unwrap());
    assert_eq!(layer.parameters(), [LayerTensor::new("relative_attention_bias.weight", [6, 4])]);
    assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net);
    for (buckets, far) in [(3, 9), (8, 2), (0, 0), (usize::MAX, 7)] {
        let error = three_inputs(with(buckets, far), [[5, 12], [7, 6], [7, 6]]).unwrap_err().to_string();
        assert!(error.contains("`attention`") && error.contains("buckets"), "{error}");
    }
}
