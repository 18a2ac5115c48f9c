//! Sources of jobs, and the jobs of a run: those of a draw that have execution times.

use std::time::Duration;

use anyhow::bail;
use cluster_scheduler::trace::{TraceJob, assign, at_load, synthetic};
use cluster_scheduler::{Allocation, Arrival, GpuType, Job, JobId, Mode, Table};

use super::input::JigsawInput;
use super::tables::{COUNTS, Tables};
use crate::left_out::LeftOut;

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

/// A job of Gavel's trace that has a throughput: its number in the draw, its arrival and work, and
/// the job itself.
type GavelArrival = (JobId, TraceJob, Job);

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
    /// cluster until the last arrival. Without the jobs that [`left_out`](Self::left_out) counts.
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
        if self == Self::Gavel {
            let (jobs, _) = gavel_jobs(input, table, seed);
            let timed: Vec<TraceJob> = jobs.iter().map(|(_, timed, _)| *timed).collect();
            let at = at_load(&timed, input.gpus, load);
            let arrivals = jobs.into_iter().zip(at);
            return Ok(arrivals
                .map(|((id, _, job), timed)| Arrival { at: timed.arrival, id, job })
                .collect());
        }
        let (jobs, _) = self.trace_jobs(input, seed);
        let kinds: Vec<_> = table.kinds().collect();
        let jobs = at_load(&jobs, input.gpus, load);
        let mut arrivals = assign(&jobs, table, &kinds, GpuType(0), seed as u64)?;
        for arrival in &mut arrivals {
            arrival.job.other_gpu_counts =
                COUNTS.into_iter().filter(|&count| count < arrival.job.gpus).collect();
        }
        Ok(arrivals)
    }

    /// Counts the jobs of all draws that are left out, and describes them, if there are any.
    /// `gavel` is the table of Gavel's jobs.
    ///
    /// # Errors
    /// If all jobs of a draw are left out.
    pub(super) fn left_out(self, input: &JigsawInput, gavel: &Table) -> anyhow::Result<Option<String>> {
        let mut all = LeftOut::default();
        for seed in 0..input.seeds {
            let of_draw = match self {
                Self::Gavel => gavel_jobs(input, gavel, seed).1,
                Self::Synthetic | Self::Philly => self.trace_jobs(input, seed).1,
            };
            if of_draw.is_everything() {
                let described = of_draw.description(self.name(), "jobs").unwrap_or_default();
                bail!(
                    "{described}: no job is left in draw {seed}; give more --gpus, more --jobs or another \
                     trace"
                );
            }
            all.extend(of_draw);
        }
        Ok(all.description(self.name(), "drawn jobs"))
    }

    /// Returns the jobs of one draw, each on the next power of two of its GPUs, and counts those
    /// that need more GPUs than there are times for.
    pub(super) fn trace_jobs(self, input: &JigsawInput, seed: usize) -> (Vec<TraceJob>, LeftOut) {
        let drawn = if self == Self::Philly {
            stretch(&input.philly[input.skip..], input, seed).to_vec()
        } else {
            synthetic(input.jobs, seed as u64)
        };
        let max_gpus = COUNTS.into_iter().filter(|&count| count <= input.gpus).max().unwrap_or(1);
        let (mut jobs, mut left_out) = (Vec::with_capacity(drawn.len()), LeftOut::default());
        for job in drawn {
            let gpus = job.gpus.next_power_of_two();
            if gpus <= max_gpus {
                left_out.used();
                jobs.push(TraceJob { gpus, ..job });
            } else {
                left_out.add(format!("on more than {max_gpus} GPUs"), format!("{} GPUs", job.gpus));
            }
        }
        (jobs, left_out)
    }
}

/// Returns the part of a trace that a seed selects. Seeds take distant stretches.
fn stretch<'a, T>(trace: &'a [T], input: &JigsawInput, seed: usize) -> &'a [T] {
    let usable = trace.len().saturating_sub(input.jobs).max(1);
    let from = usable / input.seeds * seed;
    &trace[from..trace.len().min(from + input.jobs)]
}

/// Returns Gavel's jobs of one draw in the order of arrival, each with its number of steps, and
/// counts those without a throughput and those that do not fit into the cluster.
fn gavel_jobs(input: &JigsawInput, table: &Table, seed: usize) -> (Vec<GavelArrival>, LeftOut) {
    let (mut jobs, mut left_out) = (Vec::new(), LeftOut::default());
    for (number, job) in stretch(&input.gavel, input, seed).iter().enumerate() {
        let Ok(kind) = table.find(&job.kind) else {
            left_out.add("of kinds without a throughput on V100", format!("`{}`", job.kind));
            continue;
        };
        let allocation = Allocation { gpu_type: GpuType(0), gpus: job.gpus, spread: false };
        let Some(execution) = table.execution(kind, allocation, Mode::DataParallel) else {
            let example = format!("`{}` on {} GPUs", job.kind, job.gpus);
            left_out.add("of kinds without a throughput on their number of V100", example);
            continue;
        };
        if job.gpus > input.gpus {
            left_out.add(format!("on more than {} GPUs", input.gpus), format!("{} GPUs", job.gpus));
            continue;
        }
        left_out.used();
        let iterations = job.steps.div_ceil(job.gpus as u64);
        let timed = TraceJob {
            arrival: Duration::from_secs_f64(job.arrival),
            // The simulator rejects durations of more than a century.
            duration: Duration::from_secs_f64(
                (execution.iteration().as_secs_f64() * iterations as f64).min(1e10),
            ),
            gpus: job.gpus,
        };
        jobs.push((JobId(number as u64), timed, Job::new(kind, iterations, job.gpus)));
    }
    // The trace has one virtual cluster after another, so that a stretch may have jobs of two.
    jobs.sort_by_key(|(_, timed, _)| timed.arrival);
    (jobs, left_out)
}
