//! Sources of jobs, and the jobs of a run.

use std::time::Duration;

use cluster_scheduler::trace::{TraceJob, assign, at_load, synthetic};
use cluster_scheduler::{Allocation, Arrival, GpuType, Job, JobId, Mode, Table};

use super::input::JigsawInput;
use super::tables::{COUNTS, Tables};

/// Source of jobs and their arrival times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobSource {
    /// Jobs drawn from quantiles of Philly's trace.
    Synthetic,
    /// Jobs of Microsoft's cluster Philly (Jeon et al., ATC 2019).
    Philly,
    /// Jobs of a trace published with Gavel (Narayanan et al., OSDI 2020).
    Gavel,
}

/// Number of Philly's first jobs that are skipped: the cluster was not in full use yet.
const QUIET: usize = 13_127;

impl JobSource {
    /// Returns the name of the source in rows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::Philly => "Philly",
            Self::Gavel => "Gavel",
        }
    }

    /// Returns the sources whose files exist. Synthetic jobs need none.
    pub(super) fn available(input: &JigsawInput) -> Vec<Self> {
        let mut all = vec![Self::Synthetic];
        if !input.philly.is_empty() {
            all.push(Self::Philly);
        }
        if !input.gavel.is_empty() && !input.gavel_speeds.is_empty() {
            all.push(Self::Gavel);
        }
        all
    }

    /// Returns the table with the execution times of the source's jobs.
    pub(super) fn table(self, tables: &Tables) -> &Table {
        match self {
            Self::Synthetic | Self::Philly => &tables.networks,
            Self::Gavel => &tables.gavel,
        }
    }

    /// Returns the jobs of one draw in the order of arrival. Arrival times are scaled so that the
    /// GPU time that the jobs need alone with data parallelism is `load` times the GPU time of the
    /// cluster until the last arrival. Jobs that need too many GPUs are left out.
    ///
    /// # Errors
    /// If `table` has no execution time for a job.
    pub(super) fn arrivals(
        self,
        input: &JigsawInput,
        table: &Table,
        load: f64,
        seed: usize,
    ) -> anyhow::Result<Vec<Arrival>> {
        let JigsawInput { jobs, gpus, .. } = *input;
        let drawn = match self {
            Self::Synthetic => synthetic(jobs, seed as u64),
            // Seeds take distant stretches of the trace.
            Self::Philly => {
                let usable = input.philly.len().saturating_sub(QUIET + jobs).max(1);
                let from = QUIET.min(input.philly.len()) + usable / input.seeds * seed;
                input.philly.iter().skip(from).take(jobs).copied().collect()
            }
            Self::Gavel => return Ok(Self::gavel(input, table, load, seed)),
        };
        let of_table = |job: TraceJob| TraceJob { gpus: job.gpus.next_power_of_two(), ..job };
        let max_gpus = COUNTS.into_iter().filter(|&count| count <= gpus).max().unwrap_or(1);
        let jobs: Vec<TraceJob> =
            drawn.into_iter().map(of_table).filter(|job| job.gpus <= max_gpus).collect();
        let kinds: Vec<_> = table.kinds().collect();
        let mut arrivals = assign(&at_load(&jobs, gpus, load), table, &kinds, GpuType(0), seed as u64)?;
        for arrival in &mut arrivals {
            arrival.job.other_gpu_counts =
                COUNTS.into_iter().filter(|&count| count < arrival.job.gpus).collect();
        }
        Ok(arrivals)
    }

    /// Returns Gavel's jobs, each with its number of steps.
    fn gavel(input: &JigsawInput, table: &Table, load: f64, seed: usize) -> Vec<Arrival> {
        let usable = input.gavel.len().saturating_sub(input.jobs).max(1);
        let from = usable / input.seeds * seed;
        let mut found = Vec::new();
        for (number, job) in input.gavel.iter().skip(from).take(input.jobs).enumerate() {
            let Ok(kind) = table.find(&job.kind) else { continue };
            let allocation = Allocation { gpu_type: GpuType(0), gpus: job.gpus, spread: false };
            let Some(execution) = table.execution(kind, allocation, Mode::DataParallel) else { continue };
            let iterations = job.steps.div_ceil(job.gpus as u64);
            let timed = TraceJob {
                arrival: Duration::from_secs_f64(job.arrival),
                // The simulator rejects durations of more than a century.
                duration: Duration::from_secs_f64(
                    (execution.iteration().as_secs_f64() * iterations as f64).min(1e10),
                ),
                gpus: job.gpus,
            };
            found.push((JobId(number as u64), timed, Job::new(kind, iterations, job.gpus)));
        }
        // The trace has one virtual cluster after another, so that a stretch may have jobs of two.
        found.sort_by_key(|(_, timed, _)| timed.arrival);
        let timed: Vec<TraceJob> =
            found.iter().map(|(_, timed, _)| *timed).filter(|job| job.gpus <= input.gpus).collect();
        let at = at_load(&timed, input.gpus, load);
        let fitting = found.into_iter().filter(|(_, timed, _)| timed.gpus <= input.gpus);
        fitting.zip(at).map(|((id, _, job), timed)| Arrival { at: timed.arrival, id, job }).collect()
    }
}
