//! Queues, captured graphs, memory that the engine does not own, and errors.
#![allow(unsafe_code)]
#![allow(clippy::float_cmp, reason = "numbers that nothing may round")]

use std::process::Command;
use std::time::Duration;

use cuda_emulator::Setting;
use cudarc::driver::result;
use cudarc::driver::sys::{CUgraphExec, CUgraphInstantiate_flags, CUstreamCaptureMode};
use layer_engine::{
    CudaEngine, CudaQueue, DeviceSlice, Engine, EngineError, KernelSpec, LaunchContext, Pass, Precision,
    Role, Sgd, Shard, Signature,
};
use layer_graph::{Dropout, Embedding, LayerGraph, LayerKind, Linear, Opaque, Shape};

use super::{emulator, on_device, on_emulator, on_gpu};

const CONTEXT: LaunchContext = LaunchContext { seed: 7, iteration: 3, learning_rate: 0.1 };

/// Captures the work that `body` enqueues as a graph.
fn capture(queue: &mut CudaQueue, body: impl FnOnce(&mut CudaQueue)) -> CUgraphExec {
    let stream = queue.as_raw().cast();
    // SAFETY: the stream lives as long as the queue; the graph is destroyed once.
    unsafe {
        result::stream::begin_capture(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .unwrap();
        body(queue);
        let graph = result::stream::end_capture(stream).unwrap();
        let executable = result::graph::instantiate(graph, CUgraphInstantiate_flags(0)).unwrap();
        result::graph::destroy(graph).unwrap();
        executable
    }
}

/// Replays of dropout and gradient descent in later iterations give the same results as enqueueing
/// them.
#[test]
fn replayed_graph_matches_enqueueing_in_later_iterations() {
    on_device(0, |engine| {
        let mut net = LayerGraph::new("net", Shape::features(40)).unwrap();
        let id = net.add("drop", Dropout { probability: 0.5 }, [net.input()]).unwrap();
        let spec = KernelSpec::Layer { layer: net.layer(id), pass: Pass::Forward, shard: Shard::whole(3) };
        let rule = Sgd { momentum: 0.5, weight_decay: 0.0, clip_norm: None };
        let mut drop = engine.prepare(&spec, Precision::F32).unwrap();
        let mut step = engine.prepare(&KernelSpec::Sgd { elements: 120, rule }, Precision::F32).unwrap();
        assert!(drop.reads_context() && step.reads_context());
        let mut queue = engine.queue().unwrap();
        let mut x = engine.allocate(120).unwrap();
        engine.upload(&[1.0; 120], &mut x, &mut queue).unwrap();
        let mut run = |graph: bool, contexts: &[LaunchContext]| {
            let [mut y, mut parameters, mut velocity] = [(); 3].map(|()| engine.allocate(120).unwrap());
            let mut body = |context: &LaunchContext, queue: &mut CudaQueue| {
                engine.enqueue(&mut drop, &[&x], &mut [&mut y], context, queue).unwrap();
                let mut writes = [&mut parameters, &mut velocity];
                engine.enqueue(&mut step, &[&y], &mut writes, context, queue).unwrap();
            };
            if graph {
                queue.set_context(&contexts[0]).unwrap();
                let executable = capture(&mut queue, |queue| body(&contexts[0], queue));
                for context in contexts {
                    queue.set_context(context).unwrap();
                    // SAFETY: the graph's kernels and memory are alive.
                    unsafe { result::graph::launch(executable, queue.as_raw().cast()) }.unwrap();
                }
                engine.synchronize(&mut queue).unwrap();
                // SAFETY: the graph is destroyed once.
                unsafe { result::graph::exec_destroy(executable) }.unwrap();
            } else {
                for context in contexts {
                    body(context, &mut queue);
                }
            }
            let mut host = vec![0.0; 120];
            engine.download(&parameters, &mut host, &mut queue).unwrap();
            host
        };
        let contexts = [3, 4, 9].map(|iteration| LaunchContext {
            iteration,
            learning_rate: 0.1 * iteration as f64,
            ..CONTEXT
        });
        let enqueued = run(false, &contexts);
        assert_eq!(enqueued, run(true, &contexts));
        assert_ne!(enqueued, run(false, &[contexts[0]; 3]));
    });
}

/// A graph would set the context again at each launch.
#[test]
fn context_change_during_capture_is_rejected() {
    on_device(0, |engine| {
        let mut queue = engine.queue().unwrap();
        let executable = capture(&mut queue, |queue| {
            let error = queue.set_context(&CONTEXT).unwrap_err();
            assert!(error.to_string().contains("while the queue was captured"), "{error}");
        });
        // SAFETY: the graph is destroyed once.
        unsafe { result::graph::exec_destroy(executable) }.unwrap();
    });
}

#[test]
fn foreign_memory_and_streams_can_be_used() {
    on_device(0, |engine| {
        let owner = engine.queue_with_priority(-1).unwrap();
        // SAFETY: the stream lives as long as its owner.
        let mut queue = unsafe { engine.queue_on(owner.as_raw()) }.unwrap();
        let mut memory = engine.allocate(9).unwrap();
        engine.upload(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut memory, &mut queue).unwrap();
        let sum = engine.prepare(&KernelSpec::Sum { terms: 2, elements: 3 }, Precision::F32).unwrap();
        let part = |first: u64| DeviceSlice { pointer: memory.device_pointer() + 12 * first, elements: 3 };
        // SAFETY: the parts lie in live memory and do not overlap.
        unsafe { engine.enqueue_raw(&sum, &[part(0), part(1)], &[part(2)], &CONTEXT, &mut queue) }.unwrap();
        let mut host = [0.0; 9];
        engine.download(&memory, &mut host, &mut queue).unwrap();
        assert_eq!(host[6..], [5.0, 7.0, 9.0]);
    });
}

/// The host continues while the device copies, and finds the values after it has waited.
#[test]
fn page_locked_copies_follow_queue_order() {
    on_device(0, |engine| {
        let mut queue = engine.queue().unwrap();
        let memory = engine.allocate(3).unwrap();
        let sum = engine.prepare(&KernelSpec::Sum { terms: 2, elements: 3 }, Precision::F32).unwrap();
        let [mut from, mut to] = [(); 2].map(|()| engine.host_memory(3).unwrap());
        from.as_mut_slice().copy_from_slice(&[1.0, 2.0, 4.0]);
        let result = engine.allocate(3).unwrap();
        let [out, memory] = [result.as_slice(), memory.as_slice()];
        // SAFETY: all memory lives until the queue is synchronised.
        unsafe {
            engine.enqueue_upload(&from, memory, &mut queue).unwrap();
            engine.enqueue_raw(&sum, &[memory, memory], &[out], &CONTEXT, &mut queue).unwrap();
            engine.enqueue_download(out, &mut to, &mut queue).unwrap();
            assert!(engine.enqueue_upload(&from, DeviceSlice { elements: 2, ..memory }, &mut queue).is_err());
        }
        engine.synchronize(&mut queue).unwrap();
        assert_eq!(to.as_slice(), [2.0, 4.0, 8.0]);
        assert!(engine.host_memory(0).unwrap().as_slice().is_empty());
    });
}

/// The measured time is that of a captured graph's replays by the device's clock.
#[test]
fn device_clock_times_graph_replays() {
    on_emulator(0, |engine, emulator| {
        emulator.set_kernel_time("sum_terms", Duration::from_micros(250));
        let mut sum = engine.prepare(&KernelSpec::Sum { terms: 2, elements: 3 }, Precision::F32).unwrap();
        let [a, b, mut c] = [(); 3].map(|()| engine.allocate(3).unwrap());
        let mut queue = engine.queue().unwrap();
        let mut runs = 0;
        let mut body = |queue: &mut CudaQueue| {
            runs += 1;
            engine.enqueue(&mut sum, &[&a, &b], &mut [&mut c], &CONTEXT, queue)
        };
        let mut time = Duration::ZERO;
        let measured = engine.time(&mut queue, &mut body, &mut |stopwatch| {
            time = stopwatch(8)?;
            stopwatch(3).map(drop)
        });
        measured.unwrap();
        assert!((time.as_secs_f64() - 8.0 * 250e-6).abs() < 1e-7, "{time:?}");
        let mut fails = |_: &mut CudaQueue| Err(EngineError::Threads { threads: 0, problem: String::new() });
        let failed = engine.time(&mut queue, &mut fails, &mut |stopwatch| stopwatch(8).map(drop));
        assert!(failed.is_err());
        assert_eq!(runs, 2, "once to warm up, and once to be captured");
    });
}

/// An error on the device is reported by the next wait, with the name of the kernel. After it
/// nothing works.
#[test]
fn illegal_access_error_names_the_kernel() {
    let Some(emulator) = emulator(0) else { return };
    let engine = CudaEngine::new(0).unwrap();
    let mut queue = engine.queue().unwrap();
    let sum = engine.prepare(&KernelSpec::Sum { terms: 1, elements: 3 }, Precision::F32).unwrap();
    let nowhere = DeviceSlice { pointer: 4096, elements: 3 };
    // SAFETY: the device is emulated, and detects that the address is not allocated.
    let enqueued = unsafe { engine.enqueue_raw(&sum, &[nowhere], &[nowhere], &CONTEXT, &mut queue) };
    let error = enqueued.and_then(|()| engine.synchronize(&mut queue)).unwrap_err();
    assert!(error.to_string().contains("`Sum`") && error.to_string().contains("ILLEGAL_ADDRESS"), "{error}");
    assert!(engine.allocate(1).is_err());
    drop((sum, queue, engine));
    assert!(emulator.faults()[0].contains("kernel sum_terms"), "{:?}", emulator.faults());
    assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
}

#[test]
fn allocation_beyond_device_memory_is_an_error() {
    on_emulator(0, |engine, emulator| {
        emulator.set(Setting::MemoryBytes, 1 << 20);
        let error = engine.allocate(1 << 20).unwrap_err();
        assert!(matches!(error, EngineError::OutOfMemory { elements: 0x10_0000, .. }), "{error}");
    });
}

#[test]
fn transfers_round_trip_and_operand_lengths_are_checked() {
    on_device(0, |engine| {
        let mut queue = engine.queue().unwrap();
        let mut buffer = engine.allocate(4).unwrap();
        engine.upload(&[1.0, 2.0, 3.0], &mut buffer, &mut queue).unwrap();
        let mut back = [9.0; 4];
        engine.download(&buffer, &mut back, &mut queue).unwrap();
        assert_eq!(back, [1.0, 2.0, 3.0, 0.0]);
        let error = engine.upload(&[0.0; 5], &mut buffer, &mut queue).unwrap_err();
        assert!(matches!(error, EngineError::Operand { expected: 5, got: 4, .. }), "{error}");
        let mut sum = engine.prepare(&KernelSpec::Sum { terms: 2, elements: 3 }, Precision::F32).unwrap();
        let (a, mut c) = (engine.allocate(3).unwrap(), engine.allocate(3).unwrap());
        let error =
            engine.enqueue(&mut sum, &[&a, &buffer], &mut [&mut c], &CONTEXT, &mut queue).unwrap_err();
        assert_eq!(error.to_string(), "Sum: operand reads[1] has 4 elements, expected 3");
        assert_eq!(engine.describe().name == "Emulated CUDA device", !on_gpu());
    });
}

#[test]
fn unsupported_kernels_are_rejected() {
    on_device(0, |engine| {
        let sum = KernelSpec::Sum { terms: 1, elements: 1 };
        for precision in [Precision::F64, Precision::Bf16] {
            assert!(matches!(engine.prepare(&sum, precision), Err(EngineError::Precision { .. })));
        }
        let none = KernelSpec::Sum { terms: 0, elements: 1 };
        assert!(matches!(engine.prepare(&none, Precision::F32), Err(EngineError::Operand { .. })));
        let mut net = LayerGraph::new("net", Shape::features(2)).unwrap();
        let opaque = net.add("op", Opaque::new("fft", Shape::features(2)), [net.input()]).unwrap();
        let relu = net.add("relu", LayerKind::Relu, [opaque]).unwrap();
        for (id, pass, samples) in [(opaque, Pass::Forward, 0), (opaque, Pass::Forward, 1)] {
            let spec = KernelSpec::Layer { layer: net.layer(id), pass, shard: Shard::whole(samples) };
            assert!(matches!(engine.prepare(&spec, Precision::F32), Err(EngineError::Opaque { .. })));
        }
        let layer = net.layer(relu);
        let spec = KernelSpec::Layer { layer, pass: Pass::ForwardMoments, shard: Shard::whole(1) };
        assert!(matches!(engine.prepare(&spec, Precision::F32), Err(EngineError::Unsupported { .. })));
        let error = CudaEngine::new(99).unwrap_err();
        assert!(error.to_string().contains("CUDA device 99 cannot be used"), "{error}");
    });
}

/// An invalid label gives a loss of NaN. An invalid token is replaced by the nearest one.
#[test]
fn invalid_labels_and_tokens_access_no_other_memory() {
    on_device(0, |engine| {
        let mut net = LayerGraph::new("net", Shape::features(2)).unwrap();
        let tokens = net.add("tokens", Embedding { vocabulary: 5, features: 3 }, [net.input()]).unwrap();
        let head = net.add("head", Linear::new(4), [tokens]).unwrap();
        let loss = net.add("loss", LayerKind::SoftmaxCrossEntropy, [head]).unwrap();
        let mut queue = engine.queue().unwrap();
        let mut infer = |id, role: Role, values: &[f32]| {
            let layer = net.layer(id);
            let spec = KernelSpec::Layer { layer, pass: Pass::Infer, shard: Shard::whole(1) };
            let mut kernel = engine.prepare(&spec, Precision::F32).unwrap();
            let signature = Signature::of(layer, Pass::Infer).unwrap();
            let allocate = |role: &Role| engine.allocate(role.elements(layer, 1)).unwrap();
            let mut reads: Vec<_> = signature.reads.iter().map(allocate).collect();
            let mut writes: Vec<_> = signature.writes.iter().map(allocate).collect();
            if let Some(index) = signature.reads.iter().position(|role| *role == Role::Parameters) {
                let vectors: Vec<f32> = (0..15_u8).map(f32::from).collect();
                engine.upload(&vectors, &mut reads[index], &mut queue).unwrap();
            }
            let index = signature.reads.iter().position(|&read| read == role).unwrap();
            engine.upload(values, &mut reads[index], &mut queue).unwrap();
            let (reads, mut targets): (Vec<_>, Vec<_>) =
                (reads.iter().collect(), writes.iter_mut().collect());
            engine.enqueue(&mut kernel, &reads, &mut targets, &CONTEXT, &mut queue).unwrap();
            let mut host = vec![0.0; writes[0].len()];
            engine.download(&writes[0], &mut host, &mut queue).unwrap();
            host
        };
        assert_eq!(infer(tokens, Role::Input(0), &[99.0, -3.0]), [12.0, 13.0, 14.0, 0.0, 1.0, 2.0]);
        let losses = infer(loss, Role::Labels, &[-1.0, 4.0]);
        assert!(losses[0].is_nan());
    });
}

/// Each call of the driver fails in turn. Each failure is an error of one line without a panic or a
/// leak.
#[test]
fn every_failed_driver_call_is_an_error() {
    let Some(emulator) = emulator(0) else { return };
    let mut net = LayerGraph::new("net", Shape::features(9)).unwrap();
    let id = net.add("drop", Dropout { probability: 0.5 }, [net.input()]).unwrap();
    let spec = KernelSpec::Layer { layer: net.layer(id), pass: Pass::Forward, shard: Shard::whole(1) };
    let run = || -> Result<(), EngineError> {
        let engine = CudaEngine::new(0)?;
        let mut queue = engine.queue()?;
        let [mut x, mut y] = [engine.allocate(9)?, engine.allocate(9)?];
        engine.upload(&[1.0; 9], &mut x, &mut queue)?;
        let mut kernel = engine.prepare(&spec, Precision::F32)?;
        let norm = KernelSpec::SquaredNorm { elements: vec![9] };
        drop(engine.prepare(&norm, Precision::F32)?);
        let mut body =
            |queue: &mut CudaQueue| engine.enqueue(&mut kernel, &[&x], &mut [&mut y], &CONTEXT, queue);
        body(&mut queue)?;
        engine.time(&mut queue, &mut body, &mut |stopwatch| stopwatch(2).map(drop))?;
        engine.download(&y, &mut [0.0; 9], &mut queue)
    };
    run().unwrap();
    let calls = emulator.calls();
    let mut errors = 0;
    for call in 1..=calls {
        emulator.reset();
        // CUDA_ERROR_OPERATING_SYSTEM, which no code expects.
        emulator.fail_call(call, 304);
        let result = run();
        let failed = emulator.log()[call as usize - 1].clone();
        if let Err(error) = &result {
            errors += 1;
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
        // cudarc leaks the context if the query after its creation fails.
        let of_cudarc = failed.contains("cuDeviceGetAttribute");
        assert!(of_cudarc || emulator.leaks().is_empty(), "{failed}: {result:?}: {:?}", emulator.leaks());
    }
    println!("{calls} calls, of which {errors} matter");
    assert!(errors > 40);
}

/// Runs in a separate process in which nothing has opened the emulated driver.
#[test]
fn missing_driver_is_one_clear_error() {
    const CHILD: &str = "CUDA_ENGINE_WITHOUT_A_DRIVER";
    if std::env::var_os(CHILD).is_some() {
        match CudaEngine::new(0) {
            Ok(_) => println!("SKIPPED: this machine has a driver"),
            Err(error) => println!("ERROR: {error}"),
        }
        return;
    }
    let test = "cuda::queues::missing_driver_is_one_clear_error";
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env_remove("DEEPPOOL_EMULATED_GPUS")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.contains("SKIPPED: ") || line.contains("ERROR: ")).unwrap();
    assert!(
        line.contains("SKIPPED")
            || line.contains("CUDA device 0 cannot be used: CUDA's driver was not found"),
        "{line}"
    );
}
