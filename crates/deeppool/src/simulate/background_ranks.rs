//! Ranks of background jobs.

use super::Simulation;

/// Chooses the ranks of background jobs with the given numbers of ranks: those where the foreground
/// `alone` is idle the longest, to 1% of its iteration. Each job has different ranks, and each rank
/// has jobs of at most one more than any other, as far as the sizes permit. A job has at most all
/// ranks.
#[must_use]
pub fn background_ranks(alone: &Simulation, sizes: &[usize]) -> Vec<Vec<usize>> {
    let iteration = alone.iteration.as_secs_f64().max(f64::MIN_POSITIVE);
    let mut ranks: Vec<(i64, usize)> = alone
        .by_rank
        .iter()
        .enumerate()
        .map(|(rank, activity)| ((-100.0 * activity.idle.as_secs_f64() / iteration).round() as i64, rank))
        .collect();
    ranks.sort_unstable();
    let mut next = (0..ranks.len()).cycle();
    let of_job = |&size: &usize| {
        let mut of_job: Vec<usize> =
            next.by_ref().take(size.min(ranks.len())).map(|place| ranks[place].1).collect();
        of_job.sort_unstable();
        of_job
    };
    sizes.iter().map(of_job).collect()
}
