//! Ranks that are threads of this process.

use std::time::Duration;

use collectives::ThreadWorld;

use crate::coll::backend::Wait;
use crate::coll::measuring::{Effort, Samples, Task, measure};

/// Far longer than any operation, even among more ranks than cores that all spin.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measures all tasks in one world.
pub(crate) fn launch(
    ranks: usize,
    wait: Wait,
    tasks: &[Task],
    effort: Effort,
) -> anyhow::Result<Vec<Samples>> {
    let world = ThreadWorld::new(ranks).with_wait(wait.strategy()).with_timeout(TIMEOUT);
    let outcomes = world.run(|mut rank| {
        tasks.iter().map(|&task| measure(&mut rank, task, effort)).collect::<anyhow::Result<Vec<_>>>()
    });
    // All ranks have the same times; a failure may be one rank's only.
    outcomes.into_iter().reduce(Result::and).unwrap_or_else(|| Ok(Vec::new()))
}
