//! Kernels on operands of 16 bits, compared with those of single precision.

use layer_engine::{CpuEngine, Engine, KernelSpec, Pass, Precision, Role, Sgd, Shard, Signature, Storage};
use layer_graph::Layer;
use proptest::prelude::*;

use crate::any_engine::{CONTEXT, LayerRun, distance, losses};
use crate::layer_cases::layers;
use crate::single_layer::numbers;

/// Maximum relative difference of results, by norm.
const BOUND: f64 = 1e-2;

/// Returns the values as a buffer of 16 bits holds them.
fn rounded(values: &[f64]) -> Vec<f64> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    let packed = Storage::Bf16.pack(&values);
    Storage::Bf16.unpack(&packed, values.len()).iter().map(|&value| f64::from(value)).collect()
}

/// A forward pass computes as in single precision and rounds its output once. Gradients differ
/// where the backward pass reads the rounded output.
#[test]
fn layers_match_single_precision_on_rounded_inputs() {
    let engine = CpuEngine::<f32>::new();
    for layer in layers() {
        let shard = Shard { first: 5, samples: 3 };
        for input_gradient in [true, false] {
            let mut expected = LayerRun::new(&engine, Precision::F32, &layer, shard);
            let mut got = LayerRun::new(&engine, Precision::Bf16, &layer, shard);
            for role in Signature::of(&layer, Pass::Backward).unwrap().reads {
                if matches!(role, Role::Input(_) | Role::Parameters | Role::OutputGradient) {
                    expected.set(role, &got.values(role));
                }
            }
            for role in Signature::of(&layer, Pass::Infer).unwrap().reads {
                expected.set(role, &got.values(role));
            }
            expected.step(input_gradient);
            got.step(input_gradient);
            let output = expected.values(Role::Output);
            let output = if layer.kind().is_loss() { output } else { rounded(&output) };
            assert_eq!(got.values(Role::Output), output, "{layer:?}");
            if Signature::of(&layer, Pass::Recompute).is_some() {
                got.recompute_step(input_gradient);
                assert_eq!(got.values(Role::Output), output, "recomputed {layer:?}");
            }
            for role in expected.results() {
                let distance = distance(&got.values(role), &expected.values(role));
                assert!(distance <= BOUND, "{layer:?}: {role:?} is {distance:.1e} away");
            }
        }
    }
}

/// The scores of a small loss have a gradient that is much smaller than the probabilities.
#[test]
fn loss_in_place_has_an_accurate_gradient_of_a_small_loss() {
    let engine = CpuEngine::<f32>::new();
    let is_known = |layer: &Layer| layer.input_shapes()[0].innermost() > 1 && layer.ignored_label().is_none();
    for layer in losses().into_iter().filter(is_known) {
        let shard = Shard { first: 5, samples: 3 };
        let classes = layer.input_shapes()[0].innermost();
        let mut ordinary = LayerRun::new(&engine, Precision::Bf16, &layer, shard);
        let mut in_place = LayerRun::new(&engine, Precision::Bf16, &layer, shard);
        let mut scores = ordinary.values(Role::Input(0));
        for (scores, label) in scores.chunks_mut(classes).zip(ordinary.values(Role::Labels)) {
            scores[label as usize] += 14.0;
        }
        for run in [&mut ordinary, &mut in_place] {
            run.set(Role::Input(0), &scores);
        }
        ordinary.step(true);
        in_place.run(Pass::ForwardInPlace).unwrap();
        for role in [Role::Output, Role::Metrics] {
            assert_eq!(in_place.values(role), ordinary.values(role), "{layer:?}: {role:?}");
        }
        in_place.run(Pass::BackwardInPlace).unwrap();
        let gradient = ordinary.values(Role::InputGradient(0));
        let distance = distance(&in_place.values(Role::Input(0)), &gradient);
        assert!(distance <= BOUND, "{layer:?}: the gradient is {distance:.1e} away");
    }
}

