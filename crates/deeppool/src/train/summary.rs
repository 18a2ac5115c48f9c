//! Summaries of the ranks at the end of a run, of which the report is made.

use std::time::Duration;

use gpu_mux::Usage;
use serde::{Deserialize, Serialize};

use super::rank::Rank;
use super::{BackgroundReport, HeldMemory, IterationTimes, TrainConfig, TrainReport};
use crate::Error;
use crate::runtime::TrainingBackend;

/// Adds the summaries of all ranks to the report. `elapsed` is the training time of this rank, and
/// `background` are its jobs. All ranks call it.
///
/// # Errors
/// If the communicator fails.
pub(super) fn summarise<B: TrainingBackend>(
    report: &mut TrainReport,
    rank: &mut Rank<'_, B>,
    config: &TrainConfig<'_>,
    memory: HeldMemory,
    (background, elapsed): (Vec<CopySummary>, Duration),
) -> Result<(), Error> {
    let record = rank.take_record();
    report.iteration_times = IterationTimes::new(record.iteration_times);
    report.background = config
        .background
        .iter()
        .map(|job| BackgroundReport {
            network: job.network.name().into(),
            label: job.label(),
            is_joint: job.ranks.is_some(),
            ..BackgroundReport::default()
        })
        .collect();
    let own = RankSummary { memory, usage: record.usage, background, elapsed };
    for (number, summary) in rank.gather_values(&own)?.into_iter().enumerate() {
        summary.add_to(report, number, config.batch());
    }
    Ok(())
}

/// Summary of a rank for the report.
#[derive(Serialize, Deserialize)]
struct RankSummary {
    memory: HeldMemory,
    #[serde(with = "UsageFigures")]
    usage: Usage,
    /// Background jobs of the rank.
    background: Vec<CopySummary>,
    /// Training time.
    elapsed: Duration,
}

/// Summary of a rank's copy of a background job, or of its part of a job on given ranks.
#[derive(Serialize, Deserialize)]
pub(super) struct CopySummary {
    /// Index of the job in the configuration.
    pub(super) job: usize,
    /// Number of samples in this run.
    pub(super) samples: f64,
    /// Number of completed iterations, including those before a checkpoint.
    pub(super) iterations: u64,
    /// Mean loss of the last completed batch.
    pub(super) loss: Option<f64>,
    /// Mean loss of each batch in this run, if the rank records them.
    pub(super) losses: Vec<f64>,
    /// The error that ended the job.
    pub(super) error: Option<String>,
}

/// Serialisation of a [`Usage`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Usage")]
struct UsageFigures {
    elapsed: Duration,
    foreground_busy: Duration,
    background_busy: Duration,
    foreground_tasklets: u64,
    background_tasklets: u64,
    longest_background: Duration,
    #[serde(rename = "over_long")]
    over_limit: u64,
}

impl RankSummary {
    fn add_to(self, report: &mut TrainReport, rank: usize, batch: usize) {
        let seconds = self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        for copy in self.background {
            let Some(job) = report.background.get_mut(copy.job) else { continue };
            report.background_samples_per_s += copy.samples / seconds;
            job.samples_per_s += copy.samples / seconds;
            job.ranks.push(rank);
            if job.is_joint && !job.iterations.is_empty() {
                job.losses[0] = job.losses[0].or(copy.loss);
            } else {
                job.iterations.push(copy.iterations);
                job.losses.push(copy.loss);
            }
            job.history.extend(copy.losses);
            job.errors.extend(copy.error.map(|error| (rank, error)));
        }
        report.usage.push(self.usage);
        report.memory.push(self.memory);
        if rank == 0 {
            report.foreground_samples_per_s = (report.losses.len() * batch) as f64 / seconds;
        }
    }
}
