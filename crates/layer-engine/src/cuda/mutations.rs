//! Mutation test of the emulator's checks. Each mutation removes a barrier of the kernels or moves
//! an integer comparison by one. A wrong result, a race or an access out of bounds must reveal it.
//! Mutations that make no difference are listed in [`HARMLESS`].
//!
//! Comparisons of kernels that work in tiles are mutated only with `CUDA_ENGINE_MUTATIONS=1`, which
//! takes minutes. Undetected ones are printed: most of them concern rows, columns, terms and
//! channels beyond an operand, which are multiplied by zeros or not stored.

#[allow(dead_code, unreachable_pub, reason = "a part of it is enough here")]
#[path = "../../tests/it/any_engine/mod.rs"]
mod any_engine;

use std::collections::BTreeSet;
use std::time::Duration;

use cuda::{Driver, Module};
use cuda_emulator::{Emulator, Setting};
use layer_graph::{
    AdaptiveAvgPool2d, AdditiveAttention, BatchNorm, Conv2d, ConvTranspose2d, Division, Dropout,
    ElementwiseLoss, Embedding, ExpertActivation, GroupNorm, Layer, LayerGraph, LayerKind, LayerNorm,
    LeakyRelu, Linear, LinearBiases, LocalResponseNorm, MixtureOfExperts, MultiHeadAttention, NetworkSplits,
    Pad, Permute, Pool2d, PositionEmbedding, Recurrence, RecurrentCell, RelativePositions, RmsNorm,
    RotaryEmbedding, Scale, Select, Shape, SoftmaxCrossEntropy, Split,
};

use super::module::Family;
use super::{ChainNorm, CudaEngine, ElementwiseChain, Rectifier};
use crate::{
    CpuEngine, Engine, ImageLayout, KernelChoice, KernelSpec, Pass, Precision, Real, Role, Sgd, Shard,
    Signature, Storage,
};
use any_engine::{CONTEXT, LayerRun, distance, download, largest_difference, numbers, upload};

/// Replacements that move a comparison by one.
const MOVED_COMPARISONS: [(&str, &str); 4] =
    [("setp.lt.", "setp.le."), ("setp.le.", "setp.lt."), ("setp.gt.", "setp.ge."), ("setp.ge.", "setp.gt.")];

/// The PTX of a family with one mutation, and its place: the kernel, and the number of the barrier
/// or the register of the comparison's result.
struct Mutation {
    place: (String, String),
    ptx: String,
}

/// Returns whether the GPU functions of a family compute products in tiles.
fn works_in_tiles(family: Family) -> bool {
    matches!(family, Family::Attention | Family::Convolution | Family::MatrixProduct)
}

/// Returns the mutations of a family: of barriers and of comparisons. Those of comparisons in tiles
/// of products or of several channels are included `with_tiles`.
fn mutations(family: Family, with_tiles: bool) -> Vec<Mutation> {
    let lines: Vec<_> = family.ptx(Storage::Scalar).lines().collect();
    let in_tiles = works_in_tiles(family);
    let (mut all, mut kernel, mut barriers) = (Vec::new(), String::new(), 0);
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = line.strip_prefix(".visible .entry ") {
            (kernel, barriers) = (name.trim_end_matches(['(', ')']).to_owned(), 0);
        }
        let with_bounds = with_tiles || !(in_tiles || kernel.ends_with("_last"));
        let text = line.trim();
        let is_whole = [".s32", ".u32", ".s64", ".u64"].iter().any(|kind| text.contains(kind));
        let moved =
            MOVED_COMPARISONS.iter().find(|(from, _)| text.starts_with(from) && is_whole && with_bounds);
        let (what, changed) = match moved {
            Some((from, to)) => {
                let result = text.split([' ', '\t', ',']).find(|word| word.starts_with("%p"));
                (result.unwrap_or_default().to_owned(), text.replace(from, to))
            }
            None if text.starts_with("bar.sync") => {
                barriers += 1;
                (format!("barrier {barriers}"), String::new())
            }
            None => continue,
        };
        let mut mutated = lines.clone();
        mutated[at] = &changed;
        all.push(Mutation { place: (kernel.clone(), what), ptx: mutated.join("\n") });
    }
    all
}

