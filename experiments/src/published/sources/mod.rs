//! Readers of the published tables.

mod deeplearningexamples;
mod dlperf;
mod flagperf;
mod lambda_pytorch;
mod lambda_tensorflow;
mod language_models;
mod misc;
mod torchvision;

use std::path::Path;

use layer_profile::NumberFormat;
use serde::Serialize;

use super::link::Host;
use super::machine::precision_named;
use super::question::{PublishedStep, Question};
use super::sheet::Sheet;

/// A row of a published table, as a record of the CSV file of all rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SourceRow {
    pub(super) file: &'static str,
    pub(super) line: usize,
    pub(super) suite: String,
    /// Version, compiler or container of the software, as far as it is stated.
    pub(super) software: String,
    pub(super) network: String,
    pub(super) machine: String,
    pub(super) gpu: String,
    pub(super) precision: String,
    pub(super) hosts: usize,
    pub(super) gpus: usize,
    /// Samples of a micro-batch of one GPU, if stated.
    pub(super) batch: Option<usize>,
    pub(super) accumulation: usize,
    pub(super) value: f64,
    pub(super) unit: String,
    /// Question that the row answers, or the reason why it answers none.
    #[serde(skip)]
    pub(super) step: Result<PublishedStep, &'static str>,
}

/// Last fields of a row's record: the question that it answers, or the reason why it answers none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    set: Option<&'static str>,
    question: Option<String>,
    unused: Option<&'static str>,
}

impl SourceRow {
    /// Returns the row as an answer of a question. `samples_per_s` is the throughput of all GPUs.
    fn answering(&self, question: Question, host: Host, samples_per_s: f64) -> PublishedStep {
        PublishedStep {
            question,
            host,
            suite: self.suite.clone(),
            samples_per_s,
            place: (self.file, self.line),
        }
    }

    /// Returns the last fields of the row's record.
    pub(super) fn answer(&self) -> Answer {
        match &self.step {
            Ok(step) => Answer {
                set: Some(step.question.set.name()),
                question: Some(step.question.to_string()),
                unused: None,
            },
            Err(reason) => Answer { set: None, question: None, unused: Some(reason) },
        }
    }
}

/// A file whose rows are read.
struct SourceFile {
    name: &'static str,
    columns: &'static [&'static str],
    /// Reads the current line.
    row: fn(&Sheet) -> anyhow::Result<SourceRow>,
}

/// Parses the column `precision` of the current line.
fn precision(sheet: &Sheet) -> anyhow::Result<NumberFormat> {
    let text = sheet.text("precision")?;
    // Some tables add a remark.
    let name = text.split(" (").next().unwrap_or_default();
    let bad = || sheet.bad("precision", format!("`{text}`, expected FP32, TF32, AMP, BF16 or FP16"));
    precision_named(name).ok_or_else(bad)
}

/// Files whose rows are read, in the order in which rows are compared.
const FILES: [SourceFile; 8] = [
    deeplearningexamples::FILE,
    lambda_tensorflow::FILE,
    lambda_pytorch::FILE,
    dlperf::FILE,
    flagperf::FILE,
    torchvision::FILE,
    misc::FILE,
    language_models::FILE,
];

/// Files whose rows are only counted, with the reason.
const COUNTED: [(&str, &str); 3] = [
    ("neusight_iterations.csv", "network not in the zoo"),
    ("vtrain_iterations.csv", "not data parallelism of a network in the zoo"),
    ("timm_train_benchmarks.csv", GPU),
];

/// Reason for a network that the zoo lacks.
const NETWORK: &str = "network not in the zoo";
/// Reason for a GPU without a device model.
const GPU: &str = "GPU without a device model";
/// Reason for a row that its source doubts.
const FLAGGED: &str = "flagged by the source";

/// All rows of a folder of published tables.
#[derive(Debug, Clone)]
pub(super) struct SourceRows {
    pub(super) rows: Vec<SourceRow>,
    /// Files whose rows are only counted: name, number of rows, and reason.
    pub(super) counted: Vec<(&'static str, usize, &'static str)>,
    /// Names of the files that do not exist.
    pub(super) missing: Vec<&'static str>,
}

/// Reads the tables of a folder. Files that do not exist are left out.
///
/// # Errors
/// If a file cannot be read or is invalid; the message names the file, the line and the column.
pub(super) fn read(folder: &Path) -> anyhow::Result<SourceRows> {
    let mut found = SourceRows { rows: Vec::new(), counted: Vec::new(), missing: Vec::new() };
    for file in &FILES {
        match Sheet::open(folder, file.name, file.columns)? {
            Some(mut sheet) => {
                while sheet.next()? {
                    found.rows.push((file.row)(&sheet)?);
                }
            }
            None => found.missing.push(file.name),
        }
    }
    for (name, reason) in COUNTED {
        match Sheet::open(folder, name, &[])? {
            Some(mut sheet) => {
                let mut count = 0;
                while sheet.next()? {
                    count += 1;
                }
                found.counted.push((name, count, reason));
            }
            None => found.missing.push(name),
        }
    }
    Ok(found)
}
