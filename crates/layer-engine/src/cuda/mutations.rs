//! Do the tests find what they are for? Each barrier is taken out of the kernels, and each comparison of whole numbers moved by one: a
//! wrong result, a race or an access out of bounds has to tell. What nothing tells is listed.
//!
//! By default the barriers are changed; with `CUDA_ENGINE_MUTATIONS=1` the comparisons, too, which takes minutes.

#[allow(dead_code, unreachable_pub, reason = "a part of it is enough here")]
#[path = "../../tests/it/any_engine/mod.rs"]
mod any_engine;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cuda_emulator::{Emulator, Setting};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, Embedding, Layer, LayerGraph, LayerKind, LayerNorm,
    Linear, LocalResponseNorm, MultiHeadAttention, Permute, Pool2d, PositionEmbedding, Shape,
};

use super::CudaEngine;
use super::device::Device;
use super::module::Family;
use crate::{CpuEngine, Pass, Precision, Role, Shard};
use any_engine::{LayerRun, distance};

/// `setp.lt` for `setp.le` and so on.
const MOVED: [(&str, &str); 4] =
    [("setp.lt.", "setp.le."), ("setp.le.", "setp.lt."), ("setp.gt.", "setp.ge."), ("setp.ge.", "setp.gt.")];

/// A family's text with one change, and where that is: the kernel, and a barrier by its number in it or a comparison by its result.
struct Mutation {
    place: (String, String),
    ptx: String,
}

