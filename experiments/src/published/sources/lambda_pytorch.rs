//! Throughputs of NVIDIA's PyTorch examples on many machines, published by Lambda.

use super::{FLAGGED, GPU, NETWORK, SourceFile, SourceRow};
use crate::published::link::Host;
use crate::published::machine::Gpu;
use crate::published::network::Network;
use crate::published::question::{PublishedStep, Question, QuestionSet};
use crate::published::sheet::Sheet;

const NAME: &str = "lambda_pytorch.csv";
pub(super) const FILE: SourceFile = SourceFile {
    name: NAME,
    columns: &[
        "system",
        "suite",
        "network",
        "gpu",
        "form",
        "gpu_mem_gb",
        "gpus",
        "precision",
        "global_batch",
        "throughput",
        "unit",
        "flags",
    ],
    row,
};
/// Word pieces of a sequence of SQuAD.
const POSITIONS: usize = 384;

fn row(sheet: &Sheet) -> anyhow::Result<SourceRow> {
    let text = |column| sheet.text(column).map(str::to_owned);
    let (global_batch, gpus) = (sheet.count("global_batch")?, sheet.count("gpus")?);
    let mut row = SourceRow {
        file: NAME,
        line: sheet.line(),
        suite: format!("Lambda PyTorch {}", sheet.text("suite")?),
        software: text("suite")?,
        network: text("network")?,
        machine: text("system")?,
        gpu: format!("{} {} {}GB", sheet.text("gpu")?, sheet.text("form")?, sheet.text("gpu_mem_gb")?),
        precision: text("precision")?,
        hosts: 1,
        gpus,
        batch: Some(global_batch / gpus),
        accumulation: 1,
        value: sheet.positive("throughput")?,
        unit: text("unit")?,
        step: Err(NETWORK),
    };
    row.step = step(sheet, &row)?;
    Ok(row)
}

fn step(sheet: &Sheet, row: &SourceRow) -> anyhow::Result<Result<PublishedStep, &'static str>> {
    let bert = |is_large| Network::Bert { is_large, positions: POSITIONS, is_pretraining: false };
    let network = match row.network.as_str() {
        "resnet50_v1.5" => Network::Convolutional("resnet-50"),
        "bert_base" => bert(false),
        "bert_large" => bert(true),
        _ => return Ok(Err(NETWORK)),
    };
    let gpu = match (sheet.text("gpu")?, sheet.text("form")?, sheet.text("gpu_mem_gb")?) {
        ("V100", "SXM", _) => Gpu::V100,
        ("A100", "SXM", "80") => Gpu::A10080Gb,
        ("A100", "SXM", _) => Gpu::A100,
        ("H100", "SXM", _) => Gpu::H100,
        _ => return Ok(Err(GPU)),
    };
    let precision = super::precision(sheet)?;
    Ok(match row.batch {
        _ if !sheet.text("flags")?.is_empty() => Err(FLAGGED),
        None | Some(0) => return Err(sheet.bad("global_batch", "fewer samples than GPUs")),
        Some(batch) => {
            let (set, gpus) = (QuestionSet::OneHost, row.gpus);
            let question =
                Question { set, network, gpu, precision, batch, accumulation: 1, gpus, fabric: None };
            Ok(row.answering(question, Host::of(gpu), row.value))
        }
    })
}