/// A test case that launches kernels.
#[derive(Debug, Clone)]
enum MutationCase {
    /// A training step of a layer with a number of samples.
    Layer(Layer, usize),
    /// A kernel that belongs to no layer, with the lengths of its operands.
    Kernel(KernelSpec<'static>, Vec<usize>, Vec<usize>),
    /// A pass of a layer in a chain with a number of terms, a rectifier or none, and a number of
    /// copies.
    Chain(Layer, Pass, usize, Option<Rectifier>, usize),
}

/// Returns test cases that launch every kernel of a family, with shapes that are no multiple of the
/// tile. Products with more than 8448 rows or columns have large tiles.
#[allow(clippy::too_many_lines, reason = "a list")]
fn cases(family: Family) -> Vec<MutationCase> {
    let image = Shape::image(6, 9, 8);
    let kinds: Vec<(LayerKind, Shape, usize)> = match family {
        Family::Activation => activations(),
        Family::Attention => vec![
            (MultiHeadAttention::new(2, true).into(), Shape::sequence(70, 3 * 2 * 5), 1),
            (MultiHeadAttention::new(1, false).into(), Shape::sequence(67, 3 * 70), 1),
            (MultiHeadAttention::new(1, true).into(), Shape::sequence(129, 3 * 8), 1),
            (MultiHeadAttention::new(1, true).with_window(3).into(), Shape::sequence(130, 3 * 5), 1),
            (MultiHeadAttention::new(2, false).into(), Shape::sequence(9, 3 * 2 * 18), 2),
        ],
        Family::BatchNorm => vec![
            (BatchNorm::default().into(), Shape::image(3, 9, 11), 3),
            (BatchNorm::default().into(), Shape::features(260), 5),
            (BatchNorm::default().into(), Shape::image(3, 23, 24), 3),
            (BatchNorm::default().into(), Shape::image(36, 6, 7), 3),
            (BatchNorm::default().into(), Shape::image(37, 2, 7), 2),
        ],
        Family::Convolution => convolutions(),
        Family::Dropout => (17..25)
            .flat_map(|elements| [false, true].map(|of_samples| (elements, of_samples)))
            .map(|(elements, of_samples)| {
                (Dropout { of_samples, ..Dropout::new(0.3) }.into(), Shape::features(elements), 90)
            })
            .collect(),
        Family::Elementwise => vec![
            (LayerKind::Flatten, Shape::image(3, 9, 11), 1),
            (Permute { order: vec![1, 0] }.into(), Shape::sequence(17, 16), 1),
            (Pad { before: [1, 0], after: [2, 3] }.into(), Shape::image(3, 9, 11), 1),
            (Select { index: 1 }.into(), Shape::sequence(3, 99), 1),
            // The biases of a library's convolution.
            (Conv2d::new(3, 1).into(), Shape::image(2, 9, 11), 1),
        ],
        Family::LayerNorm => vec![
            (LayerNorm::default().into(), Shape::sequence(9, 35), 1),
            (LayerNorm::default().into(), Shape::sequence(7, 12), 3),
            (LayerNorm::default().into(), Shape::features(31), 7),
            (RmsNorm::new(1e-5).into(), Shape::sequence(9, 35), 1),
            (RmsNorm { epsilon: 1e-5, unit_offset: true }.into(), Shape::sequence(7, 12), 3),
            (RmsNorm::new(1e-5).into(), Shape::features(31), 7),
            (GroupNorm::new(3).into(), Shape::image(6, 13, 17), 3),
            (GroupNorm::new(2).into(), Shape::image(4, 5, 7), 3),
        ],
        Family::ResponseNorm => {
            vec![(LocalResponseNorm { size: 4, alpha: 0.5, beta: 0.75, k: 1.5 }.into(), image, 1)]
        }
        Family::Loss => vec![
            (LayerKind::CROSS_ENTROPY, Shape::sequence(35, 37), 3),
            (SoftmaxCrossEntropy::smoothed(0.3).into(), Shape::features(3), 300),
            (SoftmaxCrossEntropy::ignoring(2).into(), Shape::sequence(5, 3), 60),
            (LayerKind::CROSS_ENTROPY, Shape::features(3), 300),
            (ElementwiseLoss::MeanSquaredError.into(), Shape::features(35), 37),
            (ElementwiseLoss::BinaryCrossEntropy.into(), Shape::features(35), 37),
            (ElementwiseLoss::BinaryCrossEntropy.into(), Shape::features(17), 9),
        ],
        Family::MatrixProduct => vec![
            (Linear::new(72).into(), Shape::sequence(35, 68), 2),
            (Linear::new(67).into(), Shape::features(35), 66),
            (Linear::new(3).without_bias().into(), Shape::features(5), 530),
            (Linear::new(20).into(), Shape::sequence(4228, 20), 2),
            (Linear::new(8).into(), Shape::features(8451), 18),
        ],
        Family::AdditiveAttention | Family::Optimizer | Family::Recurrence | Family::Experts => Vec::new(),
        Family::Pooling => vec![
            (LayerKind::MaxPool2d(Pool2d::new(3, 2).padding(1)), Shape::image(2, 9, 8), 2),
            (LayerKind::MaxPool2d(Pool2d::new(3, 1).extra_padding([1, 2])), Shape::image(2, 5, 6), 3),
            (LayerKind::AvgPool2d(Pool2d::new(3, 2).padding(1)), Shape::image(2, 9, 8), 2),
            (LayerKind::AvgPool2d(Pool2d::new(2, 3).without_counting_padding()), Shape::image(2, 9, 8), 2),
            (AdaptiveAvgPool2d { output: [4, 3] }.into(), Shape::image(3, 9, 11), 1),
        ],
        Family::Sequence => vec![
            (Embedding::new(20, 300).into(), Shape::features(300), 1),
            (Embedding::new(3, 255).into(), Shape::features(256), 1),
            (PositionEmbedding { first: 7, ..PositionEmbedding::new(30) }.into(), Shape::sequence(9, 13), 3),
            (
                RotaryEmbedding { first: 3, rotated: Some(6), ..RotaryEmbedding::new(10, 100.0) }.into(),
                Shape::sequence(9, 30),
                3,
            ),
            (LayerKind::ClassToken, Shape::sequence(3, 290), 3),
        ],
    };
    let layers =
        kinds.into_iter().map(|(kind, shape, samples)| MutationCase::Layer(layer(kind, shape), samples));
    layers.chain(kernel_cases(family)).chain(other_layers(family)).collect()
}

/// Returns layers that launch every kernel of the family of activations.
fn activations() -> Vec<(LayerKind, Shape, usize)> {
    vec![
        (LayerKind::Relu, Shape::features(300), 1),
        (LayerKind::Gelu, Shape::features(300), 1),
        (LayerKind::GeluTanh, Shape::features(300), 1),
        (LayerKind::QuickGelu, Shape::features(300), 1),
        (LayerKind::Relu6, Shape::features(300), 1),
        (LeakyRelu::default().into(), Shape::features(300), 1),
        (LayerKind::HardSigmoid, Shape::features(300), 1),
        (LayerKind::HardSwish, Shape::features(300), 1),
        (LayerKind::Silu, Shape::features(300), 1),
        (LayerKind::Sigmoid, Shape::features(300), 1),
        (LayerKind::Tanh, Shape::features(300), 1),
        (LayerKind::Multiply, Shape::features(300), 1),
        (Scale::Constant(0.3).into(), Shape::features(300), 1),
        (Scale::Channels.into(), Shape::image(3, 7, 9), 2),
        (Scale::Features.into(), Shape::sequence(9, 13), 33),
        (LayerKind::Softmax, Shape::sequence(9, 35), 1),
        (LayerKind::Softmax, Shape::sequence(9, 31), 1),
    ]
}

/// Returns convolutions that launch every kernel of their family.
fn convolutions() -> Vec<(LayerKind, Shape, usize)> {
    let image = Shape::image(6, 9, 8);
    vec![
        (Conv2d::new(5, 3).padding(1).into(), image.clone(), 2),
        (Conv2d::new(66, 3).padding(1).into(), Shape::image(8, 6, 6), 2),
        (Conv2d::rectangular(6, [2, 3]).padding_hw([0, 1]).stride(2).groups(3).into(), image, 2),
        (Conv2d::new(9, 1).into(), Shape::image(68, 6, 6), 2),
        (Conv2d::new(5, 3).dilation(2).stride(4).padding(3).into(), Shape::image(3, 11, 12), 2),
        (ConvTranspose2d::new(5, 3, 2).into(), Shape::image(3, 5, 6), 2),
        (Conv2d::new(2, 2).without_bias().into(), Shape::image(3, 17, 19), 2),
        (Conv2d::new(20, 1).into(), Shape::image(20, 28, 151), 2),
        (Conv2d::new(8, 3).padding(1).into(), Shape::image(939, 3, 6), 1),
    ]
}

/// Returns layers of a family that have several inputs, are parts of others, or are recurrences.
fn other_layers(family: Family) -> impl Iterator<Item = MutationCase> {
    let of_attention = attentions_of_three_inputs(family).into_iter().chain(dropout_parts(family));
    let of_attention = of_attention.chain(additive_attentions(family));
    let others = mixtures_of_experts(family).into_iter().chain(channel_products(family));
    of_attention.chain(recurrences(family)).chain(others)
}

/// Returns mixtures of experts with every activation, with a gate and without, of which some drop
/// positions.
fn mixtures_of_experts(family: Family) -> Vec<MutationCase> {
    if family != Family::Experts {
        return Vec::new();
    }
    let case = |rule: MixtureOfExperts, [positions, features]: [usize; 2], samples| {
        let mut graph = LayerGraph::new("test", Shape::sequence(positions, features)).unwrap();
        let scores = graph.add_input("scores", Shape::sequence(positions, rule.experts)).unwrap();
        let id = graph.add("layer", rule, [graph.input(), scores]).unwrap();
        MutationCase::Layer(graph.layer(id).clone(), samples)
    };
    let ungated = |activation, [experts, chosen, width]: [usize; 3]| MixtureOfExperts {
        activation,
        gated: false,
        normalised: false,
        ..MixtureOfExperts::new(experts, chosen, width)
    };
    let limited = |rule, capacity| MixtureOfExperts { capacity: Some(capacity), ..rule };
    vec![
        case(MixtureOfExperts::new(5, 2, 33), [9, 35], 2),
        case(limited(MixtureOfExperts::new(3, 2, 2), 4), [87, 3], 3),
        case(limited(ungated(ExpertActivation::Relu, [130, 3, 5]), 1), [2, 3], 2),
        case(ungated(ExpertActivation::Gelu, [3, 1, 2]), [150, 2], 2),
        case(ungated(ExpertActivation::GeluTanh, [2, 2, 7]), [3, 65], 1),
    ]
}

/// Returns additive attentions with fewer and with more keys, units and features than a block has
/// warps, a warp has lanes, and a block has threads.
fn additive_attentions(family: Family) -> Vec<MutationCase> {
    if family != Family::AdditiveAttention {
        return Vec::new();
    }
    let case = |rule: AdditiveAttention, [positions, keys]: [usize; 2], [units, features]: [usize; 2]| {
        let mut graph = LayerGraph::new("test", Shape::sequence(positions, units)).unwrap();
        let of_keys = graph.add_input("keys", Shape::sequence(keys, units)).unwrap();
        let values = graph.add_input("values", Shape::sequence(keys, features)).unwrap();
        let id = graph.add("layer", rule, [graph.input(), of_keys, values]).unwrap();
        MutationCase::Layer(graph.layer(id).clone(), 2)
    };
    vec![
        case(AdditiveAttention::normalised(), [9, 9], [33, 7]),
        case(AdditiveAttention::new(), [2, 9], [293, 33]),
        case(AdditiveAttention::normalised(), [2, 3], [297, 258]),
        case(AdditiveAttention::new(), [1, 258], [2, 3]),
    ]
}

/// Returns recurrences with fewer and with more units than a block has threads, and with more
/// samples than a block has.
fn recurrences(family: Family) -> Vec<MutationCase> {
    if family != Family::Recurrence {
        return Vec::new();
    }
    let case = |rule: Recurrence, positions: usize, width: usize, samples: usize| {
        let shape = Shape::sequence(positions, rule.cell.gates() * width);
        MutationCase::Layer(layer(rule.into(), shape), samples)
    };
    [RecurrentCell::Lstm, RecurrentCell::Gru]
        .into_iter()
        .flat_map(|cell| {
            let rule = Recurrence { bias: false, ..Recurrence::new(cell) };
            let with_bias = || Recurrence::new(cell);
            [
                case(with_bias(), 3, 35, 7),
                case(rule, 2, 1, 4),
                case(with_bias().reversed(), 3, 9, 5),
                case(with_bias(), 2, 5, 6),
                case(with_bias(), 2, 257, 4),
            ]
        })
        .collect()
}

/// Returns products with one number a channel, with fewer and with more pixels than a warp has
/// lanes.
fn channel_products(family: Family) -> Vec<MutationCase> {
    if family != Family::Activation {
        return Vec::new();
    }
    let product = |(channels, height, width): (usize, usize, usize)| {
        let mut graph = LayerGraph::new("test", Shape::image(channels, height, width)).unwrap();
        let mean = AdaptiveAvgPool2d { output: [1, 1] };
        let factors = graph.add("factors", mean, [graph.input()]).unwrap();
        let id = graph.add("layer", LayerKind::Multiply, [graph.input(), factors]).unwrap();
        MutationCase::Layer(graph.layer(id).clone(), 3)
    };
    [(3, 5, 7), (5, 2, 4)].map(product).into()
}

/// Returns a layer of this kind, whose inputs have this shape.
fn layer(kind: LayerKind, shape: Shape) -> Layer {
    let mut graph = LayerGraph::new("test", shape).unwrap();
    let inputs = if kind == LayerKind::Multiply { 2 } else { 1 };
    let id = graph.add("layer", kind, vec![graph.input(); inputs]).unwrap();
    graph.layer(id).clone()
}

/// Returns attentions of queries, keys and values, with shared keys and with other numbers of keys
/// than of queries.
fn attentions_of_three_inputs(family: Family) -> Vec<MutationCase> {
    if family != Family::Attention {
        return Vec::new();
    }
    let case = |rule: MultiHeadAttention, [positions, key_positions]: [usize; 2], key_features, samples| {
        let mut graph = LayerGraph::new("test", Shape::sequence(positions, rule.heads * 5)).unwrap();
        let mut keys = graph.input();
        let transpose = || LayerKind::from(Permute { order: vec![1, 0] });
        let kinds =
            [transpose(), Linear::new(key_positions).into(), transpose(), Linear::new(key_features).into()];
        for (index, kind) in kinds.into_iter().enumerate() {
            keys = graph.add(format!("keys{index}"), kind, [keys]).unwrap();
        }
        let mut inputs = vec![graph.input(), keys, keys];
        if rule.padding {
            let flat = graph.add("flat", LayerKind::Flatten, [keys]).unwrap();
            inputs.push(graph.add("padding", Linear::new(key_positions), [flat]).unwrap());
        }
        let id = graph.add("layer", rule, inputs).unwrap();
        MutationCase::Layer(graph.layer(id).clone(), samples)
    };
    let relative = |rule: MultiHeadAttention| rule.with_relative_positions(RelativePositions::new(12, 40));
    vec![
        case(MultiHeadAttention::new(4, true).with_dropout(0.3), [70, 70], 2 * 5, 1),
        case(MultiHeadAttention::new(2, false), [9, 67], 5, 2),
        case(MultiHeadAttention::new(3, false), [67, 9], 3 * 5, 1),
        case(relative(MultiHeadAttention::new(2, false)), [67, 9], 5, 2),
        case(relative(MultiHeadAttention::new(4, true)), [66, 66], 2 * 5, 1),
        case(MultiHeadAttention::new(3, false).with_alibi(LinearBiases::new(3)), [9, 67], 3 * 5, 1),
        case(MultiHeadAttention::new(2, true).with_padding(), [70, 70], 5, 2),
    ]
}

/// Returns the last parts of dropouts that are split by features, and of attentions with dropout
/// that are split by heads. Their ranges of random numbers begin and end within blocks of eight.
fn dropout_parts(family: Family) -> Vec<MutationCase> {
    if family != Family::Dropout {
        return Vec::new();
    }
    let part = |features: usize| {
        let mut graph = LayerGraph::new("test", Shape::sequence(3, features)).unwrap();
        let id = graph.add("layer", Dropout::new(0.3), [graph.input()]).unwrap();
        let division = Division { split: Split::Features, parts: 2 };
        MutationCase::Layer(NetworkSplits::new(&graph).part(id, division, 1).unwrap().layer, 90)
    };
    let part_of_attention = |positions: usize| {
        let mut graph = LayerGraph::new("test", Shape::sequence(positions, 3 * 6)).unwrap();
        let id = graph.add("heads", Linear::new(3 * 6), [graph.input()]).unwrap();
        let id = graph.add("layer", MultiHeadAttention::new(3, false).with_dropout(0.3), [id]).unwrap();
        let division = Division { split: Split::Features, parts: 2 };
        MutationCase::Layer(NetworkSplits::new(&graph).part(id, division, 1).unwrap().layer, 9)
    };
    (19..35).map(part).chain((9..14).map(part_of_attention)).collect()
}

/// Returns test cases of kernels that are no pass of a layer.
fn kernel_cases(family: Family) -> Vec<MutationCase> {
    let mut all = Vec::new();
    if family == Family::BatchNorm {
        use Pass::{BackwardMoments, Forward};
        let [forward, backward] = [Some(Rectifier::Forward), Some(Rectifier::Backward)];
        for (pass, terms, rectifier, copies) in [
            (Forward, 0, forward, 1),
            (Forward, 1, None, 1),
            (Forward, 1, forward, 1),
            (BackwardMoments, 1, backward, 1),
            (BackwardMoments, 2, None, 2),
            (BackwardMoments, 4, backward, 4),
        ] {
            for shape in [Shape::image(2, 23, 24), Shape::image(36, 6, 7)] {
                let norm = layer(BatchNorm::default().into(), shape);
                all.push(MutationCase::Chain(norm, pass, terms, rectifier, copies));
            }
        }
    }
    if family == Family::Elementwise {
        for terms in [4, 7] {
            let spec = KernelSpec::Sum { terms, elements: 300 };
            all.push(MutationCase::Kernel(spec, vec![300; terms], vec![300]));
        }
        all.push(MutationCase::Kernel(KernelSpec::Add { elements: 300 }, vec![300], vec![300]));
        // The second range would show if the zero fill of the first were too long or the factor
        // applied too far.
        let factors = vec![(1, 0.0), (1, 1.5)];
        all.push(MutationCase::Kernel(
            KernelSpec::Scale { sample_elements: 300, factors },
            Vec::new(),
            vec![600],
        ));
    }
    if family == Family::Optimizer {
        let rule = Sgd { momentum: 0.5, weight_decay: 0.1, clip_norm: Some(0.1) };
        // Tensors for two launches. They end in each of the four parts of a block.
        let elements = [vec![1300, 600, 900], vec![3; 130]].concat();
        let reads = [&elements[..], &[1]].concat();
        let writes = elements.iter().flat_map(|&elements| [elements; 2]).collect();
        all.push(MutationCase::Kernel(KernelSpec::Sgd { elements, rule }, reads, writes));
        // More blocks than the second kernel has threads, and a partial last block.
        let long = 16 * 256 * 3 + 300;
        all.push(MutationCase::Kernel(KernelSpec::SquaredNorm { elements: vec![long] }, vec![long], vec![1]));
        let many = vec![3; 300];
        all.push(MutationCase::Kernel(KernelSpec::SquaredNorm { elements: many.clone() }, many, vec![1]));
    }
    all
}

type Results = Vec<Vec<f64>>;

/// Runs a case. Returns `None` as soon as a step fails.
fn run<E: Engine<Scalar: Real>>(
    engine: &E,
    case: &MutationCase,
    is_healthy: impl Fn() -> bool,
) -> Option<Results> {
    match case {
        MutationCase::Layer(layer, samples) => run_layer(engine, layer, *samples, is_healthy),
        MutationCase::Kernel(spec, reads, writes) => run_kernel(engine, spec, reads, writes, is_healthy),
        MutationCase::Chain(..) => None,
    }
}

/// Runs a case on a GPU. Returns `None` as soon as a step fails.
fn run_on_gpu(engine: &CudaEngine, case: &MutationCase, is_healthy: impl Fn() -> bool) -> Option<Results> {
    let &MutationCase::Chain(ref layer, pass, terms, rectifier, copies) = case else {
        return run(engine, case, is_healthy);
    };
    let norm = ChainNorm { layer, pass, samples: 3 };
    let (signature, elements) = (norm.signature()?, Role::Output.elements(layer, 3));
    let storage = Storage::Scalar;
    let chain = ElementwiseChain { elements, storage, terms, rectifier, copies, norm: Some(norm) };
    let mut kernel = engine.prepare_chain(&chain).ok()?;
    let (mut queue, gates) = (engine.queue().unwrap(), usize::from(rectifier == Some(Rectifier::Backward)));
    let mut operands = |roles: &[Role], count| -> Vec<_> {
        let lengths = roles.iter().map(|role| role.elements(layer, 3));
        let lengths = lengths.chain(std::iter::repeat_n(elements, count));
        (1..).zip(lengths).map(|(salt, length)| upload(engine, &numbers(salt, length), &mut queue)).collect()
    };
    let reads = operands(&signature.reads, terms + gates);
    let mut written = operands(&signature.writes, copies);
    let (reads, mut targets): (Vec<_>, Vec<_>) = (reads.iter().collect(), written.iter_mut().collect());
    engine.enqueue(&mut kernel, &reads, &mut targets, &CONTEXT, &mut queue).ok()?;
    is_healthy()
        .then(|| written.iter().map(|buffer| download(engine, buffer, buffer.len(), &mut queue)).collect())
}

/// Returns the orders of images' elements that have GPU functions of their own in a family.
fn layouts(family: Family) -> &'static [ImageLayout] {
    match family {
        Family::BatchNorm | Family::Convolution | Family::Dropout | Family::LayerNorm | Family::Pooling => {
            &[ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast]
        }
        _ => &[ImageLayout::ChannelsFirst],
    }
}

