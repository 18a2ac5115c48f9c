//! Errors of predictions, over all held-out questions and by group.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::question::QuestionSet;
use super::training::{QuestionRow, Training, Verdict};
use crate::statistics::percentile;

/// Error that a prediction should not exceed.
pub(super) const GOOD: f64 = 0.2;

/// Errors of a group of questions. An error is predicted / published throughput - 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ErrorRow {
    /// Property by which questions are grouped, such as `GPU`; `all` for the first row of a set.
    pub(super) by: &'static str,
    /// Value of the property.
    pub(super) group: String,
    pub(super) questions: usize,
    /// Median of the errors.
    pub(super) median: f64,
    /// Median of the magnitudes of the errors.
    pub(super) median_magnitude: f64,
    /// Fraction of the errors that are at most [`GOOD`] in magnitude.
    pub(super) within: f64,
    /// Nine-tenths quantile of the magnitudes.
    pub(super) p90: f64,
}

impl ErrorRow {
    /// Returns the errors of the questions that are predicted. `None` if there are none.
    fn new<'a>(
        by: &'static str,
        group: String,
        rows: impl IntoIterator<Item = &'a QuestionRow>,
    ) -> Option<Self> {
        let errors: Vec<f64> = rows.into_iter().filter_map(|row| row.error).collect();
        let good = errors.iter().filter(|error| error.abs() <= GOOD).count();
        Some(Self {
            by,
            group,
            questions: errors.len(),
            median: percentile(errors.iter().copied(), 0.5)?,
            median_magnitude: percentile(errors.iter().map(|error| error.abs()), 0.5)?,
            within: good as f64 / errors.len() as f64,
            p90: percentile(errors.iter().map(|error| error.abs()), 0.9)?,
        })
    }
}

/// Function that returns the group of a question, with a prefix that orders the groups.
type Group = fn(&QuestionRow) -> (usize, String);

/// Properties by which questions are grouped.
const GROUPS: [(&str, Group); 6] = [
    ("GPU", |row| (row.question.gpu as usize, row.gpu.into())),
    ("precision", |row| (row.question.precision as usize, row.precision.into())),
    ("family", |row| (row.question.network.family() as usize, row.family.into())),
    ("network", |row| (0, row.network.clone())),
    ("batch", |row| {
        let below = [8, 32, 128, usize::MAX].iter().position(|&max| row.batch <= max).unwrap_or_default();
        (below, ["1 to 8", "9 to 32", "33 to 128", "above 128"][below].into())
    }),
    ("GPUs", |row| (row.gpus, row.gpus.to_string())),
];

/// Returns the errors of the sets and parts in one row each: held out, fitted, slow, dominated, and
/// the sets that are not of one host.
pub(super) fn totals(training: &Training) -> Vec<ErrorRow> {
    let one = |verdict| training.of(QuestionSet::OneHost, verdict);
    let compared = |set| training.of(set, Verdict::Compared);
    let parts = [
        ErrorRow::new("all", "held out".into(), one(Verdict::Compared).filter(|row| !row.fitted)),
        ErrorRow::new("all", "fitted".into(), one(Verdict::Compared).filter(|row| row.fitted)),
        ErrorRow::new("all", "slow suite".into(), one(Verdict::Slow)),
        ErrorRow::new("all", "dominated".into(), one(Verdict::Dominated)),
        ErrorRow::new("all", QuestionSet::SeveralHosts.name().into(), compared(QuestionSet::SeveralHosts)),
        ErrorRow::new(
            "all",
            QuestionSet::Passes.name().into(),
            // The time of the host is fitted to this network.
            compared(QuestionSet::Passes).filter(|row| row.network != "resnet-50"),
        ),
        ErrorRow::new("all", QuestionSet::Single.name().into(), compared(QuestionSet::Single)),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns the errors of the held-out questions by each property.
pub(super) fn groups(training: &Training) -> Vec<ErrorRow> {
    let mut rows = Vec::new();
    for (by, group) in GROUPS {
        let mut groups: BTreeMap<(usize, String), Vec<&QuestionRow>> = BTreeMap::new();
        for row in held_out(training) {
            groups.entry(group(row)).or_default().push(row);
        }
        rows.extend(groups.into_iter().filter_map(|((_, name), of)| ErrorRow::new(by, name, of)));
    }
    rows
}

/// Returns the held-out questions that are compared, of one host.
pub(super) fn held_out(training: &Training) -> impl Iterator<Item = &QuestionRow> {
    training.of(QuestionSet::OneHost, Verdict::Compared).filter(|row| !row.fitted)
}

/// Returns the held-out questions with the largest errors, at most `count`.
pub(super) fn worst(training: &Training, count: usize) -> Vec<&QuestionRow> {
    held_out(training).filter(|row| row.error.is_some()).take(count).collect()
}

/// Returns the numbers of questions that cannot be predicted, with the reason, largest first.
pub(super) fn not_predicted(training: &Training) -> Vec<(usize, &str)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in training.questions.iter().filter_map(|row| row.reason.as_deref()) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut counts: Vec<(usize, &str)> = counts.into_iter().map(|(reason, count)| (count, reason)).collect();
    counts.sort_by_key(|(count, _)| Reverse(*count));
    counts
}
