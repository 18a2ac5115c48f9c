//! Sharing every GPU against giving some to the foreground and the rest to background jobs.

use deeppool::plan::Mode as PlanMode;
use deeppool::simulate::undisturbed;

use crate::job::{Job, for_each_workload};
use crate::report::Report;
use crate::row::{Mode, Row};
use crate::testbed::Testbed;

pub(crate) const NAME: &str = "partition";
const TITLE: &str = "Sharing all GPUs against static partitions";

pub(crate) fn run(testbed: &Testbed) -> anyhow::Result<Report> {
    let rows = for_each_workload(testbed, rows)?;
    let summary = summary(&rows);
    Ok(Report::new(NAME, TITLE, testbed, &undisturbed(), rows, summary))
}

fn rows(job: &Job<'_>) -> anyhow::Result<Vec<Row>> {
    let gpus = job.testbed.gpus;
    let bp = job.foreground(gpus, job.testbed.burst(), true)?;
    let (alone, shared) = (job.alone(&bp)?, job.collocated(&bp)?);
    let mut rows = vec![Row::collocated(NAME, job, Mode::BurstCollocated, &bp, &alone, &shared)];
    for part in foreground_parts(gpus) {
        let dp = job.foreground(part, PlanMode::DataParallel, true)?;
        rows.push(Row::partition(NAME, job, part, &dp, &job.alone(&dp)?)?);
    }
    Ok(rows)
}

/// How many GPUs the foreground gets: 1, 2, 4, ... and all.
fn foreground_parts(gpus: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |part| Some(part * 2)).take_while(move |&part| part < gpus).chain([gpus])
}

/// Where BP+Col stands against two partitions: the one whose foreground is nearest in speed, and the one with most
/// samples of both jobs.
fn summary(rows: &[Row]) -> Vec<String> {
    let of_model = |rows: &[Row]| {
        let (bp, partitions) = rows.split_first()?;
        let gap = |row: &Row| (row.foreground_samples_per_s / bp.foreground_samples_per_s).ln().abs();
        let nearest = partitions.iter().min_by(|a, b| gap(a).total_cmp(&gap(b)))?;
        let total = Row::total_samples_per_s;
        let most = partitions.iter().max_by(|a, b| total(a).total_cmp(&total(b)))?;
        let over = |row: &Row| {
            let foreground = bp.foreground_samples_per_s / row.foreground_samples_per_s;
            format!("{foreground:.2} and {:.2} of {}", total(bp) / total(row), row.label())
        };
        let (nearest, most) = (over(nearest), over(most));
        Some(format!("  {:12}  {nearest} (nearest FG), {most} (highest FG + BG)", bp.title))
    };
    let heading = "BP+Col, its FG and its FG + BG samples/s, over static partitions:".into();
    std::iter::once(heading).chain(rows.chunk_by(|a, b| a.model == b.model).filter_map(of_model)).collect()
}