/// Returns the results of a case: of the processor's engine, or of an engine without a mutation.
fn expected(case: &MutationCase, layout: ImageLayout) -> Results {
    let results = match case {
        MutationCase::Chain(..) => {
            let _emulator = Emulator::new().unwrap();
            let driver = Driver::open_first_of(&[Emulator::library().unwrap()]).unwrap();
            let engine = CudaEngine::on(&driver.context(0).unwrap()).with_image_layout(layout);
            run_on_gpu(&engine, case, || true)
        }
        _ => run(&CpuEngine::<f32>::new(), case, || true),
    };
    results.unwrap()
}

fn run_kernel<E: Engine<Scalar: Real>>(
    engine: &E,
    spec: &KernelSpec<'_>,
    reads: &[usize],
    writes: &[usize],
    is_healthy: impl Fn() -> bool,
) -> Option<Results> {
    let mut queue = engine.queue().unwrap();
    // Values are positive, as squared norms are.
    let mut upload_numbers = |offset: u64, lengths: &[usize]| -> Vec<E::Buffer> {
        let values = (offset..).zip(lengths).map(|(salt, &length)| numbers(salt, length));
        let values = values.map(|values| values.iter().map(|value| value.abs()).collect::<Vec<_>>());
        values.map(|values| upload(engine, &values, &mut queue)).collect()
    };
    let (reads, mut written) = (upload_numbers(1, reads), upload_numbers(50, writes));
    let mut kernel = engine.prepare(spec, Precision::F32).ok()?;
    let reads: Vec<_> = reads.iter().collect();
    let mut targets: Vec<_> = written.iter_mut().collect();
    engine.enqueue(&mut kernel, &reads, &mut targets, &CONTEXT, &mut queue).ok()?;
    if !is_healthy() {
        return None;
    }
    let lengths = written.iter().zip(writes);
    Some(lengths.map(|(buffer, &length)| download(engine, buffer, length, &mut queue)).collect())
}

