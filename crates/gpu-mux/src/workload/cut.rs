use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Iteration;
use crate::{Kernel, Policy};

/// What is launched of a background job at once, over and over.
#[derive(Debug, Clone)]
pub(super) struct BackgroundPiece {
    pub(super) kernels: Arc<[Kernel]>,
    /// The time of its kernels on a device of its own, without the gaps between them.
    pub(super) time: Duration,
    /// The steps of the iteration that the kernels are of.
    pub(super) steps: Range<usize>,
}

/// One iteration of the background as the policy wants it cut: by its steps where pieces are not bounded, and otherwise
/// into the longest runs of kernels that keep the bound, whatever step they belong to. A kernel that is longer by
/// itself is a piece. Between two of them there is a `gap`, which counts.
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
    let time = kernels.iter().map(Kernel::time).sum();
    BackgroundPiece { kernels: kernels.into(), time, steps }
}

/// Each kernel of a step as often as it takes for all samples, with as many samples as the policy allows.
fn in_micro_batches<'a>(
    iteration: &'a Iteration,
    step: usize,
    policy: &Policy,
) -> impl Iterator<Item = Kernel> + use<'a> {
    let kernels = iteration.steps[step].kernels();
    let samples = iteration.samples.max(1);
    let most = policy.background_micro_batch.map_or(samples, |most| most.get().min(samples));
    let times = samples.div_ceil(most);
    kernels.iter().flat_map(move |kernel| {
        let kernel = kernel.part(1.0 / times as f64);
        std::iter::repeat_n(kernel, times)
    })
}
