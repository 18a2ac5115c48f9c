//! Kernels that belong to no layer (gradient descent, squared norms, packing, scaling, sums),
//! compared with scalar code.
#![allow(clippy::float_cmp, reason = "sums in the same order are the same")]

use layer_engine::{CpuEngine, Engine, KernelSpec, LaunchContext, Precision, Sgd};
use proptest::prelude::*;

use crate::single_layer::{CONTEXT, numbers};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sgd_matches_scalar_code(
        elements in 0usize..50,
        momentum in 0.0..1.0,
        weight_decay in 0.0..0.1,
        clip_norm in prop::option::of(0.01..5.0),
        learning_rate in 0.0..1.0,
    ) {
        let engine = CpuEngine::<f64>::new();
        let rule = Sgd { momentum, weight_decay, clip_norm };
        let context = LaunchContext { learning_rate, ..CONTEXT };
        let spec = KernelSpec::Sgd { elements: vec![elements], rule };
        let mut step = engine.prepare(&spec, Precision::F64).unwrap();
        let norm_spec = KernelSpec::SquaredNorm { elements: vec![elements] };
        let mut norm = engine.prepare(&norm_spec, Precision::F64).unwrap();

        let mut parameters = numbers("parameters", elements);
        let mut velocity = vec![0.0; elements];
        let (mut expected, mut expected_velocity) = (parameters.clone(), velocity.clone());
        for iteration in 0..3 {
            let gradient: Vec<f64> = numbers(&format!("gradient {iteration}"), elements);
            let mut squared = vec![0.0];
            engine.enqueue(&mut norm, &[&gradient], &mut [&mut squared], &context, &mut ()).unwrap();
            let mut reads = vec![&gradient];
            if clip_norm.is_some() {
                reads.push(&squared);
            }
            let state = &mut [&mut parameters, &mut velocity];
            engine.enqueue(&mut step, &reads, state, &context, &mut ()).unwrap();

            let length = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            let scale = clip_norm.map_or(1.0, |limit: f64| (limit / length).min(1.0));
            for i in 0..elements {
                let decayed = scale * gradient[i] + weight_decay * expected[i];
                expected_velocity[i] = momentum * expected_velocity[i] + decayed;
                expected[i] -= learning_rate * expected_velocity[i];
            }
        }
        let expected = expected.iter().chain(&expected_velocity);
        for (got, expected) in parameters.iter().chain(&velocity).zip(expected) {
            prop_assert!((got - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn squared_norm_matches_scalar_code(elements in prop::collection::vec(0usize..30, 0..5)) {
        let engine = CpuEngine::<f64>::new();
        let spec = KernelSpec::SquaredNorm { elements: elements.clone() };
        let mut kernel = engine.prepare(&spec, Precision::F64).unwrap();
        let buffers: Vec<Vec<f64>> = elements.iter().map(|&count| numbers("term", count)).collect();
        let mut squared = vec![f64::NAN];
        let reads: Vec<_> = buffers.iter().collect();
        engine.enqueue(&mut kernel, &reads, &mut [&mut squared], &CONTEXT, &mut ()).unwrap();
        let expected: f64 = buffers.iter().flatten().map(|x| x * x).sum();
        prop_assert!((squared[0] - expected).abs() < 1e-12);
    }

    #[test]
    fn scale_matches_scalar_code(
        sample_elements in 0usize..5,
        factors in prop::collection::vec((0usize..4, prop::sample::select(vec![0.0, 1.0, 2.5])), 0..6),
    ) {
        let engine = CpuEngine::<f64>::new();
        let spec = KernelSpec::Scale { sample_elements, factors: factors.clone() };
        let mut kernel = engine.prepare(&spec, Precision::F64).unwrap();
        let by_sample = factors.iter().flat_map(|&(samples, factor)| vec![factor; samples]);
        let by_sample: Vec<f64> = by_sample.collect();
        // NaN stays NaN unless its factor is zero.
        let mut values = numbers("values", by_sample.len() * sample_elements);
        values.iter_mut().step_by(7).for_each(|value| *value = f64::NAN);
        let before = values.clone();
        engine.enqueue(&mut kernel, &[], &mut [&mut values], &CONTEXT, &mut ()).unwrap();
        for (i, (&after, &before)) in values.iter().zip(&before).enumerate() {
            let factor = by_sample[i / sample_elements];
            let expected = if factor == 0.0 { 0.0 } else { factor * before };
            prop_assert!(after == expected || after.is_nan() && expected.is_nan());
        }
    }

    #[test]
    fn addition_matches_scalar_code(elements in 0usize..3_000) {
        let engine = CpuEngine::<f64>::new();
        let mut kernel = engine.prepare(&KernelSpec::Add { elements }, Precision::F64).unwrap();
        let (term, mut sum) = (numbers("term", elements), numbers("sum", elements));
        let before = sum.clone();
        engine.enqueue(&mut kernel, &[&term], &mut [&mut sum], &CONTEXT, &mut ()).unwrap();
        for i in 0..elements {
            prop_assert_eq!(sum[i], before[i] + term[i]);
        }
    }

    #[test]
    fn sum_matches_scalar_code(terms in 1usize..5, elements in 0usize..30) {
        let engine = CpuEngine::<f64>::new();
        let mut kernel = engine.prepare(&KernelSpec::Sum { terms, elements }, Precision::F64).unwrap();
        let buffers = (0..terms).map(|term| numbers(&format!("term {term}"), elements));
        let buffers: Vec<Vec<f64>> = buffers.collect();
        let mut sum = vec![f64::NAN; elements];
        let reads: Vec<_> = buffers.iter().collect();
        engine.enqueue(&mut kernel, &reads, &mut [&mut sum], &CONTEXT, &mut ()).unwrap();
        for i in 0..elements {
            prop_assert_eq!(sum[i], buffers.iter().map(|buffer| buffer[i]).fold(0.0, |a, b| a + b));
        }
    }
}
