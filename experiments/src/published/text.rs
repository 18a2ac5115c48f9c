//! Published training throughputs and their predictions as text.

use std::collections::BTreeSet;

use super::dominated;
use super::question::QuestionSet;
use super::slow;
use super::summary::{ErrorRow, groups, not_predicted, totals, worst};
use super::training::{QuestionRow, Training, Verdict};
use crate::text_table::{printed, text_table};

/// Number of the largest errors in the printed text.
const WORST: usize = 8;
/// Number of reasons of unused rows in the printed text; the JSON has all of them.
const REASONS: usize = 6;

/// Formats the comparison: counts, errors by group, the largest errors, and rows without a
/// prediction.
pub(super) fn training(training: &Training) -> String {
    let blocks = [
        rules(training).join("\n"),
        errors(training),
        format!("Largest errors, held out:\n{}", questions(&worst(training, WORST))),
        without(training).join("\n"),
    ];
    blocks.join("\n\n")
}

/// Returns the rules and the counts.
pub(super) fn rules(training: &Training) -> Vec<String> {
    let count = |verdict| training.of(QuestionSet::OneHost, verdict).count();
    let (compared, slow, dominated) =
        (count(Verdict::Compared), count(Verdict::Slow), count(Verdict::Dominated));
    let suites = training.suites.iter().filter(|suite| suite.is_slow).count();
    let devices: BTreeSet<&str> = training.fitted.iter().map(|fitted| fitted.device.as_str()).collect();
    vec![
        format!(
            "Training throughput: {} published rows in one host answer {} questions; {compared} are \
             compared.",
            training.used_rows,
            compared + slow + dominated,
        ),
        "Question: network, GPU, precision, batch, accumulation and GPUs; the fastest row counts.".into(),
        format!(
            "Slow: {slow} questions, whose fastest row is of a suite (source and framework) below {} of the \
             others: {suites} of {} suites by GPU, precision and family.",
            slow::LIMIT,
            training.suites.len()
        ),
        format!(
            "Dominated: {dominated} questions. Another one with a smaller or equal batch, as many GPUs or \
             more, no faster GPU and no coarser format has over {} times the throughput a GPU.",
            dominated::RATIO
        ),
        format!(
            "Fitted: {} questions of {} device models (ResNet-50 and BERT-base on one \
             GPU, no DGX-2). All others are held out.",
            training.fitted.len(),
            devices.len()
        ),
    ]
}

fn errors(training: &Training) -> String {
    let mut table = text_table(
        ["held out by", "", "questions", "median", "median size", "within 20%", "9/10 within"],
        2..,
    );
    let mut add = |rows: &[ErrorRow], by: Option<&str>| {
        for (index, row) in rows.iter().enumerate() {
            table.add_row([
                if index == 0 { by.unwrap_or(row.by).to_owned() } else { String::new() },
                row.group.clone(),
                row.questions.to_string(),
                format!("{:+.0}%", 100.0 * row.median),
                format!("{:.1}%", 100.0 * row.median_magnitude),
                format!("{:.0}%", 100.0 * row.within),
                format!("{:.0}%", 100.0 * row.p90),
            ]);
        }
    };
    add(&totals(training), Some("(parts)"));
    for rows in groups(training).chunk_by(|a, b| a.by == b.by) {
        add(rows, None);
    }
    let title = "Error: predicted / published throughput - 1.";
    format!("{title}\n{}", printed(&table))
}

fn questions(rows: &[&QuestionRow]) -> String {
    let mut table = text_table(["question", "suite", "published/s", "predicted/s", "error"], 2..);
    for row in rows {
        table.add_row([
            row.question.to_string(),
            row.suite.clone(),
            format!("{:.0}", row.published_samples_per_s),
            row.predicted_samples_per_s.map_or_else(|| "-".into(), |rate| format!("{rate:.0}")),
            row.error.map_or_else(|| "-".into(), |error| format!("{:+.0}%", 100.0 * error)),
        ]);
    }
    printed(&table)
}

/// Returns the numbers of questions and rows without a prediction, by reason.
fn without(training: &Training) -> Vec<String> {
    let counts = not_predicted(training).into_iter().map(|(count, reason)| format!("{count} {reason}"));
    let counts = counts.collect::<Vec<_>>().join("; ");
    let mut lines = Vec::new();
    if !counts.is_empty() {
        lines.push(format!("Questions without a prediction: {counts}."));
    }
    let mut reasons: Vec<(usize, &str)> = Vec::new();
    for rows in training.unused.chunk_by(|a, b| a.reason == b.reason) {
        reasons.push((rows.iter().map(|row| row.rows).sum(), &rows[0].reason));
    }
    reasons.sort_by(|a, b| b.cmp(a));
    let others: usize = reasons.iter().skip(REASONS).map(|(rows, _)| rows).sum();
    let mut named: Vec<String> =
        reasons.iter().take(REASONS).map(|(rows, reason)| format!("{rows} {reason}")).collect();
    if others > 0 {
        named.push(format!("{others} for other reasons"));
    }
    lines.push(format!("Rows without a question: {}.", named.join("; ")));
    if !training.missing.is_empty() {
        lines.push(format!("Missing files: {}.", training.missing.join(", ")));
    }
    lines
}

/// Returns the findings in sentences.
pub(super) fn findings(training: &Training) -> Vec<String> {
    let line = |row: &ErrorRow| {
        format!(
            "Predicted training throughput, {}: {} questions, errors {:+.0}% in the median, {:.1}% in size; \
             {:.0}% of them within 20%, nine tenths within {:.0}%.",
            row.group,
            row.questions,
            100.0 * row.median,
            100.0 * row.median_magnitude,
            100.0 * row.within,
            100.0 * row.p90
        )
    };
    totals(training).iter().map(line).collect()
}
