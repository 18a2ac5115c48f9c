//! Results as tables and findings.

use deeppool::simulate::GpuPlacement;

use super::{PlacementRow, Sharing, WindowRow, placements};
use crate::text_table::{printed, text_table};

/// Text of a value that does not exist.
const NONE: &str = "none";

impl Sharing {
    /// Formats the origin of the numbers, the tables and the findings.
    pub(super) fn printed(&self) -> String {
        format!(
            "Background jobs on several GPUs, and several jobs on one network ({})\n{}\n\n{}\n\n{}\n\n{}\n",
            self.header.experiment,
            self.provenance().join("\n"),
            window_table(&self.rows),
            placement_table(&self.placements),
            self.summary().join("\n"),
        )
    }

    /// Returns the findings, one line each.
    pub(super) fn summary(&self) -> Vec<String> {
        let windows = self.rows.chunk_by(|a, b| (&a.model, a.gpus) == (&b.model, b.gpus)).map(of_foreground);
        let mut groups: Vec<(&str, usize)> = Vec::new();
        for row in &self.placements {
            let group = (row.link.as_str(), row.jobs);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        let placements = groups.into_iter().map(|(link, jobs)| {
            let is_asked = |row: &&PlacementRow| row.link == link && row.jobs == jobs;
            of_placements(link, jobs, &self.placements.iter().filter(is_asked).collect::<Vec<_>>())
        });
        let heading = format!("Several jobs of {} GPUs on one network:", placements::JOB_GPUS);
        windows.chain([heading]).chain(placements).collect()
    }
}

fn slower(slowdown: f64) -> String {
    // Adding 0 turns -0 into 0.
    format!("{:.1}%", (1000.0 * (slowdown - 1.0)).round() / 10.0 + 0.0)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

fn or_none(value: Option<String>) -> String {
    value.unwrap_or_else(|| NONE.into())
}

/// Describes how many jobs communicate in windows.
fn windows(row: &WindowRow) -> String {
    match row.jobs_with_windows {
        None => "not needed".into(),
        Some(0) => "never meet".into(),
        Some(jobs) => format!("{jobs} of {} jobs", row.jobs),
    }
}

/// Describes the foreground speed of the best partition.
fn partition_speed(row: &WindowRow, samples_per_s: f64) -> String {
    let mark = if row.partition_is_as_fast { "" } else { "*" };
    format!("{samples_per_s:.0}{mark}")
}

fn window_table(rows: &[WindowRow]) -> String {
    let mut table = text_table(
        [
            "model\n",
            "GPUs\n(batch)",
            "BG jobs\nx GPUs",
            "FG slower,\nmedian",
            "\n99th percentile",
            "FG\nsamples/s",
            "BG\nsamples/s",
            "windows\n",
            "\nof the time",
            "\nused",
            "FG + BG\nsamples/s",
            "best partition\nFG samples/s",
            "\nFG + BG",
            "FG + BG over\npartition",
        ],
        1..,
    );
    for row in rows {
        table.add_row([
            row.title.clone(),
            format!("{} ({})", row.gpus, row.batch),
            format!("{} x {}", row.jobs, row.gpus_per_job),
            slower(row.foreground_slowdown_median),
            slower(row.foreground_slowdown_p99),
            format!("{:.0}", row.foreground_samples_per_s),
            format!("{:.0}", row.background_samples_per_s),
            windows(row),
            percent(row.window_share),
            or_none(row.used_share_of_windows.map(percent)),
            format!("{:.0}", row.total_samples_per_s),
            or_none(row.partition_foreground_samples_per_s.map(|rate| partition_speed(row, rate))),
            or_none(row.partition_samples_per_s.map(|total| format!("{total:.0}"))),
            or_none(row.total_over_partition.map(|over| format!("{over:.2}"))),
        ]);
    }
    let note = "* the fastest partition: none has a foreground as fast as beside these jobs, within 1%";
    let has_note = rows.iter().any(|row| !row.partition_is_as_fast);
    if has_note { format!("{}\n{note}", printed(&table)) } else { printed(&table) }
}

fn placement_table(rows: &[PlacementRow]) -> String {
    let mut table = text_table(
        [
            "links\n",
            "model\n",
            "jobs\nx GPUs",
            "placement\n",
            "ms/iteration\nalone",
            "\nbeside",
            "slower\nmean",
            "\nat most",
            "all jobs\nsamples/s",
            "busiest link\nbetween hosts",
        ],
        2..,
    );
    for row in rows {
        table.add_row([
            row.link.clone(),
            row.title.clone(),
            format!("{} x {}", row.jobs, row.gpus_per_job),
            name(row.placement).into(),
            format!("{:.2}", row.alone_iteration_us / 1e3),
            format!("{:.2}", row.iteration_us / 1e3),
            slower(row.slowdown),
            slower(row.max_slowdown),
            format!("{:.0}", row.total_samples_per_s),
            or_none(row.max_busy_between_hosts.map(percent)),
        ]);
    }
    printed(&table)
}

/// Returns the name of a placement, as in files.
fn name(placement: GpuPlacement) -> &'static str {
    match placement {
        GpuPlacement::Packed => "packed",
        GpuPlacement::Spread => "spread",
        GpuPlacement::ByHost => "by host",
    }
}

/// Describes the background jobs of one foreground, by their size.
fn of_foreground(rows: &[WindowRow]) -> String {
    let [first, ..] = rows else { return String::new() };
    let max = |value: fn(&WindowRow) -> f64| rows.iter().map(value).fold(1.0, f64::max);
    let of_size = |row: &WindowRow| {
        let over = or_none(row.total_over_partition.map(|over| format!("{over:.2}")));
        let never = if row.windows_never_meet() { " (windows never meet)" } else { "" };
        format!("{} GPU{}: {over}{never}", row.gpus_per_job, if row.gpus_per_job == 1 { "" } else { "s" })
    };
    let of_which = if rows.iter().all(|row| row.partition_is_as_fast) {
        ""
    } else {
        ", or the fastest where none is as fast"
    };
    format!(
        "{} on {} GPUs: the foreground is at most {} slower in the median and {} at the 99th percentile. \
         Total over that of the best partition as fast{of_which}, by GPUs of a background job: {}.",
        first.title,
        first.gpus,
        slower(max(|row| row.foreground_slowdown_median)),
        slower(max(|row| row.foreground_slowdown_p99)),
        rows.iter().map(of_size).collect::<Vec<_>>().join("; "),
    )
}

/// Describes the slow-downs of jobs on one network by placement, over all networks that they train.
fn of_placements(link: &str, jobs: usize, rows: &[&PlacementRow]) -> String {
    let of_placement = |placement: GpuPlacement| {
        let slowdowns = || rows.iter().filter(|row| row.placement == placement).map(|row| row.slowdown);
        let max = slowdowns().fold(1.0, f64::max);
        let min = slowdowns().fold(max, f64::min);
        let (min, max) = (slower(min), slower(max));
        let range = if min == max { max } else { format!("{min} to {max}") };
        format!("{range} {}", name(placement))
    };
    let placements = placements::PLACEMENTS.map(of_placement).join(", ");
    format!("{link}, {jobs} jobs: slower beside each other than alone by {placements}.")
}
