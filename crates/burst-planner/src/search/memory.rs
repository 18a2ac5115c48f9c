//! Whether a memory limit matters.
//!
//! With branches at the same time, what a rank holds depends on where branches sit, and searching for it is hard. But often
//! the plans that are best without a limit fit, and then they are the best ones with it, too.

use super::elimination::can_bind;
use super::{SearchOptions, TimeModel};
use crate::{PlanProblem, Result, Schedule, layout};

/// The problem without its memory limit, if that can bind and branches may run at once.
pub(crate) fn without_memory_limit(problem: &PlanProblem, options: &SearchOptions) -> Option<PlanProblem> {
    let binds = problem.memory_limit_bytes.is_some_and(|limit| can_bind(problem, limit));
    let waves = options.time_model == TimeModel::Waves
        && problem.edges.iter().any(|edge| edge.transfer_disjoint_us.is_some());
    (binds && waves).then(|| PlanProblem { memory_limit_bytes: None, ..problem.clone() })
}

/// Whether no rank holds more than it may.
pub(crate) fn fits(problem: &PlanProblem, choice: &[usize], schedule: &Schedule) -> Result<bool> {
    let most = layout(problem, choice, schedule)?.memory_bytes.into_iter().max().unwrap_or(0);
    Ok(problem.memory_limit_bytes.is_none_or(|limit| most <= limit))
}
