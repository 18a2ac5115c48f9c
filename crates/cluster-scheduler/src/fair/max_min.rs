//! Max-min fairness. A *share* is the fraction of time in which a job runs on GPUs of a type. A
//! *demand* is a group of identical jobs.

use super::Demand;
use super::cone_program::ConeProgram;
use crate::Error;

/// Returns the shares that maximize the minimum of `demand.gpus * sum of shares / demand.weight`
/// over all jobs.
///
/// Like Gavel's `max_min_fairness`, it ignores speeds, except that a job gets no share of a type on
/// which it does not run. `gpus` is the number of GPUs of each type. The result has a share for
/// each demand and type.
///
/// A linear program with a variable for each demand and type: about ten Newton steps of a sparse
/// interior-point method.
///
/// ```
/// use cluster_scheduler::fair::{Demand, max_min};
///
/// // Two one-GPU jobs and a two-GPU job share two GPUs: each gets 2/3 of a GPU's time.
/// let job = |jobs, gpus| Demand { jobs, gpus, speeds: vec![1.0], weight: 1.0 };
/// let shares = max_min(&[job(2, 1), job(1, 2)], &[2])?;
/// assert!((shares[0][0] - 2.0 / 3.0).abs() < 1e-6 && (shares[1][0] - 1.0 / 3.0).abs() < 1e-6);
/// # Ok::<(), cluster_scheduler::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Unsolved`] if the solver fails.
pub fn max_min(demands: &[Demand], gpus: &[usize]) -> Result<Vec<Vec<f64>>, Error> {
    if demands.is_empty() {
        return Ok(Vec::new());
    }
    let types = gpus.len();
    let mut program = ConeProgram::of_shares(demands, gpus, 1);
    let least = demands.len() * types;
    program.minimize(least, -1.0);
    for (job, demand) in demands.iter().enumerate() {
        let of_type = |of_type: usize| {
            let runs = demand.speeds[of_type] > 0.0;
            let time = if runs { demand.gpus as f64 / demand.weight } else { 0.0 };
            (job * types + of_type, -time)
        };
        let terms: Vec<_> = (0..types).map(of_type).chain([(least, 1.0)]).collect();
        program.at_most(&terms, 0.0);
    }
    program.solve(demands, types)
}
