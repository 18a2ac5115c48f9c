//! Every kind of layer, compared with the CPU engine.

use layer_engine::{CpuEngine, Pass, Precision, Real, Role, Shard, Signature, TorchDevice, TorchEngine};
use layer_graph::{BatchNorm, Conv2d, Layer, LayerKind, LayerNorm, Linear, MultiHeadAttention, Shape, zoo};
use proptest::prelude::*;
use rayon::prelude::*;

use crate::any_engine::{LayerRun, check_loss_in_place, distance, largest_difference, losses};
use crate::layer_cases::{attention_of_three_inputs, layers, pool, transposed_conv, window};
use crate::single_layer::layer;

/// Sizes of shards: empty, and large enough that a batch normalisation is not a step function.
const SAMPLES: [usize; 3] = [0, 4, 9];

/// Returns the available devices. With `GPU_REQUIRED=1`, a missing GPU is an error.
fn devices() -> Vec<TorchDevice> {
    let mut devices = vec![TorchDevice::Cpu];
    match TorchEngine::<f32>::new(TorchDevice::Cuda(0)) {
        Ok(_) => devices.push(TorchDevice::Cuda(0)),
        Err(error) if std::env::var("GPU_REQUIRED").is_ok_and(|value| value == "1") => panic!("{error}"),
        Err(_) => println!("SKIPPED: no CUDA device"),
    }
    devices
}

/// Runs a training step on both engines, with and without the input gradient. Every result must be
/// within `bound` by norm, or within a hundredth of it by element: the gradients of the query and
/// the key of an attention to one position consist of rounding errors only. Returns the largest
/// distance.
fn compare<T: Real>(
    torch: &TorchEngine<T>,
    precision: Precision,
    layer: &Layer,
    shard: Shard,
    bound: f64,
) -> f64 {
    let steps = [true, false].map(|wants| compare_step(torch, precision, layer, shard, bound, wants));
    steps[0].max(steps[1])
}

fn compare_step<T: Real>(
    torch: &TorchEngine<T>,
    precision: Precision,
    layer: &Layer,
    shard: Shard,
    bound: f64,
    input_gradient: bool,
) -> f64 {
    let cpu = CpuEngine::<T>::with_threads(2).unwrap();
    let mut worst = 0.0f64;
    let mut expected = LayerRun::new(&cpu, T::PRECISION, layer, shard);
    let mut got = LayerRun::new(torch, precision, layer, shard);
    expected.step(input_gradient);
    got.step(input_gradient);
    for recomputes in [false, true] {
        if recomputes && Signature::of(layer, Pass::Recompute).is_some() {
            got.recompute_step(input_gradient);
        }
        for role in expected.results() {
            let (got, expected) = (got.values(role), expected.values(role));
            let distance = distance(&got, &expected);
            if distance <= bound {
                worst = worst.max(distance);
                continue;
            }
            assert!(
                largest_difference(&got, &expected) <= bound / 100.0,
                "{layer:?} of {shard:?}: {role:?} is {distance:.1e} from the CPU engine's"
            );
        }
    }
    if Signature::of(layer, Pass::Infer).is_some() {
        expected.run(Pass::Infer).unwrap();
        got.run(Pass::Infer).unwrap();
        let distance = distance(&got.values(Role::Output), &expected.values(Role::Output));
        assert!(
            distance <= bound,
            "{layer:?}: evaluated, the output is {distance:.1e} from the CPU engine's"
        );
    }
    worst
}

/// Compares on the CPU in double precision, where rounding is negligible, and in single precision.
fn check(layer: &Layer, samples: usize) {
    let shard = Shard { first: 5, samples };
    compare(&TorchEngine::<f64>::new(TorchDevice::Cpu).unwrap(), Precision::F64, layer, shard, 1e-9);
    compare(&TorchEngine::<f32>::new(TorchDevice::Cpu).unwrap(), Precision::F32, layer, shard, 1e-4);
}

#[test]
fn layers_match_cpu_engine() {
    for layer in layers() {
        for samples in SAMPLES {
            check(&layer, samples);
        }
    }
}

#[test]
fn layers_on_a_gpu_match_cpu_engine() {
    for device in devices().into_iter().skip(1) {
        let torch = TorchEngine::<f32>::new(device).unwrap();
        for layer in layers() {
            for samples in SAMPLES {
                compare(&torch, Precision::F32, &layer, Shard { first: 5, samples }, 1e-4);
            }
        }
    }
}

