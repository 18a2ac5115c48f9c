//! Transfers, descriptions, timing and errors of the libtorch engine.
#![allow(clippy::float_cmp, reason = "numbers that nothing may touch")]

use std::time::Duration;

use layer_engine::{
    Engine, EngineError, KernelSpec, LaunchContext, Pass, Precision, Role, Sgd, Shard, TorchDevice,
    TorchEngine,
};
use layer_graph::{Embedding, LayerGraph, LayerKind, Linear, Shape};

const CONTEXT: LaunchContext = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.5 };

fn cpu() -> TorchEngine<f32> {
    TorchEngine::new(TorchDevice::Cpu).unwrap()
}

#[test]
fn transfers_round_trip() {
    let engine = cpu();
    let mut queue = engine.queue().unwrap();
    let mut buffer = engine.allocate(4).unwrap();
    engine.upload(&[1.0, 2.0, 3.0], &mut buffer, &mut queue).unwrap();
    let mut back = [9.0; 4];
    engine.download(&buffer, &mut back, &mut queue).unwrap();
    assert_eq!(back, [1.0, 2.0, 3.0, 0.0]);
    let error = engine.upload(&[0.0; 5], &mut buffer, &mut queue).unwrap_err();
    assert!(matches!(error, EngineError::Operand { expected: 5, got: 4, .. }), "{error}");
}

#[test]
fn operands_of_wrong_length_are_rejected() {
    let engine = cpu();
    let mut queue = engine.queue().unwrap();
    let spec = KernelSpec::Sum { terms: 2, elements: 3 };
    let mut kernel = engine.prepare(&spec, Precision::F32).unwrap();
    let [a, b, mut c] = [3, 4, 3].map(|length| engine.allocate(length).unwrap());
    let error = engine.enqueue(&mut kernel, &[&a, &b], &mut [&mut c], &CONTEXT, &mut queue).unwrap_err();
    assert_eq!(error.to_string(), "Sum: operand reads[1] has length 4, expected 3");
}

