//! Parts of split layers together compute what the whole layer does: outputs, gradients and
//! statistics, for all splits of all layers of random networks.

use layer_engine::{CpuEngine, Pass, Real, Role, Shard, Signature};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Division, Dropout, Embedding, GraphError,
    GroupNorm, Layer, LayerGraph, LayerId, LayerKind, LayerNorm, LayerTensor, LeakyRelu, Linear,
    LinearBiases, MixtureOfExperts, MultiHeadAttention, NetworkSplits, Pad, Pool2d, PositionEmbedding,
    RelativePositions, RmsNorm, RotaryEmbedding, Scale, Shape, Split, TensorBox, Values,
};
use proptest::prelude::*;

use crate::single_layer::{SingleLayer, numbers};

/// Returns the elements of a box in each sample, or all elements without a box.
fn cut<T: Real>(whole: &[T], part: Option<&TensorBox>) -> Vec<T> {
    let Some(part) = part else { return whole.to_vec() };
    let runs = part.runs();
    let samples = whole.chunks(part.dims.iter().product());
    samples.flat_map(|sample| runs.iter().flat_map(|run| sample[run.clone()].to_vec())).collect()
}

/// A tensor that is put together from its parts.
struct Joined<T> {
    values: Vec<T>,
    /// Number of parts that have each element.
    counts: Vec<usize>,
}

impl<T: Real> Joined<T> {
    fn new(elements: usize) -> Self {
        Self { values: vec![T::zero(); elements], counts: vec![0; elements] }
    }

    /// Adds a part's elements: those of a box in each sample, or all without a box.
    fn add(&mut self, part: &[T], part_box: Option<&TensorBox>) {
        let every = TensorBox::whole([self.values.len()]);
        let part_box = part_box.unwrap_or(&every);
        let sample: usize = part_box.dims.iter().product();
        let samples = (0..self.values.len()).step_by(sample.max(1));
        let runs = part_box.runs();
        let places = samples.flat_map(|start| runs.iter().cloned().flatten().map(move |at| start + at));
        let places: Vec<usize> = places.collect();
        assert_eq!(places.len(), part.len());
        for (place, &value) in places.into_iter().zip(part) {
            self.values[place] += value;
            self.counts[place] += 1;
        }
    }

    /// Compares the tensor with the whole layer's: elements that `parts` parts have are copies if
    /// `values` are, and addends otherwise.
    fn check(&self, expected: &[T], values: Values, parts: usize, bound: f64, name: &str) {
        let copies = if matches!(values, Values::Ranges | Values::Positions) { 1 } else { parts };
        assert!(self.counts.iter().all(|&count| count == copies), "{name}: {:?}", self.counts);
        let largest = expected.iter().map(|value| value.widen().abs()).fold(1.0, f64::max);
        for (value, expected) in self.values.iter().zip(expected) {
            let value = value.widen() / if values == Values::Copies { parts as f64 } else { 1.0 };
            let difference = (value - expected.widen()).abs();
            assert!(difference <= bound * largest, "{name}: {value}, not {}", expected.widen());
        }
    }
}

/// Returns the ranges of a layer's concatenated tensors.
fn places(tensors: &[LayerTensor]) -> Vec<std::ops::Range<usize>> {
    let mut end = 0;
    let place = |tensor: &LayerTensor| {
        end += tensor.elements();
        end - tensor.elements()..end
    };
    tensors.iter().map(place).collect()
}

/// Returns a part's concatenated tensors, cut from those of the whole layer.
fn cut_tensors<T: Real>(whole: &[T], tensors: &[LayerTensor], boxes: &[TensorBox]) -> Vec<T> {
    let tensors = places(tensors).into_iter().zip(boxes);
    tensors.flat_map(|(place, part)| cut(&whole[place], Some(part))).collect()
}

/// Runs all passes of a layer for training, and inference.
fn run<T: Real>(layer: &mut SingleLayer<T>) -> Vec<T> {
    layer.forward();
    layer.backward();
    let output = layer.buffers[&Role::Output].clone();
    if Signature::of(&layer.layer, Pass::Infer).is_some() {
        layer.run(Pass::Infer).unwrap();
    }
    output
}

