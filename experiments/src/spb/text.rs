//! Results of the experiment `spb` as text. The *target* is a test accuracy, to which epochs are
//! counted.

use std::collections::BTreeMap;

use comfy_table::Table;

use super::learning::LearningRow;
use super::sharing::{LIMIT, SharingRow};
use super::{GPUS, NAME, Spb, TARGET};
use crate::outcome::Outcome;
use crate::statistics::median;
use crate::text_table::{printed, text_table};

/// Summary of a method over all seeds.
pub(super) struct MethodSummary<'r> {
    /// Label of the method.
    pub(super) method: &'r str,
    /// Compute of one epoch, in epochs of full backpropagation.
    pub(super) compute_share: f64,
    /// Number of epochs to the target, by seed. `None` if a run did not reach it.
    pub(super) epochs_to_target: Vec<Option<u64>>,
    /// Test accuracy after the last epoch, from 0 to 1, by seed.
    pub(super) last: Vec<f64>,
}

/// Returns the summaries of a network's methods, in the order of its rows.
pub(super) fn methods<'r>(rows: &[&'r LearningRow]) -> Vec<MethodSummary<'r>> {
    let of_method = |rows: &[&'r LearningRow]| {
        let runs: Vec<&[&LearningRow]> = rows.chunk_by(|a, b| a.seed == b.seed).collect();
        let reached =
            |run: &&[&LearningRow]| run.iter().find(|row| row.test_accuracy >= TARGET).map(|row| row.epoch);
        MethodSummary {
            method: &rows[0].method,
            compute_share: rows[0].compute_share,
            epochs_to_target: runs.iter().map(reached).collect(),
            last: runs.iter().filter_map(|run| run.last()).map(|row| row.test_accuracy).collect(),
        }
    };
    rows.chunk_by(|a, b| a.method == b.method).map(of_method).collect()
}

impl MethodSummary<'_> {
    /// Returns the median over the seeds, or `None` if fewer than half reach the target.
    fn epochs(&self) -> Option<f64> {
        let middle =
            median(self.epochs_to_target.iter().map(|epochs| epochs.map_or(f64::INFINITY, |at| at as f64)));
        middle.is_finite().then_some(middle)
    }

    fn reached(&self) -> usize {
        self.epochs_to_target.iter().flatten().count()
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), &value| (min.min(value), max.max(value)))
}

impl Spb {
    /// Formats the origin of the numbers, the tables and the findings.
    pub(super) fn printed(&self) -> String {
        let learning = self.learning();
        let mut parts = vec![format!("{} ({NAME})\n{}", self.title(), self.provenance().join("\n"))];
        for rows in learning.chunk_by(|a, b| a.model == b.model) {
            let table = printed(&learning_table(&methods(rows)));
            parts
                .push(format!("{}: test accuracy by epochs, and epochs to {TARGET}\n{table}", rows[0].title));
        }
        let table = printed(&sharing_table(&self.sharing()));
        parts.push(format!(
            "With a background job on each of {GPUS} GPUs; burst plans within amplification {LIMIT}\n{table}"
        ));
        parts.push(self.summary().join("\n"));
        parts.join("\n\n") + "\n"
    }

    /// Returns the findings, one line each.
    pub(super) fn summary(&self) -> Vec<String> {
        let learning = self.learning();
        let mut found = Vec::new();
        for rows in learning.chunk_by(|a, b| a.model == b.model) {
            let methods = methods(rows);
            let Some((whole, others)) = methods.split_first() else { continue };
            found.extend(others.iter().map(|method| against(&rows[0].title, whole, method)));
        }
        let sharing = self.sharing();
        let mut by_model: BTreeMap<&str, Vec<&SharingRow>> = BTreeMap::new();
        for row in sharing {
            by_model.entry(&row.model).or_default().push(row);
        }
        for rows in by_model.values() {
            found.extend(largest_total(rows));
        }
        found
    }
}