fn run_layer<E: Engine<Scalar: Real>>(
    engine: &E,
    layer: &Layer,
    samples: usize,
    is_healthy: impl Fn() -> bool,
) -> Option<Results> {
    let mut run = LayerRun::new(engine, Precision::F32, layer, Shard { first: 5, samples });
    let mut results = Vec::new();
    for pass in [Pass::forward(layer), Pass::backward(layer, true), &[Pass::Infer]].concat() {
        if pass == Pass::Infer {
            results.extend(run.results().into_iter().map(|role| run.values(role)).collect::<Vec<_>>());
        }
        run.run(pass).ok()?;
        if !is_healthy() {
            return None;
        }
    }
    results.push(run.values(Role::Output));
    for pass in [Pass::ForwardInPlace, Pass::BackwardInPlace] {
        let Some(signature) = Signature::of(layer, pass) else { break };
        run.run(pass).ok()?;
        if !is_healthy() {
            return None;
        }
        results.extend(signature.writes.into_iter().map(|role| run.values(role)).collect::<Vec<_>>());
    }
    Some(results)
}

/// Returns whether a run with all checks reveals the mutation.
fn is_detected(family: Family, ptx: &str, expected: &[&(MutationCase, ImageLayout, Results)]) -> bool {
    expected.iter().zip(0_i64..).any(|((case, layout, expected), order)| {
        let emulator = Emulator::new().unwrap();
        emulator.set(Setting::RaceCheck, 1);
        emulator.set(Setting::OrderSeed, order);
        emulator.set(Setting::WatchdogInstructions, 3_000_000);
        let driver = Driver::open_first_of(&[Emulator::library().unwrap()]).unwrap();
        // Biases beside a library's convolution.
        let with_library = family == Family::Elementwise || *layout == ImageLayout::ChannelsLast;
        let choice = if with_library { KernelChoice::Vendor } else { KernelChoice::Own };
        let engine = CudaEngine::on(&driver.context(0).unwrap());
        let engine = engine.with_choice(choice).with_image_layout(*layout);
        let Ok(module) = Module::load(engine.context(), ptx) else { return true };
        engine.device.modules.lock().unwrap().insert((family, Storage::Scalar), module);
        let is_healthy = || {
            emulator.advance(Duration::from_secs(1));
            emulator.faults().is_empty()
        };
        let Some(got) = run_on_gpu(&engine, case, is_healthy) else { return true };
        got.iter().zip(expected).any(|(got, expected)| {
            // NaN fails both comparisons.
            !(distance(got, expected) <= 1e-5 || largest_difference(got, expected) <= 1e-6)
        })
    })
}