/// Compares the parts of a layer with the whole layer.
fn check<T: Real>(network: &LayerGraph, id: LayerId, division: Division, bound: f64) {
    let splits = NetworkSplits::new(network);
    let layer: &Layer = network.layer(id);
    let Division { split, parts } = division;
    // One part is the whole layer, with any split.
    let split = if parts == 1 { Split::Copies } else { split };
    let values = splits.values(id, split);
    let shard = Shard { first: 3, samples: 3 };
    let mut whole = SingleLayer::<T>::new(layer.clone(), shard, CpuEngine::new());
    let statistics = whole.buffers.get(&Role::Statistics).map(Vec::len);
    if let Some(count) = statistics {
        let positive = numbers::<T>("statistics", count).into_iter().map(|number| number * number);
        whole.set(Role::Statistics, positive.collect());
    }
    let before = whole.buffers.clone();
    let output = run(&mut whole);

    let inputs = network.producers(id);
    let mut joined: Vec<(Role, Joined<T>)> =
        whole.buffers.iter().map(|(&role, buffer)| (role, Joined::new(buffer.len()))).collect();
    let mut trained = Joined::new(output.len());
    for index in 0..parts {
        let part = splits.part(id, division, index).unwrap();
        let range = |values, id| match values {
            Values::Ranges => Some(splits.view(id).range(part.units.clone())),
            Values::Positions => Some(splits.view(id).position_range(part.units.clone())),
            Values::Copies | Values::Addends => None,
        };
        let by_positions = (split == Split::Positions).then(|| TensorBox {
            dims: layer.input_shapes()[0].dims()[..1].to_vec(),
            ranges: vec![part.units.clone()],
        });
        let box_of = |role| match role {
            Role::Labels => by_positions.clone(),
            Role::Input(_) | Role::InputGradient(_) if matches!(layer.kind(), LayerKind::Embedding(_)) => {
                by_positions.clone()
            }
            Role::Input(slot) => range(values.input, inputs[slot]),
            Role::InputGradient(slot) => range(values.input_gradient, inputs[slot]),
            Role::Output | Role::OutputGradient => range(values.output, id),
            _ => None,
        };
        let mut run_part = SingleLayer::<T>::new(part.layer.clone(), shard, CpuEngine::new());
        for (&role, buffer) in &before {
            let buffer = match role {
                Role::Parameters => cut_tensors(buffer, &layer.parameters(), &part.parameters),
                Role::Statistics => cut_tensors(buffer, &layer.statistics(), &part.statistics),
                Role::Input(_) | Role::Labels | Role::OutputGradient => cut(buffer, box_of(role).as_ref()),
                _ => continue,
            };
            run_part.set(role, buffer);
        }
        trained.add(&run(&mut run_part), box_of(Role::Output).as_ref());
        for (role, joined) in &mut joined {
            let Some(buffer) = run_part.buffers.get(role) else { continue };
            let (tensors, boxes) = match role {
                Role::ParameterGradient => (layer.parameters(), &part.parameters),
                Role::Statistics => (layer.statistics(), &part.statistics),
                Role::Output | Role::InputGradient(_) | Role::Metrics => {
                    joined.add(buffer, box_of(*role).as_ref());
                    continue;
                }
                _ => continue,
            };
            let mut start = 0;
            for (place, part_box) in places(&tensors).into_iter().zip(boxes) {
                let end = start + part_box.elements();
                let mut tensor = Joined::new(place.len());
                tensor.add(&buffer[start..end], Some(part_box));
                for (at, (value, count)) in place.zip(tensor.values.into_iter().zip(tensor.counts)) {
                    joined.values[at] += value;
                    joined.counts[at] += count;
                }
                start = end;
            }
            assert_eq!(start, buffer.len());
        }
    }
    let name = |role| format!("{} {division:?} {role:?}", layer.name());
    trained.check(&output, values.output, parts, bound, &name(Role::Output));
    for (role, joined) in joined {
        let values = match role {
            Role::InputGradient(_) => values.input_gradient,
            Role::ParameterGradient | Role::Statistics => values.parameter_gradient,
            Role::Output | Role::Metrics => values.output,
            _ => continue,
        };
        joined.check(&whole.buffers[&role], values, parts, bound, &name(role));
    }
}

/// Compares all parts of all layers, for up to four parts, and returns the number of comparisons of
/// divided layers.
fn check_network(network: &LayerGraph) -> usize {
    let splits = NetworkSplits::new(network);
    let mut divided = 0;
    for (id, _) in network.layers() {
        for split in splits.splits(id) {
            for parts in 1..=splits.max_parts(id, split).min(4) {
                check::<f64>(network, id, Division { split, parts }, 1e-10);
                check::<f32>(network, id, Division { split, parts }, 1e-4);
                divided += usize::from(split != Split::Copies && parts > 1);
            }
        }
    }
    divided
}

/// Sizes of a convolutional network.
#[derive(Debug, Clone)]
struct ImageSizes {
    image: [usize; 3],
    kernel: [usize; 2],
    stride: usize,
    groups: usize,
    /// Numbers of channels in a group, before and after the grouped convolution.
    group_channels: [usize; 2],
    pooled: [usize; 2],
    hidden: usize,
    bias: bool,
}

