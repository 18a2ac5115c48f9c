//! Cutting of a background iteration into pieces, which are launched as one tasklet each.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Iteration;
use crate::seconds::total;
use crate::{Kernel, Policy};

/// Consecutive kernels of a background iteration that are launched as one tasklet.
#[derive(Debug, Clone)]
pub(super) struct BackgroundPiece {
    /// Kernels in launch order.
    pub(super) kernels: Arc<[Kernel]>,
    /// Sum of the kernels' durations alone on a device, without the time between them.
    pub(super) time: Duration,
    /// Indices of the steps of the iteration that the kernels belong to.
    pub(super) steps: Range<usize>,
}

/// Cuts one iteration of the background according to the policy: into its steps if pieces are not
/// bounded, and otherwise greedily into maximal runs of kernels within the bound, across steps.
/// `gap` is the time between two kernels, which counts. A kernel that exceeds the bound is a
/// separate piece.
pub(super) fn cut(iteration: &Iteration, policy: &Policy, gap: Duration) -> Vec<BackgroundPiece> {
    let Some(bound) = policy.background_piece else {
        let steps = (0..iteration.steps.len()).filter_map(|step| {
            let kernels: Vec<_> = in_micro_batches(iteration, step, policy).collect();
            (!kernels.is_empty()).then(|| piece(kernels, step..step + 1))
        });
        return steps.collect();
    };
    let mut pieces = Vec::new();
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut time = Duration::ZERO;
    let mut steps = 0..0;
    for step in 0..iteration.steps.len() {
        for kernel in in_micro_batches(iteration, step, policy) {
            let longer = time.saturating_add(gap).saturating_add(kernel.time());
            if !kernels.is_empty() && longer > bound {
                pieces.push(piece(std::mem::take(&mut kernels), steps.clone()));
            }
            (time, steps) = if kernels.is_empty() {
                (kernel.time(), step..step + 1)
            } else {
                (longer, steps.start..step + 1)
            };
            kernels.push(kernel);
        }
    }
    if !kernels.is_empty() {
        pieces.push(piece(kernels, steps));
    }
    pieces
}

fn piece(kernels: Vec<Kernel>, steps: Range<usize>) -> BackgroundPiece {
    let time = total(kernels.iter().map(Kernel::time));
    BackgroundPiece { kernels: kernels.into(), time, steps }
}

/// Iterates over the kernels of a step, each repeated for every micro-batch of the policy.
fn in_micro_batches<'a>(
    iteration: &'a Iteration,
    step: usize,
    policy: &Policy,
) -> impl Iterator<Item = Kernel> + use<'a> {
    let kernels = iteration.steps[step].kernels();
    let samples = iteration.samples.max(1);
    let max = policy.background_micro_batch.map_or(samples, |max| max.get().min(samples));
    let times = samples.div_ceil(max);
    kernels.iter().flat_map(move |kernel| {
        let kernel = kernel.part(1.0 / times as f64);
        std::iter::repeat_n(kernel, times)
    })
}