const FAMILIES: [Family; 16] = [
    Family::Activation,
    Family::AdditiveAttention,
    Family::Attention,
    Family::BatchNorm,
    Family::Convolution,
    Family::Dropout,
    Family::Elementwise,
    Family::Experts,
    Family::LayerNorm,
    Family::ResponseNorm,
    Family::Loss,
    Family::MatrixProduct,
    Family::Optimizer,
    Family::Pooling,
    Family::Recurrence,
    Family::Sequence,
];

#[test]
fn every_mutation_is_detected_or_listed() {
    let with_tiles = std::env::var("CUDA_ENGINE_MUTATIONS").is_ok_and(|wanted| wanted == "1");
    let (mut count, mut undetected) = (0, BTreeSet::new());
    for family in FAMILIES {
        let mut all = Vec::new();
        for case in cases(family) {
            for &layout in layouts(family) {
                let results = expected(&case, layout);
                all.push((case.clone(), layout, results));
            }
        }
        assert!(
            !is_detected(family, family.ptx(Storage::Scalar), &all.iter().collect::<Vec<_>>()),
            "{family:?} is wrong without a change"
        );
        let in_tiles = works_in_tiles(family);
        for Mutation { place, ptx } in mutations(family, with_tiles) {
            count += 1;
            // GPU functions of a family are for both orders, or each is for one of them.
            let is_last = place.0.ends_with("_last");
            let is_first = matches!(family, Family::BatchNorm | Family::Convolution) && !is_last;
            let launches = |layout| match layout {
                ImageLayout::ChannelsFirst => !is_last,
                ImageLayout::ChannelsLast => !is_first,
            };
            let cases: Vec<_> = all.iter().filter(|(_, layout, _)| launches(*layout)).collect();
            if !is_detected(family, &ptx, &cases) {
                if (in_tiles || is_last) && !place.1.starts_with("barrier") {
                    println!("not found: {place:?}");
                } else {
                    undetected.insert(place);
                }
            }
        }
    }
    println!("{count} changes, of which {} are not found outside of tiles", undetected.len());
    let harmless: BTreeSet<_> = HARMLESS
        .iter()
        .flat_map(|(kernel, _, results)| {
            results.split(' ').map(|result| ((*kernel).to_owned(), result.to_owned()))
        })
        .collect();
    let unexplained: Vec<_> = undetected.difference(&harmless).collect();
    let found: Vec<_> = harmless.difference(&undetected).collect();
    assert!(
        unexplained.is_empty() && found.is_empty(),
        "changed without being found: {unexplained:?}; listed as harmless, but found: {found:?}"
    );
}

