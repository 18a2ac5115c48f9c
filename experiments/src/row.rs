//! Rows of the simulation reports: one workload in one mode. A *testbed* is the simulated machine
//! with its jobs.
//!
//! The time of a GPU has three parts. The foreground *computes*; or it *only communicates*, that
//! is, transfers without computing; or it is *idle*, that is, waits for other GPUs or has no work.

use std::time::Duration;

use anyhow::Context;
use deeppool::simulate::{SimulatedActivity, Simulation};
use serde::{Deserialize, Serialize};

use crate::job::{Foreground, ForegroundJob};
use crate::journal::Journal;
use crate::statistics::percentile;
use crate::testbed::Testbed;
use crate::workload::Workload;

/// Way to share the GPUs between the foreground and background jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// Data parallelism, without background jobs.
    #[serde(rename = "dp")]
    DataParallel,
    /// Data parallelism, with background jobs on the same GPUs.
    #[serde(rename = "dp+col")]
    DataParallelCollocated,
    /// A burst plan, without background jobs.
    #[serde(rename = "bp")]
    Burst,
    /// A burst plan, with background jobs on the same GPUs.
    #[serde(rename = "bp+col")]
    BurstCollocated,
    /// A background job on each GPU, without a foreground.
    #[serde(rename = "bg")]
    Background,
}

/// One result: a line of the table, a record of the CSV file, an entry of the report and a bar of
/// the figure. Fields that do not apply to a mode are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReportRow {
    /// Name of the experiment.
    pub(crate) experiment: String,
    /// Name of the network that foreground and background train.
    pub(crate) model: String,
    /// Display name of the network.
    #[serde(skip)]
    pub(crate) title: String,
    /// Number of GPUs of the machine.
    pub(crate) gpus: usize,
    /// Number of GPUs that the foreground may use.
    pub(crate) foreground_gpus: usize,
    /// Number of GPUs that run a background job.
    pub(crate) background_gpus: usize,
    /// Samples of the foreground's global batch.
    pub(crate) batch: usize,
    /// Samples of each background job's batch.
    pub(crate) background_batch: usize,
    /// Name of the setting, in experiments that compare settings; otherwise `None`.
    pub(crate) setting: Option<String>,
    /// Way to share the GPUs.
    pub(crate) mode: Mode,
    /// Name of the GPU-sharing policy, in experiments that compare policies; otherwise `None`.
    pub(crate) policy: Option<String>,
    /// Whether the gradient all-reduces overlap the backward pass. `None` without a foreground.
    pub(crate) overlap: Option<bool>,
    /// Amplification limit under which the plan was made. `None` if there was none.
    pub(crate) amplification_limit: Option<f64>,
    /// Whether the amplification limit is the amplification of data parallelism instead of a given
    /// number.
    pub(crate) limit_is_dp: bool,
    /// Whether layers of the plan may be split in all ways, instead of by samples only.
    pub(crate) all_splits: bool,
    /// Amplification of the plan, by the planner's evaluation. `None` without a foreground.
    pub(crate) amplification: Option<f64>,
    /// Simulated mean iteration time in microseconds. `None` without a foreground.
    pub(crate) iteration_us: Option<f64>,
    /// Iteration time by the planner's evaluation in microseconds. `None` without a foreground.
    pub(crate) planned_iteration_us: Option<f64>,
    /// Gap to the planner's lower bound under the same limit: planned time / bound - 1. `None` if
    /// the planner has no bound.
    pub(crate) gap: Option<f64>,
    /// Throughput of the foreground in samples/s; 0 without a foreground.
    pub(crate) foreground_samples_per_s: f64,
    /// Throughput of all background jobs together in samples/s.
    pub(crate) background_samples_per_s: f64,
    /// Mean iteration time in this mode, divided by that without background jobs. `None` without a
    /// foreground.
    pub(crate) foreground_slowdown: Option<f64>,
    /// Median iteration time in this mode, divided by that without background jobs. `None` without
    /// a foreground.
    pub(crate) foreground_slowdown_median: Option<f64>,
    /// 99th percentile of the iteration times in this mode, divided by that without background
    /// jobs. `None` without a foreground.
    pub(crate) foreground_slowdown_p99: Option<f64>,
    /// Fraction of the foreground's computing time during which a background job is on the GPU.
    /// `None` unless both run, and without such time.
    pub(crate) background_share_of_computing: Option<f64>,
    /// Fraction of the time in which the foreground only communicates during which a background job
    /// is on the GPU. `None` unless both run, and without such time.
    pub(crate) background_share_of_communicating: Option<f64>,
    /// Fraction of the foreground's idle time during which a background job is on the GPU. `None`
    /// unless both run, and without such time.
    pub(crate) background_share_of_idle: Option<f64>,
    /// Fraction of all GPUs' time in which either job computes.
    pub(crate) gpu_busy_fraction: f64,
    /// Fraction of all GPUs' time in which the foreground computes.
    pub(crate) computing_fraction: f64,
    /// Fraction of all GPUs' time in which the foreground only communicates.
    pub(crate) communicating_fraction: f64,
    /// Fraction of all GPUs' time in which the foreground is idle. The three fractions add up to 1.
    pub(crate) idle_fraction: f64,
    /// Background samples processed while the foreground computes, divided by the whole time, in
    /// samples/s.
    pub(crate) background_computing_samples_per_s: f64,
    /// Background samples processed while the foreground only communicates, divided by the whole
    /// time, in samples/s.
    pub(crate) background_communicating_samples_per_s: f64,
    /// Background samples processed while the foreground is idle, divided by the whole time, in
    /// samples/s. The three add up to `background_samples_per_s`.
    pub(crate) background_idle_samples_per_s: f64,
}

