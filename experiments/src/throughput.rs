//! Data parallelism and burst parallelism, with and without background jobs on the same GPUs.

use deeppool::plan::Mode as PlanMode;
use deeppool::simulate::undisturbed;

use crate::job::{Job, for_each_workload};
use crate::report::Report;
use crate::row::{Mode, Row};
use crate::testbed::Testbed;

pub(crate) const NAME: &str = "throughput";
const TITLE: &str = "Throughput of one training job and of background jobs";

pub(crate) fn run(testbed: &Testbed) -> anyhow::Result<Report> {
    let rows = for_each_workload(testbed, rows)?;
    let summary = summary(&rows);
    Ok(Report::new(NAME, TITLE, testbed, &undisturbed(), rows, summary))
}

fn rows(job: &Job<'_>) -> anyhow::Result<Vec<Row>> {
    let gpus = job.testbed.gpus;
    let serial = job.foreground(gpus, PlanMode::DataParallel, false)?;
    let dp = job.foreground(gpus, PlanMode::DataParallel, true)?;
    let bp = job.foreground(gpus, job.testbed.burst(), true)?;
    let (dp_alone, bp_alone) = (job.alone(&dp)?, job.alone(&bp)?);
    let (dp_shared, bp_shared) = (job.collocated(&dp)?, job.collocated(&bp)?);
    Ok(vec![
        Row::alone(NAME, job, Mode::DataParallel, &serial, &job.alone(&serial)?),
        Row::alone(NAME, job, Mode::DataParallel, &dp, &dp_alone),
        Row::alone(NAME, job, Mode::Burst, &bp, &bp_alone),
        Row::collocated(NAME, job, Mode::DataParallelCollocated, &dp, &dp_alone, &dp_shared),
        Row::collocated(NAME, job, Mode::BurstCollocated, &bp, &bp_alone, &bp_shared),
        Row::background(NAME, job)?,
    ])
}

/// What collocation is worth against plain data parallelism, on either plan, and what the foreground pays for it.
fn summary(rows: &[Row]) -> Vec<String> {
    let over_dp = |mode, rate: fn(&Row) -> f64| {
        let ratios = rows.chunk_by(|a, b| a.model == b.model).filter_map(|rows| {
            let dp = rows.iter().find(|row| row.mode == Mode::DataParallel && row.overlap == Some(true))?;
            let row = rows.iter().find(|row| row.mode == mode)?;
            Some(format!("{:.2} {}", rate(row) / rate(dp), row.title))
        });
        ratios.collect::<Vec<_>>().join(", ")
    };
    let total = Row::total_samples_per_s;
    let foreground = |row: &Row| row.foreground_samples_per_s;
    vec![
        format!("FG + BG samples/s, BP+Col over DP:  {}", over_dp(Mode::BurstCollocated, total)),
        format!("FG + BG samples/s, DP+Col over DP:  {}", over_dp(Mode::DataParallelCollocated, total)),
        format!("FG samples/s,      BP+Col over DP:  {}", over_dp(Mode::BurstCollocated, foreground)),
        "(DP with overlap. The DeepPool paper claims 1.2 to 2.3 times the total throughput of DP, at large scale.)"
            .into(),
    ]
}
