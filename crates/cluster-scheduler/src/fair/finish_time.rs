use super::Demand;
use super::program::Program;
use crate::Error;

/// How far a job has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Seconds since it arrived.
    pub elapsed: f64,
    /// Iterations that are left.
    pub remaining: f64,
    /// Seconds that it would have taken on its own 1/n of the cluster, for what it has done and what is left.
    pub isolated: f64,
}

/// Shares by which the largest ratio of `elapsed + remaining / speed` to `isolated` is the smallest possible.
///
/// As Gavel's `finish_time_fairness`. `gpus` are those of each type; the result has a share for each demand and type. A second-order cone program with a
/// cone for each demand.
///
/// # Errors
///
/// [`Error::Unsolved`] if the solver gives up.
pub fn finish_time(
    demands: &[Demand],
    progress: &[Progress],
    gpus: &[usize],
) -> Result<Vec<Vec<f64>>, Error> {
    if demands.is_empty() {
        return Ok(Vec::new());
    }
    let types = gpus.len();
    let shares = demands.len() * types;
    let mut program = Program::of_shares(demands, gpus, 1 + demands.len());
    let largest = shares;
    program.minimize(largest, 1.0);
    // With the speed on the fastest type as 1, figures are of like size.
    let fastest = |demand: &Demand| demand.speeds.iter().copied().fold(0.0, f64::max);
    for (job, (demand, progress)) in demands.iter().zip(progress).enumerate() {
        let Progress { elapsed, remaining, isolated } = progress;
        let time_alone = remaining / fastest(demand);
        program.at_most(&[(shares + 1 + job, time_alone / isolated), (largest, -1.0)], -elapsed / isolated);
    }
    for (job, demand) in demands.iter().enumerate() {
        let speed = |of_type: usize| (job * types + of_type, demand.speeds[of_type] / fastest(demand));
        let terms: Vec<_> = (0..types).map(speed).collect();
        program.product_at_least_one(shares + 1 + job, &terms);
    }
    program.solve(demands, types)
}

/// Iterations a second of each job on its own 1/n of the cluster, where n is the number of jobs: as Gavel's `isolated`.
#[must_use]
pub fn proportional(demands: &[Demand], gpus: &[usize]) -> Vec<f64> {
    let jobs: usize = demands.iter().map(|demand| demand.jobs).sum();
    let speed = |demand: &Demand| {
        let shares = gpus.iter().map(|&gpus| gpus as f64 / jobs as f64 / demand.gpus as f64);
        let sum: f64 = shares.clone().sum();
        shares.zip(&demand.speeds).map(|(share, speed)| share / sum.max(1.0) * speed).sum()
    };
    demands.iter().map(speed).collect()
}