fn against(network: &str, whole: &MethodSummary<'_>, method: &MethodSummary<'_>) -> String {
    let seeds = method.epochs_to_target.len();
    let epochs = match (whole.epochs(), method.epochs()) {
        (Some(whole), Some(other)) => format!(
            "reaches {TARGET} after {other} epochs at the median, full backpropagation after {whole}; \
             compute to the \
             target is {:.2} times that of full backpropagation",
            other * method.compute_share / whole
        ),
        (Some(_), None) => format!("reaches {TARGET} with {} of {seeds} seeds only", method.reached()),
        _ => format!("full backpropagation did not reach {TARGET} with most seeds"),
    };
    let off = median(method.last.iter().copied()) - median(whole.last.iter().copied());
    let (min, max) = range(&whole.last);
    let middle = median(method.last.iter().copied());
    let is_within = middle >= min && middle <= max;
    format!(
        "{network}, {}: {:.0}% of the compute; {epochs}; final accuracy {:+.1} points, {} the spread of full \
         backpropagation's seeds.",
        method.method,
        100.0 * method.compute_share,
        100.0 * off,
        if is_within { "within" } else { "outside" }
    )
}

/// Describes the method with the largest total throughput, and its foreground.
fn largest_total(rows: &[&SharingRow]) -> Option<String> {
    let total = |row: &SharingRow| row.foreground_samples_per_s + row.background_samples_per_s;
    let whole = |mode: &str| rows.iter().find(|row| row.mode == mode && row.method == "whole");
    let (dp, bp) = (whole("dp+col")?, whole("bp+col")?);
    let best =
        rows.iter().filter(|row| row.method != "whole").max_by(|a, b| total(a).total_cmp(&total(b)))?;
    Some(format!(
        "{}, batch {}: {} by {} gives {:.0} samples/s in total, {:.2} times DP+Col's and {:.2} times \
         BP+Col's. Its foreground has {:.2} and {:.2} times theirs, but its iterations learn from fewer \
         gradients.",
        best.title,
        best.batch,
        best.method,
        if best.mode == "bp+col" { "BP+Col" } else { "DP+Col" },
        total(best),
        total(best) / total(dp),
        total(best) / total(bp),
        best.foreground_samples_per_s / dp.foreground_samples_per_s,
        best.foreground_samples_per_s / bp.foreground_samples_per_s,
    ))
}

fn learning_table(methods: &[MethodSummary<'_>]) -> Table {
    let mut table = text_table(
        [
            "way\n",
            "compute\nan epoch",
            "epochs to target\nmedian",
            "min\nto max",
            "seeds that\nreach it",
            "accuracy\nat the end",
            "min\nto max",
        ],
        1..,
    );
    for method in methods {
        let reached: Vec<f64> = method.epochs_to_target.iter().flatten().map(|&epoch| epoch as f64).collect();
        let (first, last) = range(&reached);
        let (min, max) = range(&method.last);
        table.add_row([
            method.method.to_owned(),
            format!("{:.0}%", 100.0 * method.compute_share),
            method.epochs().map_or("-".into(), |epochs| epochs.to_string()),
            if reached.is_empty() { "-".into() } else { format!("{first} to {last}") },
            format!("{} of {}", method.reached(), method.epochs_to_target.len()),
            format!("{:.1}%", 100.0 * median(method.last.iter().copied())),
            format!("{:.1} to {:.1}%", 100.0 * min, 100.0 * max),
        ]);
    }
    table
}

fn sharing_table(rows: &[&SharingRow]) -> Table {
    let mut table = text_table(
        [
            "model\n",
            "mode\n",
            "way\n",
            "alone\nms/iteration",
            "amplification\n",
            "computing\nover DP's",
            "FG\nsamples/s",
            "BG\nsamples/s",
            "FG + BG\nsamples/s",
            "FG slowdown\ncollocated/alone",
        ],
        3..,
    );
    for (index, of_model) in rows.chunk_by(|a, b| a.model == b.model).enumerate() {
        if index > 0 {
            table.add_row([""]);
        }
        for (index, row) in of_model.iter().enumerate() {
            table.add_row([
                if index == 0 { row.title.clone() } else { String::new() },
                if row.mode == "bp+col" { "BP+Col".into() } else { "DP+Col".into() },
                row.method.clone(),
                format!("{:.2}", row.iteration_us / 1e3),
                format!("{:.2}", row.amplification),
                format!("{:.0}%", 100.0 * row.computing_share),
                format!("{:.0}", row.foreground_samples_per_s),
                format!("{:.0}", row.background_samples_per_s),
                format!("{:.0}", row.foreground_samples_per_s + row.background_samples_per_s),
                format!("{:.3}", row.foreground_slowdown),
            ]);
        }
    }
    table
}
