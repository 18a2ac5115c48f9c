//! What was found, as text.

use std::collections::BTreeMap;

use comfy_table::Table;

use super::learning::LearningRow;
use super::sharing::{LIMIT, SharingRow};
use super::{GPUS, NAME, Spb, TARGET};
use crate::outcome::Outcome;
use crate::statistics::median;
use crate::text_table::{printed, text_table};

/// What all seeds of a way came to.
pub(super) struct OfWay<'r> {
    pub(super) way: &'r str,
    pub(super) compute_share: f64,
    /// By seed: the epoch that first reached the target.
    pub(super) epochs_to_target: Vec<Option<u64>>,
    /// By seed: the accuracy after the last epoch.
    pub(super) last: Vec<f64>,
}

/// The ways of a network, in the order of its rows.
pub(super) fn ways<'r>(rows: &[&'r LearningRow]) -> Vec<OfWay<'r>> {
    let of_way = |rows: &[&'r LearningRow]| {
        let runs: Vec<&[&LearningRow]> = rows.chunk_by(|a, b| a.seed == b.seed).collect();
        let reached =
            |run: &&[&LearningRow]| run.iter().find(|row| row.test_accuracy >= TARGET).map(|row| row.epoch);
        OfWay {
            way: &rows[0].way,
            compute_share: rows[0].compute_share,
            epochs_to_target: runs.iter().map(reached).collect(),
            last: runs.iter().filter_map(|run| run.last()).map(|row| row.test_accuracy).collect(),
        }
    };
    rows.chunk_by(|a, b| a.way == b.way).map(of_way).collect()
}

impl OfWay<'_> {
    /// The middle one of all seeds; none where less than half reach the target.
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
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| (least.min(value), most.max(value)))
}

impl Spb {
    pub(super) fn printed(&self) -> String {
        let learning = self.learning();
        let mut parts = vec![format!("{} ({NAME})\n{}", self.title(), self.provenance().join("\n"))];
        for rows in learning.chunk_by(|a, b| a.model == b.model) {
            let table = printed(&learning_table(&ways(rows)));
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

    /// What the numbers come to.
    pub(super) fn summary(&self) -> Vec<String> {
        let learning = self.learning();
        let mut found = Vec::new();
        for rows in learning.chunk_by(|a, b| a.model == b.model) {
            let ways = ways(rows);
            let Some((whole, others)) = ways.split_first() else { continue };
            found.extend(others.iter().map(|way| against(&rows[0].title, whole, way)));
        }
        let sharing = self.sharing();
        let mut by_model: BTreeMap<&str, Vec<&SharingRow>> = BTreeMap::new();
        for row in sharing {
            by_model.entry(&row.model).or_default().push(row);
        }
        for rows in by_model.values() {
            found.extend(most_in_total(rows));
        }
        found
    }
}

fn against(network: &str, whole: &OfWay<'_>, way: &OfWay<'_>) -> String {
    let seeds = way.epochs_to_target.len();
    let epochs = match (whole.epochs(), way.epochs()) {
        (Some(whole), Some(other)) => format!(
            "reaches {TARGET} after {other} epochs at the median, whole backpropagation after {whole}, which is {:.2} times the compute of that",
            other * way.compute_share / whole
        ),
        (Some(_), None) => format!("reaches {TARGET} with {} of {seeds} seeds only", way.reached()),
        _ => format!("and whole backpropagation did not reach {TARGET} with most seeds"),
    };
    let off = median(way.last.iter().copied()) - median(whole.last.iter().copied());
    let (least, most) = range(&whole.last);
    let middle = median(way.last.iter().copied());
    let is_within = middle >= least && middle <= most;
    format!(
        "{network}, {}: {:.0}% of the compute; {epochs}; at the end {:+.1} points of accuracy, {} the spread of whole backpropagation's seeds.",
        way.way,
        100.0 * way.compute_share,
        100.0 * off,
        if is_within { "within" } else { "outside" }
    )
}

/// The way with the most throughput together, and what it does to the foreground.
fn most_in_total(rows: &[&SharingRow]) -> Option<String> {
    let total = |row: &SharingRow| row.foreground_samples_per_s + row.background_samples_per_s;
    let whole = |mode: &str| rows.iter().find(|row| row.mode == mode && row.way == "whole");
    let (dp, bp) = (whole("dp+col")?, whole("bp+col")?);
    let best = rows.iter().filter(|row| row.way != "whole").max_by(|a, b| total(a).total_cmp(&total(b)))?;
    Some(format!(
        "{}, batch {}: {} by {} gives {:.0} samples/s in total, {:.2} times DP+Col's and {:.2} times BP+Col's, the foreground \
         {:.2} and {:.2} times theirs; its iterations learn from fewer gradients.",
        best.title,
        best.batch,
        best.way,
        if best.mode == "bp+col" { "BP+Col" } else { "DP+Col" },
        total(best),
        total(best) / total(dp),
        total(best) / total(bp),
        best.foreground_samples_per_s / dp.foreground_samples_per_s,
        best.foreground_samples_per_s / bp.foreground_samples_per_s,
    ))
}

fn learning_table(ways: &[OfWay<'_>]) -> Table {
    let mut table = text_table(
        [
            "way\n",
            "compute\nan epoch",
            "epochs to it\nmedian",
            "least\nto most",
            "seeds that\nreach it",
            "accuracy\nat the end",
            "least\nto most",
        ],
        1..,
    );
    for way in ways {
        let reached: Vec<f64> = way.epochs_to_target.iter().flatten().map(|&epoch| epoch as f64).collect();
        let (first, last) = range(&reached);
        let (least, most) = range(&way.last);
        table.add_row([
            way.way.to_owned(),
            format!("{:.0}%", 100.0 * way.compute_share),
            way.epochs().map_or("-".into(), |epochs| epochs.to_string()),
            if reached.is_empty() { "-".into() } else { format!("{first} to {last}") },
            format!("{} of {}", way.reached(), way.epochs_to_target.len()),
            format!("{:.1}%", 100.0 * median(way.last.iter().copied())),
            format!("{:.1} to {:.1}%", 100.0 * least, 100.0 * most),
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
                row.way.clone(),
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
