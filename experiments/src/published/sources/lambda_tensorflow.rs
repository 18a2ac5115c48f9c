//! Throughputs of `tf_cnn_benchmarks`, published by Lambda.

use super::{FLAGGED, GPU, NETWORK, SourceFile, SourceRow};
use crate::published::link::Host;
use crate::published::machine::Gpu;
use crate::published::network::Network;
use crate::published::question::{PublishedStep, Question, QuestionSet};
use crate::published::sheet::Sheet;

const NAME: &str = "lambda_tensorflow.csv";
pub(super) const FILE: SourceFile = SourceFile {
    name: NAME,
    columns: &[
        "system",
        "network",
        "gpu",
        "form",
        "gpus",
        "precision",
        "compiler",
        "batch_per_gpu",
        "images_per_s",
        "tensorflow",
        "flags",
    ],
    row,
};

fn row(sheet: &Sheet) -> anyhow::Result<SourceRow> {
    let text = |column| sheet.text(column).map(str::to_owned);
    let mut row = SourceRow {
        file: NAME,
        line: sheet.line(),
        suite: "Lambda TensorFlow".into(),
        software: [text("tensorflow")?, text("compiler")?].join(" ").trim().to_owned(),
        network: text("network")?,
        machine: text("system")?,
        gpu: format!("{} {}", sheet.text("gpu")?, sheet.text("form")?),
        precision: text("precision")?,
        hosts: 1,
        gpus: sheet.count("gpus")?,
        batch: Some(sheet.count("batch_per_gpu")?),
        accumulation: 1,
        value: sheet.positive("images_per_s")?,
        unit: "images/s".into(),
        step: Err(NETWORK),
    };
    row.step = step(sheet, &row)?;
    Ok(row)
}

fn step(sheet: &Sheet, row: &SourceRow) -> anyhow::Result<Result<PublishedStep, &'static str>> {
    let gpu = match row.gpu.as_str() {
        "V100 SXM" => Gpu::V100,
        "A100 SXM" if row.machine.contains("80GB") => Gpu::A10080Gb,
        "A100 SXM" => Gpu::A100,
        _ => return Ok(Err(GPU)),
    };
    let Some(network) = Network::convolutional(&row.network) else { return Ok(Err(NETWORK)) };
    let precision = super::precision(sheet)?;
    if !sheet.text("flags")?.is_empty() {
        return Ok(Err(FLAGGED));
    }
    // V100 SXM3 are in hosts of 16 GPUs.
    let host = if row.machine.contains("SXM3") { Host::Dgx2 } else { Host::of(gpu) };
    let question = Question {
        set: QuestionSet::OneHost,
        network,
        gpu,
        precision,
        batch: sheet.count("batch_per_gpu")?,
        accumulation: 1,
        gpus: row.gpus,
        fabric: None,
    };
    Ok(Ok(row.answering(question, host, row.value)))
}
