//! Cost of scheduling rounds: Gavel's 500 reference jobs on 32 V100, scheduled in rounds as by
//! Gavel, or at every arrival and completion.

use std::time::Duration;

use anyhow::{Context, bail};
use cluster_scheduler::rounds::{FifoFaults, RoundsJob, RoundsOptions, RoundsPolicy, simulate};
use cluster_scheduler::trace::GavelJob;
use cluster_scheduler::{
    Arrival, Cluster, Execution, GpuType, Job, JobId, Mode, Policy, SimulationOptions, Table,
};
use serde::{Deserialize, Serialize};

use super::input::JigsawInput;
use crate::journal::Journal;

const GPUS: usize = 32;

/// Result of one schedule of Gavel's 500 jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RoundsRow {
    /// Name of the policy. `fifo` is the policy of that name in Gavel's simulator, which may
    /// assign more GPUs than there are; `fifo, strict` is first come, first served.
    pub(super) policy: String,
    /// Description of the times at which the scheduler assigns GPUs.
    pub(super) pace: String,
    /// Mean time from arrival to completion in seconds.
    pub(super) mean_jct_s: f64,
    /// Time at which the last job ends, in seconds from time 0.
    pub(super) makespan_s: f64,
    /// Mean completion time by Gavel's own simulator in seconds. `None` if it was not run with this
    /// configuration.
    pub(super) gavel_mean_jct_s: Option<f64>,
}

/// Times at which the scheduler assigns GPUs, and its policy.
enum Pace {
    /// At the start of each scheduling round of Gavel.
    Rounds(RoundsPolicy),
    /// At every arrival and completion.
    Events(Policy),
}

/// Simulates the schedules. Empty if the files of the jobs are missing.
///
/// # Errors
/// If a simulation fails, or if a job has no throughput.
pub(super) fn rows(input: &JigsawInput, journal: &Journal) -> anyhow::Result<Vec<RoundsRow>> {
    if input.gavel_reference.is_empty() || input.gavel_speeds.is_empty() {
        return Ok(Vec::new());
    }
    let s = Duration::from_secs;
    let (max_min, finish_time) = (Policy::max_min_fairness(), Policy::finish_time_fairness());
    let gavels = "rounds of 360 s, shares hold 1,920 s";
    let configurations: Vec<(&str, &str, Pace, Option<f64>)> = vec![
        ("fifo", gavels, Pace::Rounds(RoundsPolicy::Fifo(FifoFaults::GAVEL)), Some(90_091.9)),
        ("fifo, strict", gavels, Pace::Rounds(RoundsPolicy::Fifo(FifoFaults::NONE)), Some(100_201.0)),
        ("fifo, strict", "at every event", Pace::Events(Policy::fifo()), None),
        ("max-min", gavels, Pace::Rounds(RoundsPolicy::MaxMinFairness), Some(67_269.1)),
        (
            "max-min",
            "turns of 360 s, shares at every event",
            Pace::Events(max_min.clone().with_rounds(s(360), s(0))),
            None,
        ),
        (
            "max-min",
            "turns of 60 s, shares at every event",
            Pace::Events(max_min.with_rounds(s(60), s(0))),
            None,
        ),
        ("finish-time", gavels, Pace::Rounds(RoundsPolicy::FinishTimeFairness), None),
        (
            "finish-time",
            "turns of 360 s, shares at every event",
            Pace::Events(finish_time.with_rounds(s(360), s(0))),
            None,
        ),
    ];
    journal.results("Gavel's jobs", &configurations, |(policy, pace, how, gavel)| {
        let (mean_jct_s, makespan_s) = match how {
            Pace::Rounds(policy) => in_rounds(input, *policy)?,
            Pace::Events(policy) => at_events(input, policy)?,
        };
        let (policy, pace) = ((*policy).to_owned(), (*pace).to_owned());
        Ok(RoundsRow { policy, pace, mean_jct_s, makespan_s, gavel_mean_jct_s: *gavel })
    })
}

/// Checks that every job of the comparison has a throughput and fits into the cluster. It is of the
/// same jobs as Gavel's own results, so that none can be left out.
///
/// # Errors
/// The first job that has none or does not fit.
pub(super) fn check(input: &JigsawInput) -> anyhow::Result<()> {
    let all = &input.gavel_reference;
    let is_unusable = |job: &&GavelJob| job.gpus > GPUS || speed(input, job) <= 0.0;
    if let Some(job) = all.iter().filter(|_| !input.gavel_speeds.is_empty()).find(is_unusable) {
        let count = all.iter().filter(is_unusable).count();
        bail!(
            "Gavel's reference jobs: {count} of {} have no throughput on their number of V100, or need more \
             than {GPUS}, such as `{}` on {} GPUs: add the throughputs, or remove the file",
            all.len(),
            job.kind,
            job.gpus
        );
    }
    Ok(())
}

fn speed(input: &JigsawInput, job: &GavelJob) -> f64 {
    let mut speeds = input.gavel_speeds.iter();
    let found =
        speeds.find(|speed| speed.gpu_type == "v100" && speed.kind == job.kind && speed.gpus == job.gpus);
    found.map_or(0.0, |speed| speed.steps_per_s)
}

fn in_rounds(input: &JigsawInput, policy: RoundsPolicy) -> anyhow::Result<(f64, f64)> {
    let jobs: Vec<RoundsJob> = input
        .gavel_reference
        .iter()
        .map(|job| RoundsJob {
            arrival: job.arrival,
            gpus: job.gpus,
            steps: job.steps,
            speeds: vec![speed(input, job)],
        })
        .collect();
    let report = simulate(&jobs, &[GPUS], policy, &RoundsOptions::default())?;
    Ok((report.mean(), report.makespan))
}

fn at_events(input: &JigsawInput, policy: &Policy) -> anyhow::Result<(f64, f64)> {
    let mut table = Table::new();
    let mut arrivals = Vec::new();
    for (number, job) in input.gavel_reference.iter().enumerate() {
        let kind = table.kind(&job.kind);
        let iteration = Duration::try_from_secs_f64(job.gpus as f64 / speed(input, job));
        let iteration =
            iteration.with_context(|| format!("no throughput of {} on {} V100", job.kind, job.gpus))?;
        table.set(kind, GpuType(0), Mode::DataParallel, Execution::full(job.gpus, iteration)?);
        let (at, iterations) = (Duration::from_secs_f64(job.arrival), job.steps.div_ceil(job.gpus as u64));
        arrivals.push(Arrival { at, id: JobId(number as u64), job: Job::new(kind, iterations, job.gpus) });
    }
    // Placement makes no difference to these jobs.
    let cluster = Cluster::uniform("v100", 1, GPUS)?;
    let report =
        cluster_scheduler::simulate(&cluster, &table, policy, &arrivals, &SimulationOptions::default())?;
    Ok((report.mean_completion(), report.makespan.as_secs_f64()))
}
