//! Fair shares, realized in rounds: the job with the largest share divided by received time runs
//! first. A *share* of a job on a type of GPU is the fraction of time in which it is to run there.
//! Jobs are given by the indices of their entries; times are in nanoseconds.

use rustc_hash::FxHashMap;

use super::entry::Entry;
use crate::fair::{Demand, Progress, finish_time, max_min, proportional};
use crate::nanos::{nanos, seconds};
use crate::policy::{Fair, Objective};
use crate::{Cluster, Error, GpuType};

/// Shares of the active jobs under a fair policy, and the time for which they have run on each type
/// of GPU.
#[derive(Debug)]
pub(super) struct FairShares {
    fair: Fair,
    gpus: Vec<usize>,
    has_changed: bool,
    /// Time of the last computation of shares.
    found_at: Option<u64>,
    jobs: FxHashMap<usize, JobShare>,
}

/// A job's shares by type of GPU, and its GPU time since the last computation of shares.
#[derive(Debug, Clone)]
struct JobShare {
    shares: Vec<f64>,
    had: Vec<u64>,
    /// Seconds that its completed work takes on 1/n of the cluster.
    isolated: f64,
    /// The basis of the last update of `isolated`: remaining iterations, and iterations per second.
    last: Option<(u64, f64)>,
}

impl FairShares {
    /// Creates shares without jobs. `fair` has the parameters of the policy.
    pub(super) fn new(fair: Fair, cluster: &Cluster) -> Self {
        let gpus = (0..cluster.types().len() as u16).map(|of_type| cluster.gpus_of(GpuType(of_type)));
        Self { fair, gpus: gpus.collect(), has_changed: false, found_at: None, jobs: FxHashMap::default() }
    }

    /// Returns the interval at which jobs take turns, in nanoseconds.
    pub(super) fn round(&self) -> u64 {
        nanos(self.fair.round)
    }

    /// Adds a job. Its shares are zero until they are next computed.
    pub(super) fn arrive(&mut self, job: usize) {
        let none = vec![0.0; self.gpus.len()];
        let had = vec![0; self.gpus.len()];
        self.jobs.insert(job, JobShare { shares: none, had, isolated: 0.0, last: None });
        self.has_changed = true;
    }

    /// Removes a job. The shares of the others remain until they are next computed.
    pub(super) fn leave(&mut self, job: usize) {
        self.jobs.remove(&job);
        self.has_changed = true;
    }

    /// Records that a job has run for `time` on GPUs of a type. The number of its GPUs does not
    /// matter.
    pub(super) fn account(&mut self, job: usize, gpu_type: GpuType, time: u64) {
        if let Some(job_share) = self.jobs.get_mut(&job) {
            job_share.had[gpu_type.index()] += time;
        }
    }

    /// Returns pairs of a job and a type of GPU on which it has a share: type by type, and for each
    /// type in decreasing order of share divided by received time. A job may occur for several
    /// types. Recomputes the shares if jobs have arrived or left and the minimum validity has
    /// passed. `order` has the active jobs, `entries` all entries.
    ///
    /// # Errors
    /// [`Error::Unsolved`] if the solver fails.
    pub(super) fn priorities(
        &mut self,
        now: u64,
        order: &[usize],
        entries: &[Entry],
    ) -> Result<Vec<(usize, GpuType)>, Error> {
        let is_due = self.found_at.is_none_or(|at| now - at >= nanos(self.fair.hold));
        if is_due && std::mem::take(&mut self.has_changed) {
            self.find_shares(now, order, entries)?;
            self.found_at = Some(now);
        }
        // The received time starts at half a round, as in Gavel, and is never zero.
        let start = self.round() / 2;
        let mut all = Vec::new();
        for of_type in 0..self.gpus.len() {
            let mut of_type: Vec<(f64, usize, GpuType)> = order
                .iter()
                .filter_map(|index| {
                    let job_share = self.jobs.get(index)?;
                    let priority = job_share.shares[of_type] / (start + job_share.had[of_type]) as f64;
                    // Interior-point solvers return no exact zeros.
                    (job_share.shares[of_type] > 1e-6).then_some((priority, *index, GpuType(of_type as u16)))
                })
                .collect();
            of_type.sort_by(|a, b| b.0.total_cmp(&a.0));
            all.extend(of_type.into_iter().map(|(_, index, of_type)| (index, of_type)));
        }
        Ok(all)
    }

    fn find_shares(&mut self, now: u64, order: &[usize], entries: &[Entry]) -> Result<(), Error> {
        let demands: Vec<Demand> =
            order.iter().map(|&index| demand(&entries[index], self.gpus.len())).collect();
        let wanted: usize = demands.iter().map(|demand| demand.gpus).sum();
        let shares = match self.fair.objective {
            // All jobs run all the time; no program has to be solved.
            _ if self.gpus.len() == 1 && wanted <= self.gpus[0] => vec![vec![1.0]; demands.len()],
            Objective::MaxMin => self.max_min(&demands)?,
            Objective::FinishTime => self.finish_time(now, order, entries, &demands)?,
        };
        for (index, shares) in order.iter().zip(shares) {
            if let Some(job_share) = self.jobs.get_mut(index) {
                job_share.had.fill(0);
                job_share.shares = shares;
            }
        }
        Ok(())
    }

    /// Identical jobs are one demand, so the size of the program is the number of distinct demands.
    fn max_min(&self, demands: &[Demand]) -> Result<Vec<Vec<f64>>, Error> {
        let mut classes: Vec<Demand> = Vec::new();
        let mut known: FxHashMap<(usize, u64, Vec<bool>), usize> = FxHashMap::default();
        let mut class_of = Vec::with_capacity(demands.len());
        for demand in demands {
            let runs = demand.speeds.iter().map(|&speed| speed > 0.0).collect();
            let class = *known.entry((demand.gpus, demand.weight.to_bits(), runs)).or_insert_with(|| {
                classes.push(Demand { jobs: 0, ..demand.clone() });
                classes.len() - 1
            });
            classes[class].jobs += 1;
            class_of.push(class);
        }
        let shares = max_min(&classes, &self.gpus)?;
        Ok(class_of.into_iter().map(|class| shares[class].clone()).collect())
    }

    fn finish_time(
        &mut self,
        now: u64,
        order: &[usize],
        entries: &[Entry],
        demands: &[Demand],
    ) -> Result<Vec<Vec<f64>>, Error> {
        let speeds = proportional(demands, &self.gpus);
        let mut progress = Vec::with_capacity(order.len());
        for (&index, &speed) in order.iter().zip(&speeds) {
            let (remaining, arrived) = (entries[index].remaining, entries[index].arrived);
            let Some(job_share) = self.jobs.get_mut(&index) else { continue };
            if let Some((before, speed)) = job_share.last {
                job_share.isolated += (before - remaining) as f64 / speed;
            }
            job_share.last = Some((remaining, speed));
            progress.push(Progress {
                elapsed: seconds(now - arrived),
                remaining: remaining as f64,
                isolated: job_share.isolated + remaining as f64 / speed,
            });
        }
        finish_time(demands, &progress, &self.gpus)
    }
}

fn demand(entry: &Entry, types: usize) -> Demand {
    let mut speeds = vec![0.0; types];
    for option in entry.options.iter().filter(|option| option.gpus == entry.job.gpus) {
        speeds[option.gpu_type.index()] = 1.0 / seconds(option.iteration);
    }
    Demand { jobs: 1, gpus: entry.job.gpus, speeds, weight: entry.job.weight }
}
