//! Queues, captured graphs, and buffers that share memory.
#![allow(clippy::float_cmp, reason = "numbers that nothing may round")]

use std::time::Duration;

use cuda::{Buffer, Executable, HostBuffer, Priority};
use layer_engine::{
    CudaQueue, Engine, EngineError, KernelSpec, LaunchContext, Pass, Precision, Role, Sgd, Shard, Signature,
};
use layer_graph::{Dropout, Embedding, LayerGraph, LayerKind, Linear, Permute, Shape};

use super::{on_device, on_emulator, on_gpu};
use crate::allocations::allocations;

const CONTEXT: LaunchContext = LaunchContext { seed: 7, iteration: 3, learning_rate: 0.1 };

/// Captures the work that `body` enqueues as a graph.
fn capture(queue: &mut CudaQueue, body: impl FnOnce(&mut CudaQueue)) -> Executable {
    let stream = queue.stream().clone();
    let captured = stream.capture::<cuda::Error>(|_| {
        body(queue);
        Ok(())
    });
    captured.unwrap().instantiate().unwrap()
}

/// Returns the elements `range` of a buffer.
fn part(buffer: &Buffer<f32>, range: std::ops::Range<usize>) -> Buffer<f32> {
    #![allow(unsafe_code)]
    // SAFETY: kernels of one queue use the parts.
    unsafe { buffer.alias(range) }.unwrap()
}

/// Replays of dropout and gradient descent in later iterations give the same results as enqueueing
/// them.
#[test]
fn replayed_graph_matches_enqueueing_in_later_iterations() {
    on_device(0, |engine| {
        let mut net = LayerGraph::new("net", Shape::features(40)).unwrap();
        let id = net.add("drop", Dropout::new(0.5), [net.input()]).unwrap();
        let spec = KernelSpec::Layer { layer: net.layer(id), pass: Pass::Forward, shard: Shard::whole(3) };
        let rule = Sgd { momentum: 0.5, weight_decay: 0.0, clip_norm: None };
        let mut drop = engine.prepare(&spec, Precision::F32).unwrap();
        let mut step =
            engine.prepare(&KernelSpec::Sgd { elements: vec![120], rule }, Precision::F32).unwrap();
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
                    executable.launch(queue.stream()).unwrap();
                }
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
        capture(&mut queue, |queue| {
            let error = queue.set_context(&CONTEXT).unwrap_err();
            assert!(error.to_string().contains("while the queue was captured"), "{error}");
        });
    });
}

/// A graph keeps the kernels, their workspace and tables, the operands and the launch context of
/// its queue.
#[test]
fn graph_outlives_everything_that_it_was_captured_from() {
    on_device(0, |engine| {
        let run = |outlives: bool| {
            let mut net = LayerGraph::new("net", Shape::features(9)).unwrap();
            let table = net.add("table", Permute { order: vec![0] }, [net.input()]).unwrap();
            let drop_out = net.add("drop", Dropout::new(0.5), [net.input()]).unwrap();
            let layer = |id| {
                let layer = net.layer(id);
                let spec = KernelSpec::Layer { layer, pass: Pass::Forward, shard: Shard::whole(2) };
                engine.prepare(&spec, Precision::F32).unwrap()
            };
            let norm = KernelSpec::SquaredNorm { elements: vec![18] };
            let kernels = (layer(table), layer(drop_out), engine.prepare(&norm, Precision::F32).unwrap());
            let mut queue = engine.queue().unwrap();
            let [mut x, y, z] = [(); 3].map(|()| engine.allocate(18).unwrap());
            engine.upload(&[2.0; 18], &mut x, &mut queue).unwrap();
            let squared = engine.allocate(1).unwrap();
            queue.set_context(&CONTEXT).unwrap();
            let reads = [x, y, z];
            let writes = [part(&reads[1], 0..18), part(&reads[2], 0..18), part(&squared, 0..1)];
            let graph = capture(&mut queue, |queue| {
                queue.launch(&kernels.0, &reads[..1], &writes[..1]).unwrap();
                queue.launch(&kernels.1, &reads[1..2], &writes[1..2]).unwrap();
                queue.launch(&kernels.2, &reads[2..], &writes[2..]).unwrap();
            });
            let kept = (!outlives).then_some((kernels, queue, reads, writes));
            // Memory that was freed would be used again.
            let others = [18, 18, 18, 6, 9, 2].map(|length| engine.allocate(length).unwrap());
            let mut queue = engine.queue().unwrap();
            graph.launch(queue.stream()).unwrap();
            let mut host = [0.0];
            engine.download(&squared, &mut host, &mut queue).unwrap();
            drop((kept, others));
            host
        };
        assert!(run(false)[0] > 0.0);
        assert_eq!(run(false), run(true));
    });
}

