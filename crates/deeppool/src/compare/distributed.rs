//! Background jobs on several GPUs each, beside the same work in jobs on one GPU each and beside
//! partitions.

use serde::Serialize;

use super::{Comparison, SharingMode};
use crate::Error;
use crate::costs::Costs;
use crate::job::{Job, LoweredPlan};
use crate::simulate::{DistributedBackground, SimulateOptions, Simulation, background_ranks, simulate_plan};

/// Throughput of background jobs on several GPUs each, of the same work in jobs on one GPU each,
/// and of a partition, in samples per second. The jobs are simulated beside the same plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DistributedGain {
    /// Number of GPUs of each background job.
    pub gpus_per_job: usize,
    /// Number of background jobs. Together they have all GPUs, up to a remainder.
    pub jobs: usize,
    /// Number of jobs whose GPUs are idle together for long enough to communicate.
    pub jobs_with_windows: usize,
    /// Foreground throughput beside these jobs.
    pub foreground_samples_per_s: f64,
    /// Background throughput of these jobs.
    pub distributed_samples_per_s: f64,
    /// Foreground throughput beside jobs on one GPU each.
    pub single_foreground_samples_per_s: f64,
    /// Background throughput of jobs on one GPU each, on the same GPUs, with the same number of
    /// samples on each.
    pub single_samples_per_s: f64,
    /// Maximum background throughput of a partition with at least the foreground throughput beside
    /// the distributed jobs; `None` if no partition is as fast. Its background jobs have one GPU
    /// each, so they do not communicate.
    pub partition_samples_per_s: Option<f64>,
}

impl DistributedGain {
    /// Simulates as many jobs with a global batch of `batch` on `gpus_per_job` GPUs each as fit on
    /// the GPUs of a plan, and the same work in jobs on one GPU each. `background` are the costs of
    /// the jobs' network, `comparison` is that of the same foreground.
    ///
    /// # Errors
    /// [`Error::Setting`] if a job has more GPUs than the plan, or fewer samples than GPUs.
    /// Otherwise as [`simulate_plan`] and [`DistributedBackground::data_parallel`].
    pub fn new(
        (job, plan): (&Job<'_>, &LoweredPlan<'_>),
        (background, batch, gpus_per_job): (&Costs<'_>, usize, usize),
        comparison: &Comparison,
        options: &SimulateOptions,
    ) -> Result<Self, Error> {
        if gpus_per_job == 0 || gpus_per_job > plan.gpus.min(batch) {
            return Err(Error::Setting {
                setting: "the number of GPUs of a background job",
                expected: "at most the GPUs of the plan and the samples of the job's batch",
                got: gpus_per_job.to_string(),
            });
        }
        let options = options.clone().without_background();
        let alone = simulate_plan(job, plan, &options)?;
        let jobs = plan.gpus / gpus_per_job;
        let sets = background_ranks(&alone, &vec![gpus_per_job; jobs]);
        let of_set = |ranks: &Vec<usize>| DistributedBackground::data_parallel(background, batch, ranks);
        let distributed = sets.iter().map(of_set).collect::<Result<Vec<_>, Error>>()?;
        let samples = batch.div_ceil(gpus_per_job);
        let of_rank = |&rank: &usize| DistributedBackground::data_parallel(background, samples, &[rank]);
        let single = sets.iter().flatten().map(of_rank).collect::<Result<Vec<_>, Error>>()?;
        let beside = |jobs: Vec<DistributedBackground>| -> Result<Simulation, Error> {
            simulate_plan(job, plan, &options.clone().with_distributed(jobs))
        };
        let has_collectives: Vec<bool> =
            distributed.iter().map(DistributedBackground::has_collectives).collect();
        let (distributed, single) = (beside(distributed)?, beside(single)?);
        let foreground = distributed.foreground_samples_per_s;
        let met = distributed.distributed.iter().zip(has_collectives);
        Ok(Self {
            gpus_per_job,
            jobs,
            jobs_with_windows: met.filter(|(job, has)| !has || job.collectives > 0).count(),
            foreground_samples_per_s: foreground,
            distributed_samples_per_s: distributed.background_samples_per_s,
            single_foreground_samples_per_s: single.foreground_samples_per_s,
            single_samples_per_s: single.background_samples_per_s,
            partition_samples_per_s: comparison
                .envelope(&[SharingMode::Partition])
                .total_at(foreground)
                .map(|total| total - foreground),
        })
    }
}