fn image_network(sizes: &ImageSizes) -> Result<LayerGraph, GraphError> {
    let [channels, height, width] = sizes.image;
    let mut net = LayerGraph::new("images", Shape::image(channels, height, width))?;
    let mut first = Conv2d::rectangular(sizes.groups * sizes.group_channels[0], sizes.kernel);
    first.bias = sizes.bias;
    let mut grouped = Conv2d::new(sizes.groups * sizes.group_channels[1], 3).padding(1).groups(sizes.groups);
    grouped.bias = !sizes.bias;
    let transposed = ConvTranspose2d {
        groups: sizes.groups,
        bias: sizes.bias,
        ..ConvTranspose2d::new(sizes.groups * sizes.group_channels[0], 2, 2)
    };
    let mut x = net.add("conv", first.padding(1).stride(sizes.stride), [net.input()])?;
    let kinds = [
        BatchNorm::default().into(),
        LayerKind::Relu,
        LayerKind::MaxPool2d(Pool2d::new(2, 1)),
        grouped.into(),
        LayerKind::Silu,
        Scale::Channels.into(),
        LeakyRelu { negative_slope: 0.2 }.into(),
        GroupNorm::new(sizes.groups).into(),
        Pad { before: [1, 0], after: [0, 2] }.into(),
        transposed.into(),
        ConvTranspose2d::new(4, 3, 1).into(),
        LayerKind::AvgPool2d(Pool2d::new(2, 2).padding(1)),
        AdaptiveAvgPool2d { output: sizes.pooled }.into(),
        Dropout::new(0.4).into(),
        Dropout { of_samples: true, ..Dropout::new(0.5) }.into(),
        LayerKind::Flatten,
        BatchNorm::default().into(),
        Dropout::new(0.3).into(),
    ];
    for (index, kind) in kinds.into_iter().enumerate() {
        x = net.add(format!("{index}.{}", kind.label()), kind, [x])?;
        if index == 4 {
            let means = net.add("means", AdaptiveAvgPool2d { output: [1, 1] }, [x])?;
            x = net.add("excited", LayerKind::Multiply, [x, means])?;
        }
    }
    x = net.add("hidden", Linear::new(sizes.hidden), [x])?;
    x = net.add("relu", LayerKind::Relu, [x])?;
    x = net.add("scores", Linear { out_features: 5, bias: sizes.bias }, [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

/// Sizes of a transformer.
#[derive(Debug, Clone)]
struct SequenceSizes {
    positions: usize,
    features: usize,
    heads: usize,
    width: usize,
    hidden: usize,
    causal: bool,
}

fn sequence_network(sizes: &SequenceSizes) -> Result<LayerGraph, GraphError> {
    let &SequenceSizes { positions, features, heads, width, hidden, causal } = sizes;
    let mut net = LayerGraph::new("sequences", Shape::features(positions))?;
    let mut x = net.add("tokens", Embedding::new(11, features), [net.input()])?;
    x = net.add("positions", PositionEmbedding::new(positions + 2), [x])?;
    x = net.add("rows", PositionEmbedding::new(positions), [x])?;
    x = net.add("scaled", Scale::Constant(1.5), [x])?;
    x = net.add("types", PositionEmbedding { first: 1, repeated: true, positions: 2 }, [x])?;
    let start = net.add("dropout", Dropout::new(0.3), [x])?;
    x = net.add("norm", LayerNorm::default(), [start])?;
    x = net.add("qkv", Linear::new(3 * heads * width), [x])?;
    x = net.add("attention", MultiHeadAttention::new(heads, causal).with_dropout(0.2), [x])?;
    x = net.add("attention_dropout", Dropout::new(0.5), [x])?;
    x = net.add("out", Linear::new(features), [x])?;
    x = net.add("factors", Scale::Features, [x])?;
    let middle = net.add("add", LayerKind::Add, [x, start])?;
    x = net.add("up", Linear::new(hidden), [middle])?;
    x = net.add("gelu", LayerKind::GeluTanh, [x])?;
    let gate = net.add("gate", Linear::new(hidden).without_bias(), [middle])?;
    x = net.add("gated", LayerKind::Multiply, [gate, x])?;
    x = net.add("down", Linear::new(features).without_bias(), [x])?;
    let scores = net.add("router", Linear::new(4).without_bias(), [middle])?;
    let experts = net.add("experts", MixtureOfExperts::new(4, 2, hidden), [middle, scores])?;
    x = net.add("sum", LayerKind::Add, [x, middle, start, experts])?;
    x = net.add("rms_norm", RmsNorm::new(1e-5), [x])?;
    let next = net.add("next", Linear::new(7), [x])?;
    net.add("losses", LayerKind::CROSS_ENTROPY, [next])?;
    x = net.add("token", LayerKind::ClassToken, [x])?;
    x = net.add("flat", LayerKind::Flatten, [x])?;
    x = net.add("scores", Linear::new(5), [x])?;
    x = net.add("softmax", LayerKind::Softmax, [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

/// Returns a decoder with attention to itself, whose queries and keys are rotated, and to an
/// encoder's output, both with grouped queries. `half` is half the number of features of a head.
fn decoder([positions, key_heads, group, half]: [usize; 4]) -> Result<LayerGraph, GraphError> {
    let (heads, features, width) = (key_heads * group, 5, 2 * half);
    let mut net = LayerGraph::new("decoder", Shape::features(positions))?;
    let tokens = net.add("tokens", Embedding::new(11, features), [net.input()])?;
    let encoded = net.add("encoded", LayerKind::ClassToken, [tokens])?;
    let mut x = tokens;
    for (name, causal, keys) in [("self", true, None), ("cross", false, Some(encoded))] {
        let mut linear = |what: &str, features: usize, input| {
            net.add(format!("{name}.{what}"), Linear::new(features), [input])
        };
        let mut queries = linear("q", heads * width, x)?;
        let [mut projected, values] =
            ["k", "v"].map(|what| linear(what, key_heads * width, keys.unwrap_or(x)));
        if causal {
            let rotary = RotaryEmbedding { rotated: Some(2), ..RotaryEmbedding::new(width, 30.0) };
            queries = net.add("rotated_q", rotary.clone(), [queries])?;
            projected = net.add("rotated_k", rotary, [projected?]);
        }
        let attention = MultiHeadAttention::new(heads, causal).scaled_by(0.7);
        let attention = if causal {
            attention.with_window(3).with_alibi(LinearBiases::new(heads))
        } else {
            attention.with_relative_positions(RelativePositions::new(6, 5))
        };
        let attended = net.add(name, attention, [queries, projected?, values?])?;
        x = net.add(format!("{name}.out"), Linear::new(features), [attended])?;
    }
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_of_image_layers_match_the_whole_layer(
        image in [1usize..5, 5usize..8, 5usize..8],
        (kernel, stride, pooled) in ([1usize..4, 1usize..4], 1usize..3, [1usize..3, 1usize..3]),
        (groups, group_channels) in (1usize..6, [1usize..4, 1usize..4]),
        (hidden, bias) in (1usize..8, any::<bool>()),
    ) {
        let sizes = ImageSizes { image, kernel, stride, groups, group_channels, pooled, hidden, bias };
        check_network(&image_network(&sizes).unwrap());
    }

    #[test]
    fn parts_of_sequence_layers_match_the_whole_layer(
        (positions, features, hidden) in (1usize..6, 1usize..9, 1usize..9),
        (heads, width, causal) in (1usize..6, 1usize..4, any::<bool>()),
    ) {
        let sizes = SequenceSizes { positions, features, heads, width, hidden, causal };
        check_network(&sequence_network(&sizes).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_of_attention_of_three_inputs_match_the_whole_layer(
        sizes in [1usize..6, 1usize..5, 1usize..4, 1usize..4],
    ) {
        check_network(&decoder(sizes).unwrap());
    }
}

#[test]
fn parts_of_all_layer_kinds_are_compared() {
    let sizes = ImageSizes {
        image: [3, 6, 6],
        kernel: [3, 2],
        stride: 1,
        groups: 4,
        group_channels: [2, 1],
        pooled: [2, 1],
        hidden: 7,
        bias: true,
    };
    // Two to four parts of all layers but the loss by features, and of linear layers and of the
    // transposed convolution without groups by inputs. Up to three of the convolution by inputs.
    assert_eq!(check_network(&image_network(&sizes).unwrap()), 3 * (24 + 3) + 2);
    // All layers but norms, experts, class token, softmax and losses by features, linear layers by
    // inputs, and two to three parts of all layers on sequences but the attention, of the larger
    // table of positions and the class token, and the loss of a sequence, by positions.
    let sizes = SequenceSizes { positions: 3, features: 5, heads: 4, width: 2, hidden: 6, causal: true };
    assert_eq!(check_network(&sequence_network(&sizes).unwrap()), 3 * (22 + 8) + 2 * 22);
    // All layers but the class token and the loss by features, linear layers by inputs; two to
    // three parts of the layers on the tokens' positions but the attentions, and two to four of the
    // projections of the encoder's output, which has one more, by positions.
    assert_eq!(check_network(&decoder([3, 4, 2, 2]).unwrap()), 3 * (13 + 8) + 2 * 10 + 3 * 2);
}
