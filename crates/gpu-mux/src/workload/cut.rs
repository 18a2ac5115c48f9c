use std::sync::Arc;
use std::time::Duration;

use super::{Iteration, StepWork};
use crate::{Kernel, Policy};

/// What is launched of a background job at once, over and over.
#[derive(Debug, Clone)]
pub(super) struct BackgroundPiece {
    pub(super) kernels: Arc<[Kernel]>,
    /// The time of its kernels on a device of its own, without the gaps between them.
    pub(super) time: Duration,
}

/// One iteration of the background as the policy wants it cut: by its steps where pieces are not bounded, and otherwise
/// into the longest runs of kernels that keep the bound, whatever step they belong to. A kernel that is longer by
/// itself is a piece. Between two of them there is a `gap`, which counts.
pub(super) fn cut(iteration: &Iteration, policy: &Policy, gap: Duration) -> Vec<BackgroundPiece> {
    let Some(bound) = policy.background_piece else {
        let steps = iteration.steps.iter().filter_map(|step| match &step.work {
            StepWork::Compute(kernels) if !kernels.is_empty() => {
                Some(piece(in_micro_batches(kernels.iter(), iteration.samples, policy).collect()))
            }
            _ => None,
        });
        return steps.collect();
    };
    let mut pieces = Vec::new();
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut time = Duration::ZERO;
    for kernel in in_micro_batches(iteration.kernels(), iteration.samples, policy) {
        let longer = time.saturating_add(gap).saturating_add(kernel.time());
        if !kernels.is_empty() && longer > bound {
            pieces.push(piece(std::mem::take(&mut kernels)));
        }
        time = if kernels.is_empty() { kernel.time() } else { longer };
        kernels.push(kernel);
    }
    if !kernels.is_empty() {
        pieces.push(piece(kernels));
    }
    pieces
}

fn piece(kernels: Vec<Kernel>) -> BackgroundPiece {
    let time = kernels.iter().map(Kernel::time).sum();
    BackgroundPiece { kernels: kernels.into(), time }
}

/// Each kernel as often as it takes for all samples, with as many samples as the policy allows.
fn in_micro_batches<'a>(
    kernels: impl Iterator<Item = &'a Kernel>,
    samples: usize,
    policy: &Policy,
) -> impl Iterator<Item = Kernel> {
    let samples = samples.max(1);
    let most = policy.background_micro_batch.map_or(samples, |most| most.get().min(samples));
    let times = samples.div_ceil(most);
    kernels.flat_map(move |kernel| {
        let kernel = kernel.part(1.0 / times as f64);
        std::iter::repeat_n(kernel, times)
    })
}