/// Returns whether a layer of this kind has products, which 16-bit precision rounds.
fn rounds(kind: &LayerKind) -> bool {
    use LayerKind as K;
    matches!(kind, K::Conv2d(_) | K::ConvTranspose2d(_) | K::Linear(_))
        || matches!(kind, K::MultiHeadAttention(_) | K::AdditiveAttention(_))
        || matches!(kind, K::Recurrence(_) | K::MixtureOfExperts(_))
}

/// Returns the maximum distance of a layer from the CPU engine's results. In 16 bits, factors and
/// results have eight significant bits, so each is off by up to 2^-9. Between the products of
/// experts, rounding may change the sign of a rectifier's argument.
fn bound(kind: &LayerKind, precision: Precision) -> f64 {
    match kind {
        LayerKind::MixtureOfExperts(_) if precision == Precision::Bf16 => 6e-2,
        kind if precision == Precision::Bf16 && rounds(kind) => 2e-2,
        _ => 1e-4,
    }
}

/// The same for convolutions in single precision by cuDNN, whose fast algorithms (Winograd) round
/// more. The largest observed distance is 6.6e-4, for the weight gradient of a 5 x 5 kernel.
const CUDNN_BOUND: f64 = 2e-3;

#[test]
fn bf16_rounds_products_only() {
    for device in devices() {
        let torch = TorchEngine::<f32>::new(device).unwrap();
        for layer in layers() {
            let bound = bound(layer.kind(), Precision::Bf16);
            let worst = compare(&torch, Precision::Bf16, &layer, Shard::whole(4), bound);
            assert!(!rounds(layer.kind()) || worst > 1e-4, "{layer:?} was not rounded: {worst:.1e}");
        }
    }
}

/// With this number of terms, sums that were rounded to 16 bits on the way would be off by far more
/// than the bound.
#[test]
fn bf16_sums_in_single_precision() {
    const TERMS: usize = 1 << 14;
    let layer = layer(Linear::new(5), &[Shape::features(TERMS)]);
    for device in devices() {
        let torch = TorchEngine::<f32>::new(device).unwrap();
        compare(&torch, Precision::Bf16, &layer, Shard::whole(4), 8e-3);
    }
}

#[test]
fn loss_in_place_matches_its_ordinary_passes_bitwise() {
    for device in devices() {
        let torch = TorchEngine::<f32>::new(device).unwrap();
        for layer in losses() {
            for samples in SAMPLES {
                check_loss_in_place(&torch, Precision::F32, &layer, Shard { first: 5, samples });
            }
        }
    }
}

#[test]
fn batch_norm_accepts_reduced_moments() {
    let layer = layer(BatchNorm::default(), &[Shape::image(3, 4, 5)]);
    let (cpu, torch) = (CpuEngine::<f64>::new(), TorchEngine::<f64>::new(TorchDevice::Cpu).unwrap());
    let shard = Shard::whole(3);
    let mut expected = LayerRun::new(&cpu, Precision::F64, &layer, shard);
    let mut got = LayerRun::new(&torch, Precision::F64, &layer, shard);
    let steps = [
        (Pass::ForwardMoments, Role::Moments, Pass::Forward),
        (Pass::BackwardMoments, Role::GradientMoments, Pass::Backward),
    ];
    for (before, moments, after) in steps {
        expected.run(before).unwrap();
        got.run(before).unwrap();
        // Multiplies the sums as if another rank's shard had twice these sums.
        let sums: Vec<f64> = expected.values(moments).into_iter().map(|sum| 3.0 * sum).collect();
        expected.set(moments, &sums);
        got.set(moments, &sums);
        expected.run(after).unwrap();
        got.run(after).unwrap();
    }
    for role in [Role::Output, Role::Statistics, Role::InputGradient(0), Role::ParameterGradient] {
        let distance = distance(&got.values(role), &expected.values(role));
        assert!(distance < 1e-12, "{role:?}: {distance:.1e}");
    }
}

/// Compares every layer of the zoo once, those with products in both precisions, on the GPU if
/// there is one. Takes minutes.
/// Number of elements of an input or output of a sample, or of parameters, from which a layer is
/// compared alone.
const LARGE_LAYER: usize = 10_000_000;

