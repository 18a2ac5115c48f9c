//! Fair shares in rounds. A *share* of a job on a type of GPU is the fraction of time in which it
//! is to run there.

use std::collections::BTreeMap;

use super::RoundsJob;
use crate::Error;
use crate::fair::{Demand, Progress, by_cone_program, max_min, proportional};

/// State of finish-time fairness, by job: the time in seconds that its completed work takes on 1/n
/// of the cluster for n jobs, its remaining steps, and its steps per second on that part.
#[derive(Debug, Default)]
pub(super) struct Shares {
    isolated: BTreeMap<usize, (f64, u64, f64)>,
}

impl Shares {
    /// Returns the max-min fair share of each present job on each type of GPU. `present` has
    /// indices into `jobs`; `gpus` is the number of GPUs by type.
    ///
    /// # Errors
    /// [`Error::Unsolved`] if the solver fails.
    pub(super) fn max_min(
        present: &[usize],
        jobs: &[RoundsJob],
        gpus: &[usize],
    ) -> Result<BTreeMap<usize, Vec<f64>>, Error> {
        let demands: Vec<Demand> =
            present.iter().map(|&job| demand(&jobs[job], vec![1.0; gpus.len()])).collect();
        Ok(present.iter().copied().zip(max_min(&demands, gpus)?).collect())
    }

    /// Returns the finish-time fair share of each present job on each type of GPU. `now` is in
    /// seconds from the start. `present` has indices into `jobs` and into `remaining`, the
    /// remaining steps; `gpus` is the number of GPUs by type.
    ///
    /// # Errors
    /// [`Error::Unsolved`] if the solver fails.
    pub(super) fn finish_time(
        &mut self,
        now: f64,
        present: &[usize],
        jobs: &[RoundsJob],
        remaining: &[u64],
        gpus: &[usize],
    ) -> Result<BTreeMap<usize, Vec<f64>>, Error> {
        let demands: Vec<Demand> =
            present.iter().map(|&job| demand(&jobs[job], vec![jobs[job].speeds[0]; gpus.len()])).collect();
        let speeds = proportional(&demands, gpus);
        let mut progress = Vec::with_capacity(present.len());
        for (&job, &speed) in present.iter().zip(&speeds) {
            let left = remaining[job];
            let (mut isolated, before, speed_before) =
                self.isolated.get(&job).copied().unwrap_or((0.0, left, speed));
            isolated += (before - left) as f64 / speed_before;
            self.isolated.insert(job, (isolated, left, speed));
            progress.push(Progress {
                elapsed: now - jobs[job].arrival,
                remaining: left as f64,
                isolated: isolated + left as f64 / speed,
            });
        }
        // Gavel's solver also selects one of many optima, so the same method is used.
        Ok(present.iter().copied().zip(by_cone_program(&demands, &progress, gpus)?).collect())
    }
}

fn demand(job: &RoundsJob, speeds: Vec<f64>) -> Demand {
    Demand { jobs: 1, gpus: job.gpus, speeds, weight: 1.0 }
}
