//! Launching a kernel on one thread allocates nothing. Attentions and recurrences are excluded:
//! their products pack their operands into memory that the crates `gemm-*` allocate.
#![allow(unsafe_code, reason = "a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use layer_engine::{CpuEngine, Engine, KernelSpec, Pass, Precision, Role, Sgd, Shard, Signature};
use layer_graph::{
    BatchNorm, Conv2d, Dropout, ElementwiseLoss, Embedding, LayerKind, LayerNorm, Linear, LocalResponseNorm,
    Permute, Pool2d, PositionEmbedding, RmsNorm, Select, Shape,
};

use crate::single_layer::{CONTEXT, SingleLayer, layer};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of allocations of this thread so far.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.get()
}

struct CountingAllocator;

// SAFETY: all calls are forwarded to the system allocator. Counting accesses only a thread-local
// cell, which needs no memory and no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the memory is from `alloc` above, hence from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[test]
fn launching_a_layer_allocates_nothing() {
    let image = || Shape::image(3, 9, 9);
    let sequence = || Shape::sequence(5, 6);
    let response = LocalResponseNorm { size: 3, alpha: 1e-2, beta: 0.75, k: 1.0 };
    let cases: [(LayerKind, Vec<Shape>); 26] = [
        (Conv2d::new(5, 3).padding(1).into(), vec![image()]),
        (Conv2d::new(5, 3).stride(2).into(), vec![image()]),
        (Linear::new(7).into(), vec![sequence()]),
        (Conv2d::new(6, 1).groups(3).into(), vec![image()]),
        (LayerKind::Relu, vec![image()]),
        (LayerKind::MaxPool2d(Pool2d::new(3, 2)), vec![image()]),
        (LayerKind::AvgPool2d(Pool2d::new(3, 2)), vec![image()]),
        (BatchNorm::default().into(), vec![image()]),
        (Dropout::new(0.5).into(), vec![image()]),
        (LayerKind::Concat, vec![image(), image()]),
        (LayerKind::Add, vec![image(), image()]),
        (LayerKind::Multiply, vec![image(), image()]),
        (LayerKind::Multiply, vec![image(), Shape::image(image().dims()[0], 1, 1)]),
        (LayerKind::CROSS_ENTROPY, vec![Shape::features(10)]),
        (ElementwiseLoss::MeanSquaredError.into(), vec![Shape::features(10)]),
        (LayerKind::Gelu, vec![image()]),
        (LayerKind::Sigmoid, vec![image()]),
        (LayerKind::Softmax, vec![sequence()]),
        (response.into(), vec![image()]),
        (LayerNorm::default().into(), vec![sequence()]),
        (RmsNorm::new(1e-5).into(), vec![sequence()]),
        (Embedding::new(9, 4).into(), vec![Shape::features(5)]),
        (PositionEmbedding::new(8).into(), vec![sequence()]),
        (LayerKind::ClassToken, vec![sequence()]),
        (Permute { order: vec![1, 0] }.into(), vec![sequence()]),
        (Select { index: 2 }.into(), vec![sequence()]),
    ];
    for (kind, inputs) in cases {
        let engine = CpuEngine::<f32>::new();
        let mut single = SingleLayer::new(layer(kind, &inputs), Shard::whole(4), engine.clone());
        let passes = [
            Pass::forward(&single.layer),
            Pass::backward(&single.layer, true),
            &[Pass::Infer, Pass::Recompute, Pass::ForwardInPlace, Pass::BackwardInPlace],
        ]
        .concat();
        for pass in passes.into_iter().filter(|&pass| Signature::of(&single.layer, pass).is_some()) {
            let spec = KernelSpec::Layer { layer: &single.layer, pass, shard: single.shard };
            let signature = Signature::of(&single.layer, pass).unwrap();
            for precision in [Precision::F32, Precision::Bf16] {
                let mut kernel = engine.prepare(&spec, precision).unwrap();
                let buffer = |role: &Role| {
                    let storage = role.storage(&single.layer, precision);
                    storage.pack(&single.buffers[role]).into_owned()
                };
                let reads: Vec<_> = signature.reads.iter().map(buffer).collect();
                let mut written: Vec<_> = signature.writes.iter().map(buffer).collect();
                let reads: Vec<_> = reads.iter().collect();
                let mut writes: Vec<_> = written.iter_mut().collect();
                let before = allocations();
                engine.enqueue(&mut kernel, &reads, &mut writes, &CONTEXT, &mut ()).unwrap();
                assert_eq!(allocations() - before, 0, "{:?} {pass:?} {precision:?}", single.layer.kind());
                if precision == Precision::F32 {
                    single.buffers.extend(signature.writes.iter().copied().zip(written));
                }
            }
        }
    }
}

#[test]
fn launching_the_optimiser_allocates_nothing() {
    let engine = CpuEngine::<f32>::new();
    let rule = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: Some(1.0) };
    let mut norm = engine.prepare(&KernelSpec::SquaredNorm { elements: vec![9] }, Precision::F32).unwrap();
    let spec = KernelSpec::Sgd { elements: vec![9], rule };
    let mut step = engine.prepare(&spec, Precision::F32).unwrap();
    let mut step_in_16_bits = engine.prepare(&spec, Precision::Bf16).unwrap();
    let gradient = vec![1.0; 9];
    let mut packed = vec![0.0; 5];
    let [mut parameters, mut velocity, mut squared] = [9, 9, 1].map(|count| vec![0.0; count]);
    let before = allocations();
    engine.enqueue(&mut norm, &[&gradient], &mut [&mut squared], &CONTEXT, &mut ()).unwrap();
    let state = &mut [&mut parameters, &mut velocity];
    engine.enqueue(&mut step, &[&gradient, &squared], state, &CONTEXT, &mut ()).unwrap();
    let state = &mut [&mut packed, &mut parameters, &mut velocity];
    engine.enqueue(&mut step_in_16_bits, &[&gradient, &squared], state, &CONTEXT, &mut ()).unwrap();
    assert_eq!(allocations() - before, 0);
}
