//! Results are bitwise the same for every number of threads.

use std::collections::BTreeMap;

use layer_engine::{CpuEngine, Engine, KernelSpec, Pass, Precision, Role, Sgd, Shard, ThreadPool};
use layer_graph::{
    AdaptiveAvgPool2d, AdditiveAttention, BatchNorm, Conv2d, Dropout, ElementwiseLoss, Embedding, LayerKind,
    LayerNorm, Linear, LocalResponseNorm, MixtureOfExperts, MultiHeadAttention, Permute, Pool2d,
    PositionEmbedding, Recurrence, RecurrentCell, RelativePositions, RmsNorm, Select, Shape,
};

use crate::single_layer::{CONTEXT, SingleLayer, layer, numbers};

fn results(kind: &LayerKind, inputs: &[Shape], samples: usize, threads: usize) -> BTreeMap<Role, Vec<u32>> {
    results_on(CpuEngine::with_threads(threads).unwrap(), kind, inputs, samples)
}

fn results_on(
    engine: CpuEngine<f32>,
    kind: &LayerKind,
    inputs: &[Shape],
    samples: usize,
) -> BTreeMap<Role, Vec<u32>> {
    let mut layer = SingleLayer::new(layer(kind.clone(), inputs), Shard::whole(samples), engine);
    layer.forward();
    layer.backward();
    // Evaluation overwrites the output; both are kept.
    let training = layer.buffers.clone();
    layer.run(Pass::Infer).unwrap();
    let evaluation = layer.buffers.remove(&Role::Output).unwrap();
    let evaluation = (Role::Input(usize::MAX), evaluation);
    let bits = |buffer: Vec<f32>| buffer.into_iter().map(f32::to_bits).collect();
    training.into_iter().chain([evaluation]).map(|(role, buffer)| (role, bits(buffer))).collect()
}

#[test]
fn layer_results_do_not_depend_on_thread_count() {
    let image = || Shape::image(24, 20, 20);
    let sequence = || Shape::sequence(70, 48);
    let gates = || Shape::sequence(9, 48);
    let keys = || Shape::sequence(70, 16);
    let response = LocalResponseNorm { size: 5, alpha: 1e-2, beta: 0.75, k: 1.0 };
    let cases: [(LayerKind, Vec<Shape>); 35] = [
        (Conv2d::new(12, 3).padding(1).into(), vec![image()]),
        (Conv2d::new(12, 3).stride(2).groups(4).without_bias().into(), vec![image()]),
        (Conv2d::new(40, 1).into(), vec![image()]),
        (Linear::new(700).into(), vec![Shape::features(600)]),
        (BatchNorm::default().into(), vec![image()]),
        (LayerKind::Relu, vec![image()]),
        (LayerKind::MaxPool2d(Pool2d::new(3, 2).padding(1)), vec![image()]),
        (LayerKind::AvgPool2d(Pool2d::new(3, 1).padding(1)), vec![image()]),
        (AdaptiveAvgPool2d { output: [3, 7] }.into(), vec![image()]),
        (LayerKind::Flatten, vec![image()]),
        (LayerKind::Add, vec![image(), image(), image()]),
        (Dropout::new(0.3).into(), vec![image()]),
        (LayerKind::CROSS_ENTROPY, vec![Shape::features(10)]),
        (LayerKind::CROSS_ENTROPY, vec![Shape::sequence(70, 500)]),
        (ElementwiseLoss::BinaryCrossEntropy.into(), vec![Shape::sequence(170, 1500)]),
        (LayerKind::Gelu, vec![image()]),
        (LayerKind::GeluTanh, vec![image()]),
        (LayerKind::Tanh, vec![image()]),
        (LayerKind::Softmax, vec![Shape::sequence(70, 500)]),
        (response.into(), vec![image()]),
        (LayerNorm::default().into(), vec![sequence()]),
        (RmsNorm::new(1e-5).into(), vec![sequence()]),
        (Recurrence::new(RecurrentCell::Lstm).into(), vec![gates()]),
        (Recurrence::new(RecurrentCell::Gru).into(), vec![gates()]),
        (MixtureOfExperts::new(8, 2, 40).into(), vec![sequence(), Shape::sequence(70, 8)]),
        (Linear::new(300).into(), vec![sequence()]),
        (Embedding::new(90, 40).into(), vec![Shape::features(200)]),
        (PositionEmbedding::new(80).into(), vec![sequence()]),
        (LayerKind::ClassToken, vec![sequence()]),
        (MultiHeadAttention::new(4, true).into(), vec![sequence()]),
        (MultiHeadAttention::new(6, true).with_window(9).into(), vec![sequence(), keys(), keys()]),
        (
            MultiHeadAttention::new(6, false).with_relative_positions(RelativePositions::new(8, 9)).into(),
            vec![sequence(), keys(), keys()],
        ),
        (AdditiveAttention::normalised().into(), vec![sequence(), sequence(), keys()]),
        (Permute { order: vec![1, 2, 0] }.into(), vec![image()]),
        (Select { index: 7 }.into(), vec![sequence()]),
    ];
    for (kind, inputs) in cases {
        for samples in [1, 7, 19] {
            let single = results(&kind, &inputs, samples, 1);
            for threads in [2, 3] {
                let same = single == results(&kind, &inputs, samples, threads);
                assert!(same, "{kind:?} of {samples} samples differs with {threads} threads");
            }
        }
    }
}

#[test]
fn optimiser_results_do_not_depend_on_thread_count() {
    let elements = 100_000;
    let step = |threads| {
        let engine = CpuEngine::<f32>::with_threads(threads).unwrap();
        let rule = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: None };
        let spec = KernelSpec::Sgd { elements: vec![elements], rule };
        let mut kernel = engine.prepare(&spec, Precision::F32).unwrap();
        let mut state = [numbers("parameters", elements), numbers("velocity", elements)];
        let gradient = numbers("gradient", elements);
        let [parameters, velocity] = &mut state;
        engine.enqueue(&mut kernel, &[&gradient], &mut [parameters, velocity], &CONTEXT, &mut ()).unwrap();
        state
    };
    let single = step(1);
    assert!(single == step(2) && single == step(3));
}

#[test]
fn engines_sharing_a_pool_match_a_single_thread() {
    let kind = Conv2d::new(12, 3).padding(1).into();
    let image = [Shape::image(24, 20, 20)];
    let alone = results(&kind, &image, 5, 1);
    let pool = ThreadPool::new(2).unwrap();
    assert_eq!(pool.threads(), 2);
    // More ranks than threads, and more requested threads than the pool has.
    std::thread::scope(|scope| {
        let ranks = [1, 2, 3].map(|threads| {
            let engine = CpuEngine::sharing(&pool, threads);
            scope.spawn(|| results_on(engine, &kind, &image, 5))
        });
        for rank in ranks {
            assert!(rank.join().unwrap() == alone);
        }
    });
}
