//! Several jobs on the links of one cluster, by placement.

use anyhow::Context;
use collectives::LinkModel;
use deeppool::plan::Mode;
use deeppool::simulate::{
    ClusterJob, ClusterOptions, GpuPlacement, JobGpus, SharedJob, SimulateOptions, place_jobs,
    simulate_cluster,
};
use serde::{Deserialize, Serialize};

use super::windows::mean;
use crate::job::ForegroundJob;
use crate::layer_times::LayerTimes;
use crate::testbed::Testbed;
use crate::workload::Workload;

/// Number of GPUs of the cluster.
pub(super) const CLUSTER_GPUS: usize = 64;
/// Number of GPUs of a job: one and a half hosts, so that placements differ.
pub(super) const JOB_GPUS: usize = 12;
/// Samples of a job's global batch for each of its GPUs.
pub(super) const SAMPLES_PER_GPU: usize = 8;
/// Numbers of jobs on the cluster.
const JOBS: [usize; 2] = [2, 4];
/// Placements, in the order of rows.
pub(super) const PLACEMENTS: [GpuPlacement; 3] =
    [GpuPlacement::Packed, GpuPlacement::Spread, GpuPlacement::ByHost];

/// Equal jobs on one cluster with one placement.
#[derive(Debug, Clone)]
pub(super) struct PlacementCase {
    /// Network with the global batch of a job.
    pub(super) workload: Workload,
    /// Links of the cluster.
    pub(super) link: LinkModel,
    jobs: usize,
    placement: GpuPlacement,
}

/// Equal jobs beside each other, and each alone on the same GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PlacementRow {
    /// Name of the network.
    pub(super) model: String,
    /// Display name of the network.
    pub(super) title: String,
    /// Number of GPUs of the cluster.
    pub(super) gpus: usize,
    /// Name of the link model.
    pub(super) link: String,
    /// Samples of a job's global batch.
    pub(super) batch: usize,
    /// Kind of the jobs' plans, as in other reports.
    pub(super) mode: String,
    /// Number of GPUs of each job.
    pub(super) gpus_per_job: usize,
    /// Number of jobs.
    pub(super) jobs: usize,
    /// Rule by which the jobs get their GPUs.
    pub(super) placement: GpuPlacement,
    /// Mean time of an iteration of a job without the others, as a mean of the jobs.
    pub(super) alone_iteration_us: f64,
    /// Mean time of an iteration of a job beside the others, as a mean of the jobs.
    pub(super) iteration_us: f64,
    /// Iteration time beside the others divided by that alone, as a mean of the jobs.
    pub(super) slowdown: f64,
    /// The same for the job that is slowed down the most.
    pub(super) max_slowdown: f64,
    /// Throughput of all jobs together in samples/s.
    pub(super) total_samples_per_s: f64,
    /// Fraction of the time in which the busiest link between hosts is busy; `None` with links
    /// inside a host only.
    pub(super) max_busy_between_hosts: Option<f64>,
}

impl PlacementCase {
    /// Returns the cases of all networks and link models.
    ///
    /// # Errors
    /// If a link model connects fewer GPUs than the cluster has.
    pub(super) fn all(workloads: &[Workload], links: &[LinkModel]) -> anyhow::Result<Vec<Self>> {
        let mut cases = Vec::new();
        for link in links {
            link.check_ranks(CLUSTER_GPUS)?;
            for workload in workloads {
                let workload = Workload { batch: SAMPLES_PER_GPU * JOB_GPUS, ..workload.clone() };
                for jobs in JOBS {
                    cases.extend(PLACEMENTS.map(|placement| Self {
                        workload: workload.clone(),
                        link: link.clone(),
                        jobs,
                        placement,
                    }));
                }
            }
        }
        Ok(cases)
    }

    /// Simulates the jobs.
    ///
    /// # Errors
    /// If layer times are missing, the jobs do not fit on the cluster, or the simulation fails.
    pub(super) fn row(&self, times: &LayerTimes) -> anyhow::Result<PlacementRow> {
        let Self { workload, link, jobs, placement } = self;
        let testbed = Testbed::without_workloads(times.clone(), link.clone(), JOB_GPUS, 1.0);
        let job = ForegroundJob::new(workload.clone(), &testbed)?;
        let foreground = job.foreground(JOB_GPUS, Mode::DataParallel, true)?;
        let job = job.job(true);
        let plan = job.lower(foreground.plan)?;
        let program = plan.training().for_simulation()?;
        let names: Vec<String> = (1..=*jobs).map(|number| format!("job {number}")).collect();
        let asked: Vec<(&str, JobGpus)> =
            names.iter().map(|name| (name.as_str(), JobGpus::Placed(JOB_GPUS, *placement))).collect();
        let places = place_jobs(CLUSTER_GPUS, link.ranks_per_host().unwrap_or(1), &asked)?;
        let of_place =
            |(name, gpus): (&String, Vec<usize>)| ClusterJob::new(name, program, job.costs(), gpus);
        let placed: Vec<ClusterJob<'_>> = names.iter().zip(places).map(of_place).collect();
        let options = ClusterOptions::new(SimulateOptions::default());
        let shared = simulate_cluster(link, CLUSTER_GPUS, &placed, &options)?;
        let of_jobs = |value: fn(&SharedJob) -> f64| mean(shared.jobs.iter().map(value)).context("no jobs");
        Ok(PlacementRow {
            model: workload.network.name().into(),
            title: workload.title.clone(),
            gpus: CLUSTER_GPUS,
            link: link.name().into(),
            batch: workload.batch,
            mode: "dp".into(),
            gpus_per_job: JOB_GPUS,
            jobs: *jobs,
            placement: *placement,
            alone_iteration_us: of_jobs(|job| job.alone.iteration.as_secs_f64() * 1e6)?,
            iteration_us: of_jobs(|job| job.beside.iteration.as_secs_f64() * 1e6)?,
            slowdown: of_jobs(SharedJob::slowdown)?,
            max_slowdown: shared.jobs.iter().map(SharedJob::slowdown).fold(0.0, f64::max),
            total_samples_per_s: shared.jobs.iter().map(|job| job.beside.foreground_samples_per_s).sum(),
            max_busy_between_hosts: max_busy(&shared.levels),
        })
    }
}

/// Returns the fraction of the time in which the busiest link beyond the hosts is busy; `None`
/// without such links.
fn max_busy(levels: &[deeppool::simulate::LevelUse]) -> Option<f64> {
    levels.iter().skip(1).map(|level| level.max_busy).reduce(f64::max)
}
