//! Sharing every GPU against giving some to the foreground and the rest to background jobs.

use deeppool::simulate::undisturbed;

use crate::job::{Job, for_each_workload};
use crate::report::Report;
use crate::row::{Mode, Row};
use crate::testbed::Testbed;

pub(crate) const NAME: &str = "partition";
/// Foregrounds whose speeds differ by less, relatively, are as fast.
const ROUNDING: f64 = 1e-6;
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
        if let Some(dp) = job.part(part)? {
            rows.push(Row::partition(NAME, job, part, &dp, &job.alone(&dp)?)?);
        }
    }
    Ok(rows)
}

/// How many GPUs the foreground gets: 1, 2, 4, ... and all.
pub(crate) fn foreground_parts(gpus: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |part| Some(part * 2)).take_while(move |&part| part < gpus).chain([gpus])
}

/// Where BP+Col stands against static partitions: the one that gives most to both jobs of those whose foreground is as fast,
/// which is what it competes with; and the one that gives most to both of all.
fn summary(rows: &[Row]) -> Vec<String> {
    let of_model = |rows: &[Row]| {
        let (bp, partitions) = rows.split_first()?;
        let (total, foreground) = (Row::total_samples_per_s, |row: &Row| row.foreground_samples_per_s);
        let most = |a: &&Row, b: &&Row| total(a).total_cmp(&total(b));
        let is_as_fast = |row: &&Row| foreground(row) >= foreground(bp) * (1.0 - ROUNDING);
        let over = |row: &Row| {
            let ratio = |rate: fn(&Row) -> f64| rate(bp) / rate(row);
            let (foreground, total) = (ratio(|row| row.foreground_samples_per_s), ratio(total));
            format!("{foreground:.2} and {total:.2} of {}", row.label())
        };
        let competitor = partitions.iter().filter(is_as_fast).max_by(most).map(over);
        let competitor = competitor.unwrap_or_else(|| "none".into());
        let highest = over(partitions.iter().max_by(most)?);
        let title = &bp.title;
        Some(format!("  {title:12}  {competitor} (best with an FG as fast), {highest} (highest FG + BG)"))
    };
    let heading = "BP+Col, its FG and its FG + BG samples/s, over static partitions:".into();
    std::iter::once(heading).chain(rows.chunk_by(|a, b| a.model == b.model).filter_map(of_model)).collect()
}