/// Without it, an optimiser would run with a learning rate of 0.
#[test]
fn launch_without_a_context_names_the_kernel() {
    on_device(0, |engine| {
        let rule = Sgd { momentum: 0.5, weight_decay: 0.0, clip_norm: None };
        let step = engine.prepare(&KernelSpec::Sgd { elements: vec![3], rule }, Precision::F32).unwrap();
        let sum = engine.prepare(&KernelSpec::Sum { terms: 1, elements: 3 }, Precision::F32).unwrap();
        let mut queue = engine.queue().unwrap();
        let [gradient, parameters, velocity] = [(); 3].map(|()| engine.allocate(3).unwrap());
        let (reads, writes) = ([gradient], [parameters, velocity]);
        queue.launch(&sum, &reads, &writes[..1]).unwrap();
        let error = queue.launch(&step, &reads, &writes).unwrap_err();
        assert!(error.to_string().contains("`Sgd` reads the launch context"), "{error}");
        queue.set_context(&CONTEXT).unwrap();
        queue.launch(&step, &reads, &writes).unwrap();
        engine.synchronize(&mut queue).unwrap();
    });
}

#[test]
fn launching_on_a_device_allocates_nothing() {
    on_device(0, |engine| {
        let rule = Sgd { momentum: 0.5, weight_decay: 0.0, clip_norm: None };
        let mut step = engine.prepare(&KernelSpec::Sgd { elements: vec![3], rule }, Precision::F32).unwrap();
        let norm = engine.prepare(&KernelSpec::SquaredNorm { elements: vec![3] }, Precision::F32).unwrap();
        let mut queue = engine.queue().unwrap();
        let [gradient, mut parameters, mut velocity] = [(); 3].map(|()| engine.allocate(3).unwrap());
        let squared = [engine.allocate(1).unwrap()];
        let reads = [gradient];
        let before = allocations();
        for iteration in 0..3 {
            let context = LaunchContext { iteration, ..CONTEXT };
            let writes = &mut [&mut parameters, &mut velocity];
            engine.enqueue(&mut step, &[&reads[0]], writes, &context, &mut queue).unwrap();
            queue.launch(&norm, &reads, &squared).unwrap();
        }
        assert_eq!(allocations(), before);
    });
}

#[test]
fn parts_of_buffers_and_shared_streams_can_be_used() {
    on_device(0, |engine| {
        let owner = engine.queue_with_priority(Priority::Foreground).unwrap();
        let mut queue = engine.queue_on(owner.stream()).unwrap();
        assert_eq!(queue.stream(), owner.stream());
        let mut memory = engine.allocate(9).unwrap();
        engine.upload(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut memory, &mut queue).unwrap();
        let sum = engine.prepare(&KernelSpec::Sum { terms: 2, elements: 3 }, Precision::F32).unwrap();
        let [a, b, c] = [0, 3, 6].map(|first| part(&memory, first..first + 3));
        queue.launch(&sum, &[a, b], &[c]).unwrap();
        let mut host = [0.0; 9];
        engine.download(&memory, &mut host, &mut queue).unwrap();
        assert_eq!(host[6..], [5.0, 7.0, 9.0]);
    });
}

/// The host continues while the device copies, and finds the values after it has waited.
#[test]
fn page_locked_copies_follow_queue_order() {
    #![allow(unsafe_code)]
    on_device(0, |engine| {
        let mut queue = engine.queue().unwrap();
        let memory = engine.allocate(3).unwrap();
        let sum = engine.prepare(&KernelSpec::Sum { terms: 2, elements: 3 }, Precision::F32).unwrap();
        let [mut from, mut to] = [(); 2].map(|()| HostBuffer::zeros(engine.context(), 3).unwrap());
        from.as_mut_slice().copy_from_slice(&[1.0, 2.0, 4.0]);
        let result = [engine.allocate(3).unwrap()];
        let reads = [part(&memory, 0..3), memory];
        // SAFETY: all memory lives until the queue is synchronised.
        unsafe {
            reads[0].enqueue_upload(queue.stream(), &from).unwrap();
            queue.launch(&sum, &reads, &result).unwrap();
            result[0].enqueue_download(queue.stream(), &mut to).unwrap();
        }
        engine.synchronize(&mut queue).unwrap();
        assert_eq!(to.as_slice(), [2.0, 4.0, 8.0]);
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
        assert_eq!(error.to_string(), "Sum: operand reads[1] has length 4, expected 3");
        assert_eq!(engine.describe().name == "Emulated CUDA device", !on_gpu());
    });
}

/// An invalid label gives a loss of NaN. An invalid token is replaced by the nearest one.
#[test]
fn invalid_labels_and_tokens_access_no_other_memory() {
    on_device(0, |engine| {
        let mut net = LayerGraph::new("net", Shape::features(2)).unwrap();
        let tokens = net.add("tokens", Embedding::new(5, 3), [net.input()]).unwrap();
        let head = net.add("head", Linear::new(4), [tokens]).unwrap();
        let loss = net.add("loss", LayerKind::CROSS_ENTROPY, [head]).unwrap();
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