#[test]
#[ignore = "takes minutes: run with --include-ignored"]
fn zoo_layers_match_cpu_engine() {
    let device = devices().pop().unwrap();
    let torch = TorchEngine::<f32>::new(device).unwrap();
    let mut seen: Vec<(LayerKind, Vec<Shape>)> = Vec::new();
    let mut layers: Vec<(&str, Layer, Precision)> = Vec::new();
    // A layer of Llama takes 25 GB.
    for name in zoo::names().into_iter().filter(|name| *name != "llama-3-8b") {
        for (_, layer) in zoo::model(name).unwrap().computing_layers() {
            let key = (layer.kind().clone(), layer.input_shapes().to_vec());
            if seen.contains(&key) || matches!(layer.kind(), LayerKind::Opaque(_)) {
                continue;
            }
            seen.push(key);
            let precisions = if rounds(layer.kind()) { 2 } else { 1 };
            for precision in [Precision::F32, Precision::Bf16].into_iter().take(precisions) {
                layers.push((name, layer.clone(), precision));
            }
        }
    }
    let compare = |(name, layer, precision): &(&str, Layer, Precision)| {
        let is_chosen_by_cudnn = device != TorchDevice::Cpu && matches!(layer.kind(), LayerKind::Conv2d(_));
        let bound = bound(layer.kind(), *precision).max(if is_chosen_by_cudnn { CUDNN_BOUND } else { 0.0 });
        let distance = compare_step(&torch, *precision, layer, Shard::whole(2), bound, true);
        (distance / bound, format!("{} of {name} in {precision:?}, {distance:.1e}", layer.name()))
    };
    // The CPU engine takes most of the time. Large layers run one at a time, for their memory.
    let is_large = |(_, layer, _): &(&str, Layer, Precision)| {
        let inputs = layer.input_shapes().iter().map(Shape::elements);
        inputs.chain([layer.output_shape().elements(), layer.parameter_count()]).max() > Some(LARGE_LAYER)
    };
    let (large, others): (Vec<_>, Vec<_>) = layers.into_iter().partition(is_large);
    let mut distances: Vec<(f64, String)> = others.par_iter().map(compare).collect();
    distances.extend(large.iter().map(compare));
    distances.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!(
        "{device:?}: {} layers; the farthest from the CPU engine's, as a part of what is allowed:",
        seen.len()
    );
    for (part, layer) in &distances[..5] {
        println!("{part:.2} {layer}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn convolutions_match_cpu_engine(
        (image, kernel, stride, padding) in window(),
        groups in 1usize..4,
        channels in [1usize..4, 1usize..4],
        bias: bool,
        samples in 0usize..4,
    ) {
        let plain = Conv2d::rectangular(channels[1] * groups, kernel);
        let kind = Conv2d { stride, padding, groups, bias, ..plain };
        check(&layer(kind, &[Shape::image(channels[0] * groups, image[0], image[1])]), samples);
    }

    #[test]
    fn dilated_and_transposed_convolutions_match_cpu_engine(
        (image, kernel, stride, padding) in window(),
        dilation in [1usize..4, 1usize..4],
        (transposed, shape) in transposed_conv(),
        samples in 0usize..4,
    ) {
        let image = [0, 1].map(|axis| image[axis] + (dilation[axis] - 1) * (kernel[axis] - 1));
        let kind = Conv2d { stride, padding, dilation, ..Conv2d::rectangular(3, kernel) };
        check(&layer(kind, &[Shape::image(2, image[0], image[1])]), samples);
        check(&layer(transposed, &[shape]), samples);
    }

    #[test]
    fn pools_match_cpu_engine(
        (image, kernel, stride, padding) in window(),
        extra in [0usize..3, 0usize..3],
        count_padding: bool,
        mean: bool,
        samples in 0usize..4,
    ) {
        if let Some(layer) = pool((image, kernel, stride, padding), extra, count_padding, mean) {
            check(&layer, samples);
        }
    }

    #[test]
    fn attentions_match_cpu_engine(
        heads in 1usize..4,
        width in 1usize..6,
        positions in 1usize..9,
        causal: bool,
        samples in 0usize..4,
    ) {
        let kind = MultiHeadAttention::new(heads, causal);
        check(&layer(kind, &[Shape::sequence(positions, 3 * heads * width)]), samples);
    }

    #[test]
    fn attentions_of_three_inputs_match_cpu_engine(
        (attention, inputs) in attention_of_three_inputs(),
        samples in 0usize..4,
    ) {
        check(&layer(attention, &inputs), samples);
    }

    #[test]
    fn linears_and_norms_match_cpu_engine(
        positions in 1usize..6,
        inputs in 2usize..20,
        outputs in 1usize..20,
        bias: bool,
        samples in 0usize..4,
    ) {
        let shape = [Shape::sequence(positions, inputs)];
        check(&layer(Linear { out_features: outputs, bias }, &shape), samples);
        check(&layer(LayerNorm { epsilon: 1e-2 }, &shape), samples);
    }
}