/// Gradients of layer outputs have 16 bits.
#[test]
fn sums_and_scalings_round_once() {
    let engine = CpuEngine::<f32>::new();
    let storage = Storage::Bf16;
    let terms: Vec<Vec<f32>> = ["a", "b", "c"].map(|name| numbers(name, 7)).to_vec();
    let packed: Vec<Vec<f32>> = terms.iter().map(|term| storage.pack(term).into_owned()).collect();
    let unpacked = packed.iter().map(|term| storage.unpack(term, 7).into_owned());
    let unpacked: Vec<Vec<f32>> = unpacked.collect();
    let mut sum = engine.prepare(&KernelSpec::Sum { terms: 3, elements: 7 }, Precision::Bf16).unwrap();
    let mut total = vec![0.0; 4];
    let reads: Vec<&Vec<f32>> = packed.iter().collect();
    engine.enqueue(&mut sum, &reads, &mut [&mut total], &CONTEXT, &mut ()).unwrap();
    let expected: Vec<f32> = (0..7).map(|i| unpacked[0][i] + unpacked[1][i] + unpacked[2][i]).collect();
    assert_eq!(total, storage.pack(&expected).as_ref());

    let factors = vec![(3, 0.3), (4, 0.0)];
    let spec = KernelSpec::Scale { sample_elements: 1, factors };
    let mut scale = engine.prepare(&spec, Precision::Bf16).unwrap();
    let mut scaled = packed[0].clone();
    engine.enqueue(&mut scale, &[], &mut [&mut scaled], &CONTEXT, &mut ()).unwrap();
    let factor = |i: usize| if i < 3 { 0.3 } else { 0.0 };
    let expected: Vec<f32> = (0..7).map(|i| factor(i) * unpacked[0][i]).collect();
    assert_eq!(storage.unpack(&scaled, 7), storage.unpack(&storage.pack(&expected), 7));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn master_parameters_are_those_of_single_precision(
        elements in prop::collection::vec(0usize..20, 1..4),
        momentum in 0.0..1.0,
        weight_decay in 0.0..0.1,
        clip_norm in prop::option::of(0.01..5.0),
    ) {
        let engine = CpuEngine::<f32>::new();
        let rule = Sgd { momentum, weight_decay, clip_norm };
        let spec = KernelSpec::Sgd { elements: elements.clone(), rule };
        let [mut single, mut mixed] =
            [Precision::F32, Precision::Bf16].map(|precision| engine.prepare(&spec, precision).unwrap());
        let state = |width: usize| -> Vec<Vec<f32>> {
            let of_layer = |(layer, &count): (usize, &usize)| {
                let master = numbers(&format!("parameters {layer}"), count);
                let packed = vec![0.0; Storage::Bf16.scalars(count)];
                [packed, master, vec![0.0; count]].into_iter().skip(3 - width).collect::<Vec<_>>()
            };
            elements.iter().enumerate().flat_map(of_layer).collect()
        };
        let (mut expected, mut got) = (state(2), state(3));
        for iteration in 0..3 {
            let gradient = |(layer, &count): (usize, &usize)| -> Vec<f32> {
                numbers(&format!("gradient {layer} {iteration}"), count)
            };
            let mut gradients: Vec<Vec<f32>> = elements.iter().enumerate().map(gradient).collect();
            if clip_norm.is_some() {
                gradients.push(vec![gradients.iter().flatten().map(|value| value * value).sum()]);
            }
            let reads: Vec<&Vec<f32>> = gradients.iter().collect();
            let mut writes: Vec<&mut Vec<f32>> = expected.iter_mut().collect();
            engine.enqueue(&mut single, &reads, &mut writes, &CONTEXT, &mut ()).unwrap();
            let mut writes: Vec<&mut Vec<f32>> = got.iter_mut().collect();
            engine.enqueue(&mut mixed, &reads, &mut writes, &CONTEXT, &mut ()).unwrap();
            for (got, expected) in got.chunks(3).zip(expected.chunks(2)) {
                prop_assert_eq!(&got[1..], expected);
                let rounded = Storage::Bf16.pack(&got[1]);
                prop_assert_eq!(&got[0][..], rounded.as_ref());
            }
        }
    }
}