impl ReportRow {
    /// Returns the row of background jobs on all GPUs without a foreground, for the experiment of
    /// that name.
    ///
    /// # Errors
    /// If layer times for the background's batch are missing.
    pub(crate) fn background(experiment: &str, job: &ForegroundJob<'_>) -> anyhow::Result<Self> {
        let gpus = job.testbed.gpus;
        let background_samples_per_s = job.background_samples_per_s(gpus)?;
        Ok(Self {
            experiment: experiment.into(),
            model: job.workload.network.name().into(),
            title: job.workload.title.clone(),
            gpus,
            foreground_gpus: 0,
            background_gpus: gpus,
            batch: job.workload.batch,
            background_batch: job.workload.background_batch,
            setting: None,
            mode: Mode::Background,
            policy: None,
            overlap: None,
            amplification_limit: None,
            limit_is_dp: false,
            all_splits: false,
            amplification: None,
            iteration_us: None,
            planned_iteration_us: None,
            gap: None,
            foreground_samples_per_s: 0.0,
            background_samples_per_s,
            foreground_slowdown: None,
            foreground_slowdown_median: None,
            foreground_slowdown_p99: None,
            background_share_of_computing: None,
            background_share_of_communicating: None,
            background_share_of_idle: None,
            // Tasklets of the background follow each other without a gap.
            gpu_busy_fraction: 1.0,
            computing_fraction: 0.0,
            communicating_fraction: 0.0,
            idle_fraction: 1.0,
            background_computing_samples_per_s: 0.0,
            background_communicating_samples_per_s: 0.0,
            background_idle_samples_per_s: background_samples_per_s,
        })
    }

    /// Returns the row of a foreground on all GPUs without background jobs. `alone` is its
    /// simulation.
    pub(crate) fn alone(
        experiment: &str,
        job: &ForegroundJob<'_>,
        mode: Mode,
        foreground: &Foreground,
        alone: &Simulation,
    ) -> Self {
        let iteration_us = alone.iteration.as_nanos() as f64 / 1e3;
        let SimulatedActivity { computing, communicating, idle } = alone.activity;
        let all = (computing + communicating + idle).as_secs_f64();
        let part = |time: Duration| if all > 0.0 { time.as_secs_f64() / all } else { 0.0 };
        Self {
            experiment: experiment.into(),
            model: job.workload.network.name().into(),
            title: job.workload.title.clone(),
            gpus: job.testbed.gpus,
            foreground_gpus: job.testbed.gpus,
            background_gpus: 0,
            batch: job.workload.batch,
            background_batch: job.workload.background_batch,
            setting: None,
            mode,
            policy: None,
            overlap: Some(foreground.plan.lowering.overlap_all_reduce),
            amplification_limit: foreground.plan.amplification_limit,
            limit_is_dp: false,
            all_splits: false,
            amplification: Some(foreground.plan.amplification),
            iteration_us: Some(iteration_us),
            planned_iteration_us: Some(foreground.plan.iteration_us),
            gap: foreground.plan.gap,
            foreground_samples_per_s: alone.foreground_samples_per_s,
            background_samples_per_s: 0.0,
            foreground_slowdown: Some(1.0),
            foreground_slowdown_median: Some(1.0),
            foreground_slowdown_p99: Some(1.0),
            background_share_of_computing: None,
            background_share_of_communicating: None,
            background_share_of_idle: None,
            gpu_busy_fraction: alone.gpu_busy_fraction,
            computing_fraction: part(computing),
            communicating_fraction: part(communicating),
            idle_fraction: part(idle),
            background_computing_samples_per_s: 0.0,
            background_communicating_samples_per_s: 0.0,
            background_idle_samples_per_s: 0.0,
        }
    }

