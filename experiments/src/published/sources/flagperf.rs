//! Throughputs of `FlagPerf`: PyTorch and TensorFlow networks on A100 with 40 GB.

use super::{NETWORK, SourceFile, SourceRow};
use crate::published::link::{Fabric, Host};
use crate::published::machine::{Gpu, precision_on_a100};
use crate::published::network::Network;
use crate::published::question::{PublishedStep, Question, QuestionSet};
use crate::published::sheet::Sheet;

const NAME: &str = "flagperf_a100.csv";
pub(super) const FILE: SourceFile = SourceFile {
    name: NAME,
    columns: &["network", "framework", "precision", "hosts", "gpus", "batch_per_gpu", "unit", "p_core"],
    row,
};

fn row(sheet: &Sheet) -> anyhow::Result<SourceRow> {
    let text = |column| sheet.text(column).map(str::to_owned);
    let mut row = SourceRow {
        file: NAME,
        line: sheet.line(),
        suite: "FlagPerf".into(),
        software: text("framework")?,
        network: text("network")?,
        machine: "DGX A100".into(),
        gpu: "A100 40GB".into(),
        precision: text("precision")?,
        hosts: sheet.count("hosts")?,
        gpus: sheet.count("gpus")?,
        batch: sheet.optional_count("batch_per_gpu")?,
        accumulation: 1,
        value: sheet.positive("p_core")?,
        unit: text("unit")?,
        step: Err(NETWORK),
    };
    row.step = match row.network.as_str() {
        "resnet50" => resnet50(sheet, &row)?,
        "bert" => Err("sequence length not stated"),
        _ => Err(NETWORK),
    };
    Ok(row)
}

fn resnet50(sheet: &Sheet, row: &SourceRow) -> anyhow::Result<Result<PublishedStep, &'static str>> {
    let Some(batch) = row.batch else { return Ok(Err("batch not stated")) };
    let fabric = (row.hosts > 1).then_some(Fabric::Unknown);
    let question = Question {
        set: QuestionSet::of_steps(fabric),
        network: Network::Convolutional("resnet-50"),
        gpu: Gpu::A100,
        precision: precision_on_a100(super::precision(sheet)?),
        batch,
        accumulation: 1,
        gpus: row.gpus,
        fabric,
    };
    Ok(Ok(row.answering(question, Host::NvSwitch, row.value)))
}
