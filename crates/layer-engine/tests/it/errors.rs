//! Errors name the mismatch and the expected value.
#![allow(clippy::float_cmp, reason = "copies are exact")]

use layer_engine::{CpuEngine, Engine, EngineError, KernelSpec, Pass, Precision, Role, Shard};
use layer_graph::{Conv2d, LayerGraph, LayerKind, Linear, Shape};

use crate::single_layer::{CONTEXT, SingleLayer, layer};

#[test]
fn operands_of_wrong_number_or_length_are_rejected() {
    let fc = layer(Linear::new(2), &[Shape::features(3)]);
    let engine = CpuEngine::<f32>::new();
    let spec = KernelSpec::Layer { layer: &fc, pass: Pass::Forward, shard: Shard::whole(4) };
    let mut kernel = engine.prepare(&spec, Precision::F32).unwrap();
    let [x, w, short] = [12, 8, 7].map(|count| vec![0.0; count]);
    let mut y = vec![0.0; 8];
    let mut launch = |reads: &[&Vec<f32>], writes: &mut [&mut Vec<f32>]| {
        let result = engine.enqueue(&mut kernel, reads, writes, &CONTEXT, &mut ());
        result.map_err(|error| error.to_string())
    };
    launch(&[&x, &w], &mut [&mut y]).unwrap();
    let error = |text: &str| Err(format!("layer Forward: operand {text}"));
    assert_eq!(launch(&[&x], &mut [&mut y]), error("reads has length 1, expected 2"));
    assert_eq!(launch(&[&x, &short], &mut [&mut y]), error("reads[1] has length 7, expected 8"));
    assert_eq!(launch(&[&x, &w], &mut []), error("writes has length 0, expected 1"));
    assert_eq!(launch(&[&x, &w], &mut [&mut vec![]]), error("writes[0] has length 0, expected 8"));
}

#[test]
fn invalid_labels_are_rejected() {
    for label in [3.0, -1.0, 0.5, f64::NAN, f64::INFINITY] {
        let loss = layer(LayerKind::CROSS_ENTROPY, &[Shape::features(3)]);
        let mut layer = SingleLayer::<f64>::new(loss, Shard::whole(2), CpuEngine::new());
        layer.set(Role::Labels, vec![0.0, label]);
        for pass in [Pass::Forward, Pass::Infer, Pass::Backward] {
            let result = layer.run(pass);
            assert!(matches!(result, Err(EngineError::Label { classes: 3, .. })), "{pass:?}: {result:?}");
        }
    }
}

#[test]
fn arbitrary_saved_values_cause_no_panic() {
    let pool = LayerKind::MaxPool2d(layer_graph::Pool2d::new(3, 2).padding(1));
    let mut layer =
        SingleLayer::<f32>::new(layer(pool, &[Shape::image(1, 5, 5)]), Shard::whole(1), CpuEngine::new());
    for value in [-1.0, 1e30, f32::NAN, f32::INFINITY] {
        layer.buffers.get_mut(&Role::Saved).unwrap().fill(value);
        layer.run(Pass::Backward).unwrap();
    }
}

#[test]
fn missing_passes_are_unsupported() {
    let graph = LayerGraph::new("net", Shape::features(3)).unwrap();
    let conv = layer(Conv2d::new(1, 1), &[Shape::image(1, 2, 2)]);
    let engine = CpuEngine::<f32>::new();
    for (layer, pass) in [(graph.layer(graph.input()), Pass::Forward), (&conv, Pass::ForwardMoments)] {
        let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(1) };
        let result = engine.prepare(&spec, Precision::F32);
        assert!(matches!(result, Err(EngineError::Unsupported { .. })), "{result:?}");
    }
}

#[test]
fn other_precisions_are_rejected() {
    let result = CpuEngine::<f32>::new().prepare(&KernelSpec::Sum { terms: 1, elements: 1 }, Precision::F64);
    assert!(matches!(result, Err(EngineError::Precision { precision: Precision::F64, .. })));
}

#[test]
fn zero_threads_and_zero_terms_are_rejected() {
    assert!(matches!(CpuEngine::<f32>::with_threads(0), Err(EngineError::Threads { threads: 0, .. })));
    let result = CpuEngine::<f32>::new().prepare(&KernelSpec::Sum { terms: 0, elements: 1 }, Precision::F32);
    assert!(matches!(result, Err(EngineError::Operand { expected: 1, got: 0, .. })));
}

#[test]
fn transfers_longer_than_the_buffer_are_rejected() {
    let engine = CpuEngine::<f32>::new();
    let mut buffer = engine.allocate(2).unwrap();
    let mut host = [0.0; 3];
    assert!(matches!(engine.upload(&host, &mut buffer, &mut ()), Err(EngineError::Operand { got: 2, .. })));
    assert!(matches!(engine.download(&buffer, &mut host, &mut ()), Err(EngineError::Operand { got: 2, .. })));
    engine.upload(&[5.0], &mut buffer, &mut ()).unwrap();
    engine.download(&buffer, &mut host[..2], &mut ()).unwrap();
    assert_eq!(host, [5.0, 0.0, 0.0]);
}
