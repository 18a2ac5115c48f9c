//! The experiment `limits`: throughput of burst parallelism by amplification limit.

mod figure;

use clap::Args;
use deeppool::plan::Mode as PlanMode;
use deeppool::simulate::undisturbed;

use crate::experiment::{Experiment, Prepared, prepared};
use crate::job::ForegroundJob;
use crate::options::{PolicyOptions, RunOptions, TestbedOptions};
use crate::report::Report;
use crate::row::{Mode, ReportRow, rows_of_workloads};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "limits";
const TITLE: &str = "Throughput of burst plans by amplification limit";
/// Limits. Those that no plan can keep are left out.
const LIMITS: [f64; 10] = [1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0];

/// Options of the experiment `limits`.
#[derive(Args)]
#[command(after_help = "Limits from 1 to 4: GPU time over the iteration time on one GPU.

Examples:
  experiments limits
  experiments limits --gpus 64 --link dgx-a100-pod --batch 64
  experiments limits --model resnet-50 --batch 64 --out results")]
pub(crate) struct LimitsOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    testbed: TestbedOptions,
    #[command(flatten)]
    sharing: PolicyOptions,
}

impl Experiment for LimitsOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let loosest = LIMITS.into_iter().fold(1.0, f64::max);
        let testbed = self.testbed.testbed(loosest, &self.sharing.policy)?;
        Ok(prepared(move |journal| {
            let rows = rows_of_workloads(&testbed, journal, rows)?;
            let summary = summary(&rows);
            let report = Report::new(NAME, TITLE, &testbed, &undisturbed(), rows, summary);
            Ok(report.drawn_by(figure::draw))
        }))
    }
}

fn rows(job: &ForegroundJob<'_>) -> anyhow::Result<Vec<ReportRow>> {
    let dp = job.foreground(job.testbed.gpus, PlanMode::DataParallel, true)?;
    let dp_alone = job.alone(&dp)?;
    let shared = Mode::DataParallelCollocated;
    let mut rows = vec![
        ReportRow::alone(NAME, job, Mode::DataParallel, &dp, &dp_alone),
        ReportRow::collocated(NAME, job, shared, &dp, &dp_alone, &job.collocated(&dp)?),
        ReportRow::background(NAME, job)?,
    ];
    for burst in job.burst_plans_under(&LIMITS)? {
        let alone = job.alone(&burst)?;
        rows.push(ReportRow::alone(NAME, job, Mode::Burst, &burst, &alone));
        let shared = job.collocated(&burst)?;
        rows.push(ReportRow::collocated(NAME, job, Mode::BurstCollocated, &burst, &alone, &shared));
    }
    Ok(rows)
}

/// Returns the limits at which each network's burst plans are fastest and have the largest total.
fn summary(rows: &[ReportRow]) -> Vec<String> {
    let of_network = |rows: &[ReportRow]| {
        let best = |mode: Mode, rate: fn(&ReportRow) -> f64| {
            let of_mode = rows.iter().filter(|row| row.mode == mode);
            // Prefers the tightest of limits with equal results.
            let best =
                of_mode.reduce(|best, row| if rate(row) > rate(best) * (1.0 + 1e-6) { row } else { best })?;
            Some((rate(best), best.amplification_limit?))
        };
        let dp = rows.iter().find(|row| row.mode == Mode::DataParallel)?;
        let (fastest, fastest_at) = best(Mode::Burst, |row| row.foreground_samples_per_s)?;
        let (largest, largest_at) = best(Mode::BurstCollocated, ReportRow::total_samples_per_s)?;
        Some(format!(
            "{}: DP has amplification {:.2}. BP is fastest from limit {fastest_at} on, {:.2} times as fast \
             as DP. BP+Col has the largest total at limit {largest_at}, {:.2} times DP's.",
            dp.title,
            dp.amplification?,
            fastest / dp.foreground_samples_per_s,
            largest / dp.total_samples_per_s(),
        ))
    };
    rows.chunk_by(|a, b| a.model == b.model).filter_map(of_network).collect()
}
