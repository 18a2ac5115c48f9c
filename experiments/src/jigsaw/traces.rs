//! The jobs.

use std::time::Duration;

use cluster_scheduler::trace::{TraceJob, assign, at_load, synthetic};
use cluster_scheduler::{Allocation, Arrival, GpuType, Job, JobId, Mode, Table};

use super::options::Question;
use super::tables::{COUNTS, Tables};

/// Where jobs are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Synthetic,
    Philly,
    Gavel,
}

/// Jobs of Philly's before the cluster was in full use.
const QUIET: usize = 13_127;

impl Source {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::Philly => "Philly",
            Self::Gavel => "Gavel",
        }
    }

    /// Those whose files are there.
    pub(super) fn all(question: &Question) -> Vec<Self> {
        let mut all = vec![Self::Synthetic];
        if !question.philly.is_empty() {
            all.push(Self::Philly);
        }
        if !question.gavel.is_empty() && !question.gavel_speeds.is_empty() {
            all.push(Self::Gavel);
        }
        all
    }

    pub(super) fn table(self, tables: &Tables) -> &Table {
        match self {
            Self::Synthetic | Self::Philly => &tables.networks,
            Self::Gavel => &tables.gavel,
        }
    }

    /// Jobs of one of the draws at a load.
    pub(super) fn arrivals(
        self,
        question: &Question,
        table: &Table,
        load: f64,
        seed: usize,
    ) -> anyhow::Result<Vec<Arrival>> {
        let Question { jobs, gpus, .. } = *question;
        let drawn = match self {
            Self::Synthetic => synthetic(jobs, seed as u64),
            // Stretches of the trace that are far from each other.
            Self::Philly => {
                let usable = question.philly.len().saturating_sub(QUIET + jobs).max(1);
                let from = QUIET.min(question.philly.len()) + usable / question.seeds * seed;
                question.philly.iter().skip(from).take(jobs).copied().collect()
            }
            Self::Gavel => return Ok(Self::gavel(question, table, load, seed)),
        };
        let of_table = |job: TraceJob| TraceJob { gpus: job.gpus.next_power_of_two(), ..job };
        let most = COUNTS.into_iter().filter(|&count| count <= gpus).max().unwrap_or(1);
        let jobs: Vec<TraceJob> = drawn.into_iter().map(of_table).filter(|job| job.gpus <= most).collect();
        let kinds: Vec<_> = table.kinds().collect();
        let mut arrivals = assign(&at_load(&jobs, gpus, load), table, &kinds, GpuType(0), seed as u64)?;
        for arrival in &mut arrivals {
            arrival.job.other_gpu_counts =
                COUNTS.into_iter().filter(|&count| count < arrival.job.gpus).collect();
        }
        Ok(arrivals)
    }

    /// Gavel's jobs, each with the steps that it has.
    fn gavel(question: &Question, table: &Table, load: f64, seed: usize) -> Vec<Arrival> {
        let usable = question.gavel.len().saturating_sub(question.jobs).max(1);
        let from = usable / question.seeds * seed;
        let mut found = Vec::new();
        for (number, job) in question.gavel.iter().skip(from).take(question.jobs).enumerate() {
            let Ok(kind) = table.find(&job.kind) else { continue };
            let allocation = Allocation { gpu_type: GpuType(0), gpus: job.gpus, spread: false };
            let Some(execution) = table.execution(kind, allocation, Mode::DataParallel) else { continue };
            let iterations = job.steps.div_ceil(job.gpus as u64);
            let timed = TraceJob {
                arrival: Duration::from_secs_f64(job.arrival),
                // What is longer than a century is refused where it is simulated.
                duration: Duration::from_secs_f64(
                    (execution.iteration().as_secs_f64() * iterations as f64).min(1e10),
                ),
                gpus: job.gpus,
            };
            found.push((JobId(number as u64), timed, Job::new(kind, iterations, job.gpus)));
        }
        // Virtual clusters follow each other in the trace: a stretch may have jobs of two.
        found.sort_by_key(|(_, timed, _)| timed.arrival);
        let timed: Vec<TraceJob> =
            found.iter().map(|(_, timed, _)| *timed).filter(|job| job.gpus <= question.gpus).collect();
        let at = at_load(&timed, question.gpus, load);
        let fitting = found.into_iter().filter(|(_, timed, _)| timed.gpus <= question.gpus);
        fitting.zip(at).map(|((id, _, job), timed)| Arrival { at: timed.arrival, id, job }).collect()
    }
}
