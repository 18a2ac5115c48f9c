//! A slow and obvious implementation of the time model: every step on every rank is an event, and
//! every iteration is simulated.
//!
//! It shares the cost model with [`Evaluator`](crate::Evaluator), but no code. Each checks the
//! other.

use super::events::{Event, Lane, events};
use crate::{Activity, Arrangement, CostModel, Error, NodeId, PlanProblem, Result, ShardSize};

/// Number of simulated iterations. The second half is timed; it is a multiple of all short periods.
const ITERATIONS: usize = 240;

/// Result of [`slow_time`].
#[derive(Debug, Clone, PartialEq)]
pub struct SlowTime {
    /// Mean time from one iteration to the next after many iterations, microseconds.
    pub iteration_us: f64,
    /// Active time of all ranks in an iteration, GPU-microseconds.
    pub gpu_time_us: f64,
    /// Activity of each rank in an iteration, by rank.
    pub activity: Vec<Activity>,
    /// Number of the first iteration, from 1, that takes the same time on all ranks with work.
    /// Maximum number of iterations if there is none.
    pub steady_after: usize,
}

/// Evaluates an arrangement rank by rank and event by event. O(iterations x events x ranks): for
/// small problems, without micro-batches.
///
/// # Errors
/// Those of [`PlanProblem::validate`] and [`Arrangement::validate`], and
/// [`NoTimes`](Error::NoTimes) or [`NoSplitTimes`](Error::NoSplitTimes).
pub fn slow_time(
    problem: &PlanProblem,
    costs: &dyn CostModel,
    arrangement: &Arrangement,
) -> Result<SlowTime> {
    problem.validate()?;
    arrangement.validate(problem)?;
    for (index, (node, ranks)) in problem.nodes.iter().zip(&arrangement.ranks).enumerate() {
        let (node, gpus) = (node.name.clone(), ranks.len());
        let split = arrangement.splits[index];
        let has_times = |shard_size| match split {
            None => costs.compute(NodeId(index), gpus, shard_size).is_some(),
            Some(split) => costs
                .splits()
                .is_some_and(|costs| costs.compute(NodeId(index), split, gpus, shard_size).is_some()),
        };
        if ![ShardSize::Larger, ShardSize::Smaller].into_iter().all(has_times) {
            return Err(match split {
                None => Error::NoTimes { node, gpus },
                Some(split) => Error::NoSplitTimes { node, split, gpus },
            });
        }
    }
    Ok(run_iterations(&events(problem, costs, arrangement), problem.gpus))
}

fn run_iterations(events: &[Event], gpus: usize) -> SlowTime {
    let mut begins = vec![0.0; gpus];
    let mut latest = Vec::new();
    let mut spans: Vec<Vec<(Lane, f64, f64)>> = Vec::new();
    let mut steady_after = ITERATIONS;
    for iteration in 1..=ITERATIONS {
        let mut free = [begins.clone(), begins.clone()];
        let mut ends: Vec<f64> = Vec::new();
        spans = vec![Vec::new(); gpus];
        for event in events {
            let lane = event.lane as usize;
            let waits =
                event.ranks.iter().map(|&rank| free[lane][rank]).chain(event.after.iter().map(|&e| ends[e]));
            let start = waits.fold(0.0, f64::max);
            let end = start + event.duration_us;
            for &rank in &event.ranks {
                free[lane][rank] = end;
                spans[rank].push((event.lane, start, end));
            }
            ends.push(end);
        }
        let before = begins;
        begins = free[0].iter().zip(&free[1]).map(|(a, b)| a.max(*b)).collect();
        let took = begins.iter().zip(&before).map(|(end, begin)| end - begin).filter(|&took| took > 0.0);
        let [shortest, longest] = [f64::min, f64::max].map(|choose| took.clone().reduce(choose));
        if shortest.zip(longest).is_none_or(|(shortest, longest)| longest - shortest <= 1e-9 * longest) {
            steady_after = steady_after.min(iteration);
        }
        latest.push(begins.iter().copied().fold(0.0, f64::max));
    }
    let half = ITERATIONS / 2;
    let iteration_us = (latest[ITERATIONS - 1] - latest[half - 1]) / half as f64;
    let activity: Vec<Activity> = spans.iter().map(|spans| activity(spans, iteration_us)).collect();
    let gpu_time_us = activity.iter().map(Activity::active_us).sum();
    SlowTime { iteration_us, gpu_time_us, activity, steady_after }
}

/// Classifies the time between any two consecutive ends of spans.
fn activity(spans: &[(Lane, f64, f64)], iteration_us: f64) -> Activity {
    let mut ends: Vec<f64> = spans.iter().flat_map(|&(_, start, end)| [start, end]).collect();
    ends.sort_by(f64::total_cmp);
    let mut activity = Activity::default();
    for pair in ends.windows(2) {
        let covered =
            |lane| spans.iter().any(|&(l, start, end)| l == lane && start <= pair[0] && pair[1] <= end);
        if covered(Lane::Compute) {
            activity.computing_us += pair[1] - pair[0];
        } else if covered(Lane::Communication) {
            activity.communicating_us += pair[1] - pair[0];
        }
    }
    activity.idle_us = (iteration_us - activity.active_us()).max(0.0);
    activity
}
