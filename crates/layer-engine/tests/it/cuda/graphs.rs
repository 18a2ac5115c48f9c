//! Gradients of whole networks in captured graphs, as the runtime launches them: whole, cut into
//! pieces, and merged.

use std::num::NonZeroUsize;
use std::time::Duration;

use cuda::{CapturedGraph, MergeLimits, MergedGraph, TimingRuns};
use layer_engine::CudaEngine;
use layer_graph::zoo;

use super::networks::{WAYS, inception, large_norm, residual, vision_transformer};
use super::{ORDERS, on_emulator};
use crate::any_engine::CONTEXT;
use crate::any_engine::network::NetworkRun;

/// Virtual time of every kernel and library call of the emulator.
const KERNEL: Duration = Duration::from_micros(10);

/// Captures some of the kernels of a step.
fn capture(run: &mut NetworkRun<'_, CudaEngine>, calls: std::ops::Range<usize>) -> CapturedGraph {
    let stream = run.queue.stream().clone();
    let captured = stream.capture::<cuda::Error>(|_| {
        run.enqueue(calls);
        Ok(())
    });
    captured.unwrap()
}

/// The bits are those of the kernels that are enqueued one by one, by own kernels and by those of
/// the libraries.
#[test]
fn gradients_in_captured_cut_and_merged_graphs_have_the_same_bits() {
    let digits = zoo::model("digits-cnn").unwrap();
    let networks = [digits, residual(), large_norm(), inception(), vision_transformer()];
    // Each way has every order of warps and blocks.
    for (index, graph) in networks.iter().enumerate() {
        for (way, (choice, precision, _)) in WAYS.into_iter().enumerate() {
            let order = ORDERS[(index + way) % ORDERS.len()];
            on_emulator(order, |engine, _| {
                let engine = engine.clone().with_choice(choice);
                let mut run = NetworkRun::new(&engine, precision, graph, 100);
                let calls = run.calls.len();
                run.queue.set_context(&CONTEXT).unwrap();
                run.enqueue(0..calls);
                let expected = run.gradients();
                let check = |run: &mut NetworkRun<'_, CudaEngine>, how: &str, launch: &dyn Fn()| {
                    run.spoil_gradients();
                    launch();
                    let case = format!("{}, {choice:?}, {precision:?}, order {order}", graph.name());
                    assert!(run.gradients() == expected, "{case}: {how}");
                };
                let stream = run.queue.stream().clone();
                let whole = capture(&mut run, 0..calls);
                let executable = whole.instantiate().unwrap();
                for how in ["captured", "replayed"] {
                    check(&mut run, how, &|| executable.launch(&stream).unwrap());
                }

                let runs = TimingRuns::without_side_effects(NonZeroUsize::MIN);
                let cut = whole.cut(&stream, 5 * KERNEL, runs).unwrap();
                assert!(cut.pieces.len() > 1 && cut.oversized.is_empty(), "{cut:?}");
                check(&mut run, "cut", &|| {
                    cut.pieces.iter().try_for_each(|piece| piece.executable.launch(&stream)).unwrap();
                });

                let single = (0..calls).map(|call| (capture(&mut run, call..call + 1), KERNEL));
                let single: Vec<_> = single.collect();
                let merged = MergedGraph::merge_consecutive(&single, MergeLimits::default()).unwrap();
                assert!((2..calls).contains(&merged.len()), "{} of {calls}", merged.len());
                check(&mut run, "merged", &|| {
                    merged.iter().try_for_each(|merged| merged.executable.launch(&stream)).unwrap();
                });
            });
        }
    }
}