#[test]
fn invalid_labels_and_tokens_are_named() {
    let engine = cpu();
    let mut queue = engine.queue().unwrap();
    let mut net = LayerGraph::new("net", Shape::features(2)).unwrap();
    let x = net.add("tokens", Embedding::new(5, 3), [net.input()]).unwrap();
    let head = net.add("head", Linear::new(4), [x]).unwrap();
    let loss = net.add("loss", LayerKind::CROSS_ENTROPY, [head]).unwrap();
    for (id, role, value, expected) in [
        (x, Role::Input(0), 5.0, "5 is not one of the 5 tokens of layer `tokens`"),
        (x, Role::Input(0), 0.5, "0.5 is not one of the 5 tokens"),
        (loss, Role::Labels, -1.0, "label -1 is not one of the 4 classes of layer `loss`"),
    ] {
        let layer = net.layer(id);
        let spec = KernelSpec::Layer { layer, pass: Pass::Infer, shard: Shard::whole(1) };
        let mut kernel = engine.prepare(&spec, Precision::F32).unwrap();
        let signature = layer_engine::Signature::of(layer, Pass::Infer).unwrap();
        let allocate = |role: &Role| engine.allocate(role.elements(layer, 1)).unwrap();
        let mut reads: Vec<_> = signature.reads.iter().map(allocate).collect();
        let mut writes: Vec<_> = signature.writes.iter().map(allocate).collect();
        let index = signature.reads.iter().position(|&read| read == role).unwrap();
        engine.upload(&[value], &mut reads[index], &mut queue).unwrap();
        let (reads, mut writes): (Vec<_>, Vec<_>) = (reads.iter().collect(), writes.iter_mut().collect());
        let error = engine.enqueue(&mut kernel, &reads, &mut writes, &CONTEXT, &mut queue).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A step computed by hand: gradients of norm 5 clipped to 1, momentum and weight decay.
#[test]
fn sgd_step_matches_hand_computation() {
    let engine = cpu();
    let mut queue = engine.queue().unwrap();
    let [mut gradient, mut parameters, mut velocity] =
        [2, 2, 2].map(|length| engine.allocate(length).unwrap());
    let mut squared = engine.allocate(1).unwrap();
    engine.upload(&[3.0, 4.0], &mut gradient, &mut queue).unwrap();
    engine.upload(&[1.0, 2.0], &mut parameters, &mut queue).unwrap();
    engine.upload(&[0.5, 0.0], &mut velocity, &mut queue).unwrap();
    let mut norm = engine.prepare(&KernelSpec::SquaredNorm { elements: vec![2] }, Precision::F32).unwrap();
    engine.enqueue(&mut norm, &[&gradient], &mut [&mut squared], &CONTEXT, &mut queue).unwrap();
    let rule = Sgd { momentum: 0.5, weight_decay: 0.125, clip_norm: Some(1.0) };
    let mut step = engine.prepare(&KernelSpec::Sgd { elements: vec![2], rule }, Precision::F32).unwrap();
    let mut writes = [&mut parameters, &mut velocity];
    engine.enqueue(&mut step, &[&gradient, &squared], &mut writes, &CONTEXT, &mut queue).unwrap();
    let mut got = [0.0; 2];
    engine.download(&velocity, &mut got, &mut queue).unwrap();
    let expected = [0.25 + 0.6 + 0.125, 0.8 + 0.25];
    assert!(
        got.iter().zip(expected).all(|(got, expected): (&f32, f32)| (got - expected).abs() < 1e-6),
        "{got:?}"
    );
    engine.download(&parameters, &mut got, &mut queue).unwrap();
    let expected = [1.0 - 0.5 * expected[0], 2.0 - 0.5 * expected[1]];
    assert!(got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-6), "{got:?}");
}

#[test]
fn description_names_library_and_threads() {
    let description = TorchEngine::<f32>::with_threads(2).unwrap().describe();
    assert_eq!(description.libraries["libtorch"], "2.11.0");
    assert!(description.name.ends_with("2 threads"), "{}", description.name);
    let error = TorchEngine::<f32>::with_threads(0).unwrap_err();
    assert!(error.to_string().contains("0 worker threads"), "{error}");
}

#[test]
fn host_clock_covers_all_runs() {
    let engine = cpu();
    let mut queue = engine.queue().unwrap();
    let mut runs = 0;
    let mut time = Duration::ZERO;
    let mut body = |_: &mut _| {
        runs += 1;
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    };
    let measured = engine.time(&mut queue, &mut body, &mut |stopwatch| {
        time = stopwatch(3)?;
        Ok(())
    });
    measured.unwrap();
    assert_eq!(runs, 3);
    assert!(time.as_millis() >= 6);
}

#[test]
fn missing_gpu_is_named() {
    let error = TorchEngine::<f32>::new(TorchDevice::Cuda(99)).unwrap_err();
    assert!(error.to_string().contains("CUDA device 99"), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
}

#[test]
fn unsupported_precisions_are_rejected() {
    let spec = KernelSpec::Sum { terms: 1, elements: 1 };
    assert!(cpu().prepare(&spec, Precision::F64).is_err());
    assert!(cpu().prepare(&spec, Precision::Bf16).is_ok());
    let double = TorchEngine::<f64>::new(TorchDevice::Cpu).unwrap();
    assert!(double.prepare(&spec, Precision::Bf16).is_err());
}

/// On a GPU, the measured time is that of a captured graph's replays. It grows with the work, and
/// results are the same as without a graph.
#[test]
fn gpu_clock_times_graph_replays() {
    let engine = match TorchEngine::<f32>::new(TorchDevice::Cuda(0)) {
        Ok(engine) => engine,
        Err(error) if std::env::var("GPU_REQUIRED").is_ok_and(|value| value == "1") => panic!("{error}"),
        Err(_) => {
            println!("SKIPPED: no CUDA device");
            return;
        }
    };
    let mut queue = engine.queue().unwrap();
    let elements = 1 << 26;
    let mut sum = engine.prepare(&KernelSpec::Sum { terms: 2, elements }, Precision::F32).unwrap();
    let [mut a, b, mut c] = [(); 3].map(|()| engine.allocate(elements).unwrap());
    engine.upload(&[1.5, 2.5], &mut a, &mut queue).unwrap();
    let mut runs = 0;
    let mut body = |queue: &mut _| {
        runs += 1;
        engine.enqueue(&mut sum, &[&a, &b], &mut [&mut c], &CONTEXT, queue)
    };
    let (mut one, mut many) = (Duration::ZERO, Duration::ZERO);
    let measured = engine.time(&mut queue, &mut body, &mut |stopwatch| {
        (one, many) = (stopwatch(1)?, stopwatch(50)?);
        Ok(())
    });
    measured.unwrap();
    assert!(many > 10 * one, "{one:?} once, {many:?} fifty times");
    assert_eq!(runs, 2, "once to warm up, and once to be captured");
    let mut got = [0.0; 3];
    engine.download(&c, &mut got, &mut queue).unwrap();
    assert_eq!(got, [1.5, 2.5, 0.0]);
    let description = engine.describe();
    assert!(!description.name.is_empty() && description.clock_mhz.is_some(), "{description:?}");
}