    /// Returns the row of a foreground on all GPUs with a background job on each. `alone` and
    /// `collocated` are the simulations without and with background jobs.
    pub(crate) fn collocated(
        experiment: &str,
        job: &ForegroundJob<'_>,
        mode: Mode,
        foreground: &Foreground,
        alone: &Simulation,
        collocated: &Simulation,
    ) -> Self {
        let rates = collocated.background_by_activity;
        let slowdown = collocated.iteration.as_secs_f64() / alone.iteration.as_secs_f64();
        Self {
            background_gpus: job.testbed.gpus,
            background_samples_per_s: collocated.background_samples_per_s,
            foreground_slowdown: Some(slowdown),
            foreground_slowdown_median: slowdown_at(0.5, collocated, alone),
            foreground_slowdown_p99: slowdown_at(0.99, collocated, alone),
            background_share_of_computing: collocated.background_share_of_computing,
            background_share_of_communicating: collocated.background_share_of_communicating,
            background_share_of_idle: collocated.background_share_of_idle,
            background_computing_samples_per_s: rates.computing,
            background_communicating_samples_per_s: rates.communicating,
            background_idle_samples_per_s: rates.idle,
            ..Self::alone(experiment, job, mode, foreground, collocated)
        }
    }

    /// Returns the row marked as a burst plan whose limit is the amplification of data parallelism.
    pub(crate) fn at_dp_amplification(self) -> Self {
        Self { limit_is_dp: true, ..self }
    }

    /// Returns the row marked as a burst plan whose layers may be split in all ways.
    pub(crate) fn with_all_splits(self) -> Self {
        Self { all_splits: true, ..self }
    }

    /// Returns the row's label among the rows of its network: the policy's name if it has one, or
    /// else the mode, such as `BP+Col`.
    pub(crate) fn label(&self) -> String {
        if let Some(policy) = &self.policy {
            return policy.clone();
        }
        let plan = match (self.limit_is_dp, self.all_splits) {
            (true, _) => ", as DP",
            (false, true) => ", all splits",
            (false, false) => "",
        };
        match (self.mode, self.overlap) {
            (Mode::DataParallel, Some(false)) => "DP, no overlap".into(),
            (Mode::DataParallel, ..) => "DP".into(),
            (Mode::DataParallelCollocated, ..) => "DP+Col".into(),
            (Mode::Burst, ..) => format!("BP{plan}"),
            (Mode::BurstCollocated, ..) => format!("BP+Col{plan}"),
            (Mode::Background, ..) => "BG only".into(),
        }
    }

    /// Returns the throughput of the foreground and the background together, in samples/s.
    pub(crate) fn total_samples_per_s(&self) -> f64 {
        self.foreground_samples_per_s + self.background_samples_per_s
    }
}

/// Returns the rows of every workload of a testbed, computed by `rows`. Workloads run in parallel;
/// their rows are in the testbed's order.
///
/// # Errors
/// If `rows` fails for a workload, or if its layer times are missing; the message begins with its
/// display name.
pub(crate) fn rows_of_workloads(
    testbed: &Testbed,
    journal: &Journal,
    rows: impl Fn(&ForegroundJob<'_>) -> anyhow::Result<Vec<ReportRow>> + Sync,
) -> anyhow::Result<Vec<ReportRow>> {
    let by_workload: Vec<Vec<ReportRow>> = journal.results("networks", &testbed.workloads, |workload| {
        let job = ForegroundJob::new(workload.clone(), testbed);
        job.and_then(|job| rows(&job)).with_context(|| workload.title.clone())
    })?;
    let titled = |(workload, rows): (&Workload, Vec<ReportRow>)| {
        let title = workload.title.clone();
        rows.into_iter().map(move |row| ReportRow { title: title.clone(), ..row })
    };
    Ok(testbed.workloads.iter().zip(by_workload).flat_map(titled).collect())
}

/// Returns the ratio of a percentile of the iterations' times, collocated over alone. Returns
/// `None` if there are no iterations or the time alone is zero.
fn slowdown_at(part: f64, collocated: &Simulation, alone: &Simulation) -> Option<f64> {
    let time = |simulation: &Simulation| {
        let seconds = percentile(simulation.iterations.iter().map(Duration::as_secs_f64), part)?;
        (seconds > 0.0).then_some(seconds)
    };
    Some(time(collocated)? / time(alone)?)
}
