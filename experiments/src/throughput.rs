//! The experiment `throughput`: data parallelism and burst parallelism, with and without background
//! jobs on the same GPUs.

use clap::Args;
use deeppool::plan::Mode as PlanMode;
use deeppool::simulate::undisturbed;

use crate::experiment::{Experiment, Prepared, prepared};
use crate::job::ForegroundJob;
use crate::options::{LimitOptions, PolicyOptions, RunOptions, TestbedOptions};
use crate::report::Report;
use crate::row::{Mode, ReportRow, rows_of_workloads};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "throughput";
const TITLE: &str = "Throughput of one training job and of background jobs";

/// Options of the experiment `throughput`.
#[derive(Args)]
#[command(after_help = "FG is the foreground job, BG are the background jobs. DP: every layer on all GPUs.
BP: a GPU count for each layer. +Col: background jobs on the same GPUs, whenever the
foreground leaves them idle.

Examples:
  experiments throughput
  experiments throughput --gpus 4 --amplification 1.5 --out results
  experiments throughput --gpus 64 --link dgx-a100-pod --batch 64
  experiments throughput --onnx net.onnx --batch 64 --device h100 --gpus 16
  experiments throughput --profile profile.json --batch 32 --link ethernet-25g")]
pub(crate) struct ThroughputOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    testbed: TestbedOptions,
    #[command(flatten)]
    sharing: PolicyOptions,
    #[command(flatten)]
    limit: LimitOptions,
}

impl Experiment for ThroughputOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let testbed = self.testbed.testbed(self.limit.amplification, &self.sharing.policy)?;
        Ok(prepared(move |journal| {
            let rows = rows_of_workloads(&testbed, journal, rows)?;
            let summary = summary(&rows);
            Ok(Report::new(NAME, TITLE, &testbed, &undisturbed(), rows, summary))
        }))
    }
}

fn rows(job: &ForegroundJob<'_>) -> anyhow::Result<Vec<ReportRow>> {
    let gpus = job.testbed.gpus;
    let serial = job.foreground(gpus, PlanMode::DataParallel, false)?;
    let dp = job.foreground(gpus, PlanMode::DataParallel, true)?;
    let [bp, as_dp] = job.burst_plans()?;
    let (dp_alone, bp_alone, as_dp_alone) = (job.alone(&dp)?, job.alone(&bp)?, job.alone(&as_dp)?);
    let shared = [&dp, &bp, &as_dp].map(|foreground| job.collocated(foreground));
    let [dp_shared, bp_shared, as_dp_shared] = shared;
    let (alone, collocated) = (Mode::Burst, Mode::BurstCollocated);
    Ok(vec![
        ReportRow::alone(NAME, job, Mode::DataParallel, &serial, &job.alone(&serial)?),
        ReportRow::alone(NAME, job, Mode::DataParallel, &dp, &dp_alone),
        ReportRow::alone(NAME, job, alone, &bp, &bp_alone),
        ReportRow::alone(NAME, job, alone, &as_dp, &as_dp_alone).at_dp_amplification(),
        ReportRow::collocated(NAME, job, Mode::DataParallelCollocated, &dp, &dp_alone, &dp_shared?),
        ReportRow::collocated(NAME, job, collocated, &bp, &bp_alone, &bp_shared?),
        ReportRow::collocated(NAME, job, collocated, &as_dp, &as_dp_alone, &as_dp_shared?)
            .at_dp_amplification(),
        ReportRow::background(NAME, job)?,
    ])
}

/// Returns the gains of burst parallelism and collocation over data parallelism.
fn summary(rows: &[ReportRow]) -> Vec<String> {
    let over_dp = |mode, limit_is_dp, rate: fn(&ReportRow) -> f64| {
        let ratios = rows.chunk_by(|a, b| a.model == b.model).filter_map(|rows| {
            let dp = rows.iter().find(|row| row.mode == Mode::DataParallel && row.overlap == Some(true))?;
            let row = rows.iter().find(|row| row.mode == mode && row.limit_is_dp == limit_is_dp)?;
            Some(format!("{:.2} {}", rate(row) / rate(dp), row.title))
        });
        ratios.collect::<Vec<_>>().join(", ")
    };
    let total = ReportRow::total_samples_per_s;
    let foreground = |row: &ReportRow| row.foreground_samples_per_s;
    let (bp, col) = (Mode::Burst, Mode::BurstCollocated);
    vec![
        format!("FG + BG samples/s, BP+Col over DP:          {}", over_dp(col, false, total)),
        format!("FG + BG samples/s, BG only over DP:         {}", over_dp(Mode::Background, false, total)),
        format!("FG + BG samples/s, BP+Col, as DP, over DP:  {}", over_dp(col, true, total)),
        format!(
            "FG + BG samples/s, DP+Col over DP:          {}",
            over_dp(Mode::DataParallelCollocated, false, total)
        ),
        format!("FG samples/s,      BP over DP:              {}", over_dp(bp, false, foreground)),
        format!("FG samples/s,      BP, as DP, over DP:      {}", over_dp(bp, true, foreground)),
        format!("FG samples/s,      BP+Col over DP:          {}", over_dp(col, false, foreground)),
        "(DP with overlap. \"as DP\": limited to the amplification that DP has.)".into(),
        format!("The first ratio relative to its ceiling, BG only over DP: {}.", shares_of_ceiling(rows)),
        "It does not consider the foreground's speed: `partition` compares at equal foreground speeds."
            .into(),
        "(The DeepPool paper claims 1.2 to 2.3 times the total throughput of DP, at large scale.)".into(),
    ]
}

/// Returns the total of BP+Col as a percentage of that of background jobs alone.
fn shares_of_ceiling(rows: &[ReportRow]) -> String {
    let share = |rows: &[ReportRow]| {
        let total = |mode| {
            let row = rows.iter().find(|row| row.mode == mode && !row.limit_is_dp)?;
            Some(row.total_samples_per_s())
        };
        let share = 100.0 * total(Mode::BurstCollocated)? / total(Mode::Background)?;
        Some(format!("{share:.0}% {}", rows[0].title))
    };
    rows.chunk_by(|a, b| a.model == b.model).filter_map(share).collect::<Vec<_>>().join(", ")
}
