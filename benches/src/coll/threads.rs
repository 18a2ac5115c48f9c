//! Ranks that are threads of this process.

use std::time::Duration;

use collectives::ThreadWorld;

use crate::coll::backend::Wait;
use crate::coll::timing::{SampleOptions, Samples, Task, measure};

/// Time-out of an operation. It exceeds the time of any operation, even with more spinning ranks
/// than cores.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts `ranks` threads, measures all tasks on them, and returns the samples of each task, in the
/// order of `tasks`.
///
/// # Errors
/// If a task fails on a rank.
pub(crate) fn launch(
    ranks: usize,
    wait: Wait,
    tasks: &[Task],
    sample_options: SampleOptions,
) -> anyhow::Result<Vec<Samples>> {
    let world = ThreadWorld::new(ranks).with_wait(wait.strategy()).with_timeout(TIMEOUT);
    let outcomes = world.run(|mut rank| {
        tasks.iter().map(|&task| measure(&mut rank, task, sample_options)).collect::<anyhow::Result<Vec<_>>>()
    });
    // All ranks return the same times. A failure may be that of one rank.
    outcomes.into_iter().reduce(Result::and).unwrap_or_else(|| Ok(Vec::new()))
}