fn mutations(family: Family, with_bounds: bool) -> Vec<Mutation> {
    let lines: Vec<_> = family.ptx().lines().collect();
    let (mut all, mut kernel, mut barriers) = (Vec::new(), String::new(), 0);
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = line.strip_prefix(".visible .entry ") {
            (kernel, barriers) = (name.trim_end_matches(['(', ')']).to_owned(), 0);
        }
        let text = line.trim();
        let is_whole = [".s32", ".u32", ".s64", ".u64"].iter().any(|kind| text.contains(kind));
        let moved = MOVED.iter().find(|(from, _)| text.starts_with(from) && is_whole && with_bounds);
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

/// Layers that use every kernel of a family, in shapes with edges.
fn cases(family: Family) -> Vec<(Layer, usize)> {
    let image = Shape::image(6, 9, 8);
    let sequence = Shape::sequence(7, 12);
    let kinds: Vec<(LayerKind, Shape, usize)> = match family {
        Family::Activation => vec![
            (LayerKind::Relu, Shape::features(300), 1),
            (LayerKind::Gelu, Shape::features(300), 1),
            (LayerKind::GeluTanh, Shape::features(300), 1),
            (LayerKind::Softmax, Shape::sequence(9, 35), 1),
        ],
        Family::Attention => vec![
            (MultiHeadAttention { heads: 2, causal: true }.into(), Shape::sequence(70, 3 * 2 * 5), 1),
            (MultiHeadAttention { heads: 1, causal: false }.into(), Shape::sequence(67, 3 * 70), 1),
            (MultiHeadAttention { heads: 1, causal: true }.into(), Shape::sequence(129, 3 * 8), 1),
            (MultiHeadAttention { heads: 2, causal: false }.into(), Shape::sequence(9, 3 * 2 * 18), 2),
        ],
        Family::BatchNorm => vec![
            (BatchNorm::default().into(), Shape::image(3, 9, 11), 3),
            (BatchNorm::default().into(), Shape::features(260), 5),
        ],
        Family::Convolution => vec![
            (Conv2d::new(5, 3).padding(1).into(), image.clone(), 2),
            (Conv2d::new(66, 3).padding(1).into(), Shape::image(8, 6, 6), 2),
            (Conv2d::rectangular(6, [2, 3]).padding_hw([0, 1]).stride(2).groups(3).into(), image, 2),
            (Conv2d::new(9, 1).into(), Shape::image(68, 6, 6), 2),
            (Conv2d::new(2, 2).without_bias().into(), Shape::image(3, 17, 19), 2),
        ],
        Family::Dropout => vec![(Dropout { probability: 0.3 }.into(), Shape::features(301), 7)],
        Family::Elementwise => vec![
            (LayerKind::Flatten, Shape::image(3, 9, 11), 1),
            (Permute { order: vec![1, 0] }.into(), Shape::sequence(17, 16), 1),
        ],
        Family::LayerNorm => vec![
            (LayerNorm::default().into(), Shape::sequence(9, 35), 1),
            (LayerNorm::default().into(), sequence, 3),
        ],
        Family::ResponseNorm => {
            vec![(LocalResponseNorm { size: 4, alpha: 0.5, beta: 0.75, k: 1.5 }.into(), image, 1)]
        }
        Family::Loss => vec![
            (LayerKind::SoftmaxCrossEntropy, Shape::sequence(35, 37), 3),
            (LayerKind::SoftmaxCrossEntropy, Shape::features(3), 300),
        ],
        Family::MatrixProduct => vec![
            (Linear::new(72).into(), Shape::sequence(35, 68), 2),
            (Linear::new(67).into(), Shape::features(35), 66),
            (Linear::new(3).without_bias().into(), Shape::features(5), 530),
        ],
        Family::Optimizer => vec![(Dropout { probability: 0.3 }.into(), Shape::features(1), 1)],
        Family::Pooling => vec![
            (LayerKind::MaxPool2d(Pool2d::new(3, 2).padding(1)), Shape::image(2, 9, 8), 2),
            (LayerKind::MaxPool2d(Pool2d::new(3, 1).extra_padding([1, 2])), Shape::image(2, 5, 6), 3),
            (LayerKind::AvgPool2d(Pool2d::new(3, 2).padding(1)), Shape::image(2, 9, 8), 2),
            (LayerKind::AvgPool2d(Pool2d::new(2, 3).without_counting_padding()), Shape::image(2, 9, 8), 2),
            (AdaptiveAvgPool2d { output: [4, 3] }.into(), Shape::image(3, 9, 11), 1),
        ],
        Family::Sequence => vec![
            (Embedding { vocabulary: 20, features: 300 }.into(), Shape::features(300), 1),
            (PositionEmbedding { positions: 29 }.into(), Shape::sequence(9, 13), 3),
            (LayerKind::ClassToken, Shape::sequence(3, 290), 3),
        ],
    };
    let layer = |kind, shape| {
        let mut graph = LayerGraph::new("test", shape).unwrap();
        let input = graph.input();
        let id = graph.add("layer", kind, [input]).unwrap();
        graph.layer(id).clone()
    };
    kinds.into_iter().map(|(kind, shape, samples)| (layer(kind, shape), samples)).collect()
}

type Results = BTreeMap<Role, Vec<f64>>;

/// What a training step gives; `None` as soon as something fails.
fn step<E: crate::Engine<Scalar: crate::Real>>(
    engine: &E,
    (layer, samples): &(Layer, usize),
    is_well: impl Fn() -> bool,
) -> Option<Results> {
    let mut run = LayerRun::new(engine, Precision::F32, layer, Shard { first: 5, samples: *samples });
    for pass in [Pass::forward(layer), Pass::backward(layer, true)].concat() {
        run.run(pass).ok()?;
        if !is_well() {
            return None;
        }
    }
    Some(run.results().into_iter().map(|role| (role, run.values(role))).collect())
}

/// Whether a run with all checks tells that something is wrong.
fn is_found(family: Family, ptx: &str, expected: &[((Layer, usize), Results)]) -> bool {
    expected.iter().enumerate().any(|(order, (case, expected))| {
        let emulator = Emulator::new().unwrap();
        emulator.set(Setting::RaceCheck, 1);
        emulator.set(Setting::OrderSeed, order as i64);
        emulator.set(Setting::WatchdogInstructions, 3_000_000);
        let engine = CudaEngine::of(Device::with_code(family, ptx.to_owned()).unwrap());
        let is_well = || {
            emulator.advance(Duration::from_secs(1));
            emulator.faults().is_empty()
        };
        let Some(got) = step(&engine, case, is_well) else { return true };
        got.iter().any(|(role, got)| {
            let expected = &expected[role];
            let largest = got.iter().zip(expected).map(|(got, expected)| (got - expected).abs());
            // What is not a number is no smaller either.
            !(distance(got, expected) <= 1e-5 || largest.fold(0.0, f64::max) <= 1e-6)
        })
    })
}

const FAMILIES: [Family; 13] = [
    Family::Activation,
    Family::Attention,
    Family::BatchNorm,
    Family::Convolution,
    Family::Dropout,
    Family::Elementwise,
    Family::LayerNorm,
    Family::ResponseNorm,
    Family::Loss,
    Family::MatrixProduct,
    Family::Optimizer,
    Family::Pooling,
    Family::Sequence,
];

#[test]
fn every_barrier_and_every_bound_is_needed() {
    #![allow(unsafe_code)]
    // SAFETY: loading a driver does nothing yet.
    if unsafe { libloading::Library::new("libcuda.so") }.is_ok() {
        println!("SKIPPED: cudarc would open this machine's own libcuda.so");
        return;
    }
    let with_bounds = std::env::var("CUDA_ENGINE_MUTATIONS").is_ok_and(|wanted| wanted == "1");
    let cpu = CpuEngine::<f32>::new();
    let (mut count, mut left) = (0, BTreeSet::new());
    for family in FAMILIES {
        let expected: Vec<_> = cases(family)
            .into_iter()
            .map(|case| {
                let results = step(&cpu, &case, || true).unwrap();
                (case, results)
            })
            .collect();
        assert!(!is_found(family, family.ptx(), &expected), "{family:?} is wrong without a change");
        for Mutation { place, ptx } in mutations(family, with_bounds) {
            count += 1;
            if !is_found(family, &(ptx + "\0"), &expected) {
                left.insert(place);
            }
        }
    }
    println!("{count} changes, of which {} are not found: {left:?}", left.len());
}