/// Comparisons that can be moved by one without a difference: kernel, reason, registers of the
/// results.
const HARMLESS: &[(&str, &str, &str)] = &[
    ("additive_forward", "in the copy for no keys", "%p47"),
    ("additive_key_value_gradient", "in the copy for no queries", "%p17"),
    ("additive_vector_gradient", "another thread writes the element after the last one later", "%p27"),
    ("avg_pool_backward", "where both are equal, the first window is 0 either way", "%p3 %p9"),
    ("avg_pool_forward", "in the copy for windows that are even along one axis alone", "%p8 %p11 %p24"),
    (
        "batch_norm_gradient_moments",
        "a second round needs 256 slices, of a quarter of a million values",
        "%p54",
    ),
    ("batch_norm_moments", "a second round needs 256 slices, of a quarter of a million values", "%p33"),
    ("cross_entropy_positions", "of equal numbers the smaller is either", "%p11"),
    (
        "cross_entropy_positions",
        "in the logarithm, at limits of its argument that no sum has",
        "%p41 %p42 %p44",
    ),
    ("elementwise_loss_samples", "the argument of the logarithm is between 1 and 2", "%p5"),
    (
        "dropout",
        "in the copy for whole samples, where an element beyond the last is another one of the sample",
        "%p5 %p7 %p9 %p11 %p13 %p15 %p17 %p19",
    ),
    ("embedding_gradient", "a round more finds no token", "%p15"),
    ("experts_choose", "in the copy for no experts", "%p17"),
    ("experts_factor_gradient", "no expert has the number after the last one", "%p2"),
    ("experts_first_gradient", "the gradients of the second product are written over it", "%p2"),
    ("experts_inner", "no expert has the number after the last one", "%p3"),
    ("experts_input_gradient", "no expert has the number after the last one", "%p5"),
    ("experts_limit", "a sample has a position", "%p2"),
    ("experts_output", "no expert has the number after the last one", "%p3"),
    ("experts_score_gradient", "a position has an expert", "%p6"),
    ("gru_gradient", "the gradient of a memory, which it does not have, is written", "%p15"),
    ("gru_gradient", "in the copy for no gates", "%p16"),
    ("lstm_gradient", "in the copy for no gates", "%p20"),
    ("max_pool_backward", "where both are equal, the first window is 0 either way", "%p3 %p8 %p19"),
    ("max_pool_backward", "in the copy for even windows, which are not of this kind", "%p14 %p17 %p22 %p25"),
    ("max_pool_forward", "a window has an element along each axis", "%p8 %p9"),
    ("response_norm_forward", "an element has itself as a neighbour", "%p2"),
    ("response_norm_input_gradient", "an element has itself as a neighbour", "%p2"),
    ("response_norm_ratios", "an element has itself as a neighbour", "%p2"),
];
