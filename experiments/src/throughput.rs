//! The experiment `throughput`: data parallelism and burst parallelism, with and without background
//! jobs on the same GPUs, and burst parallelism with split layers.

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
BP: a GPU count for each layer, whose GPUs divide the samples, as in the original, or with all
splits also features, inputs and more. +Col: background jobs on the same GPUs, whenever the
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
    let split = job.split_burst_plan()?;
    let foregrounds = [&dp, &bp, &split, &as_dp];
    let alone = foregrounds.map(|foreground| job.alone(foreground));
    let [dp_alone, bp_alone, split_alone, as_dp_alone] = alone;
    let (dp_alone, bp_alone, split_alone, as_dp_alone) = (dp_alone?, bp_alone?, split_alone?, as_dp_alone?);
    let [dp_shared, bp_shared, split_shared, as_dp_shared] =
        foregrounds.map(|foreground| job.collocated(foreground));
    let (alone, collocated) = (Mode::Burst, Mode::BurstCollocated);
    Ok(vec![
        ReportRow::alone(NAME, job, Mode::DataParallel, &serial, &job.alone(&serial)?),
        ReportRow::alone(NAME, job, Mode::DataParallel, &dp, &dp_alone),
        ReportRow::alone(NAME, job, alone, &bp, &bp_alone),
        ReportRow::alone(NAME, job, alone, &split, &split_alone).with_all_splits(),
        ReportRow::alone(NAME, job, alone, &as_dp, &as_dp_alone).at_dp_amplification(),
        ReportRow::collocated(NAME, job, Mode::DataParallelCollocated, &dp, &dp_alone, &dp_shared?),
        ReportRow::collocated(NAME, job, collocated, &bp, &bp_alone, &bp_shared?),
        ReportRow::collocated(NAME, job, collocated, &split, &split_alone, &split_shared?).with_all_splits(),
        ReportRow::collocated(NAME, job, collocated, &as_dp, &as_dp_alone, &as_dp_shared?)
            .at_dp_amplification(),
        ReportRow::background(NAME, job)?,
    ])
}

/// Returns the row of a network with the given label.
fn labelled<'a>(rows: &'a [ReportRow], label: &str) -> Option<&'a ReportRow> {
    rows.iter().find(|row| row.label() == label)
}

/// Returns the gains of burst parallelism and collocation over data parallelism.
fn summary(rows: &[ReportRow]) -> Vec<String> {
    let over_dp = |what: &str, label: &str, rate: fn(&ReportRow) -> f64| {
        let ratios = rows.chunk_by(|a, b| a.model == b.model).filter_map(|rows| {
            let ratio = rate(labelled(rows, label)?) / rate(labelled(rows, "DP")?);
            Some(format!("{ratio:.2} {}", rows[0].title))
        });
        let heading = format!("{what} samples/s, {label} over DP:");
        format!("{heading:47}{}", ratios.collect::<Vec<_>>().join(", "))
    };
    let total = |label| over_dp("FG + BG", label, ReportRow::total_samples_per_s);
    let foreground = |label| over_dp("FG", label, |row| row.foreground_samples_per_s);
    vec![
        total("BP+Col"),
        total("BG only"),
        total("BP+Col, all splits"),
        total("BP+Col, as DP"),
        total("DP+Col"),
        foreground("BP"),
        foreground("BP, all splits"),
        foreground("BP, as DP"),
        foreground("BP+Col"),
        foreground("BP+Col, all splits"),
        "(DP with overlap. \"as DP\": limited to the amplification that DP has. \"all splits\": layers may \
         be divided by samples, features, inputs and more; otherwise by samples only, as in the original.)"
            .into(),
        format!("The first ratio relative to its ceiling, BG only over DP: {}.", shares_of_ceiling(rows)),
        "It does not consider the foreground's speed: `partition` compares at equal foreground speeds."
            .into(),
        "(The DeepPool paper claims 1.2 to 2.3 times the total throughput of DP, at large scale.)".into(),
    ]
}

/// Returns the total of BP+Col as a percentage of that of background jobs alone.
fn shares_of_ceiling(rows: &[ReportRow]) -> String {
    let share = |rows: &[ReportRow]| {
        let total = |label| Some(labelled(rows, label)?.total_samples_per_s());
        let share = 100.0 * total("BP+Col")? / total("BG only")?;
        Some(format!("{share:.0}% {}", rows[0].title))
    };
    rows.chunk_by(|a, b| a.model == b.model).filter_map(share).collect::<Vec<_>>().join(", ")
}
