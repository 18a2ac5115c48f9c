//! Training throughputs in the READMEs of NVIDIA's `DeepLearningExamples`.

use super::{FLAGGED, GPU, NETWORK, SourceFile, SourceRow};
use crate::published::link::{Fabric, Host};
use crate::published::machine::Gpu;
use crate::published::network::Network;
use crate::published::question::{PublishedStep, Question, QuestionSet};
use crate::published::sheet::Sheet;

const NAME: &str = "deeplearningexamples.csv";
pub(super) const FILE: SourceFile = SourceFile {
    name: NAME,
    columns: &[
        "network",
        "framework",
        "task",
        "gpu",
        "gpu_mem_gb",
        "machine",
        "nodes",
        "gpus",
        "precision",
        "compiler",
        "batch_per_gpu",
        "grad_accum",
        "seq_len",
        "throughput",
        "unit",
        "flags",
        "container",
    ],
    row,
};

fn row(sheet: &Sheet) -> anyhow::Result<SourceRow> {
    let text = |column| sheet.text(column).map(str::to_owned);
    let mut row = SourceRow {
        file: NAME,
        line: sheet.line(),
        suite: format!("NVIDIA {}", sheet.text("framework")?),
        software: [text("container")?, text("compiler")?].join(" ").trim().to_owned(),
        network: text("network")?,
        machine: text("machine")?,
        gpu: format!("{} {}GB", sheet.text("gpu")?, sheet.text("gpu_mem_gb")?),
        precision: text("precision")?,
        hosts: sheet.count("nodes")?,
        gpus: sheet.count("gpus")?,
        batch: sheet.optional_count("batch_per_gpu")?,
        accumulation: sheet.optional_count("grad_accum")?.unwrap_or(1),
        value: sheet.positive("throughput")?,
        unit: text("unit")?,
        step: Err(NETWORK),
    };
    row.step = step(sheet, &row)?;
    Ok(row)
}

fn step(sheet: &Sheet, row: &SourceRow) -> anyhow::Result<Result<PublishedStep, &'static str>> {
    let Some(network) = network(sheet, &row.network)? else { return Ok(Err(NETWORK)) };
    let precision = super::precision(sheet)?;
    let gpu = match (row.gpu.as_str(), row.machine.as_str()) {
        (gpu, "DGX-2" | "DGX-2H") if gpu.starts_with("V100") => Gpu::V100OfDgx2,
        (gpu, _) if gpu.starts_with("V100") => Gpu::V100,
        ("A100 80GB", _) => Gpu::A10080Gb,
        (gpu, _) if gpu.starts_with("A100") => Gpu::A100,
        _ => return Ok(Err(GPU)),
    };
    let fabric = match (row.hosts, gpu) {
        (1, _) => None,
        (_, Gpu::V100) => Some(Fabric::FourEdr),
        (_, Gpu::A100 | Gpu::A10080Gb) => Some(Fabric::EightHdr),
        _ => Some(Fabric::Unknown),
    };
    Ok(match row.batch {
        _ if !sheet.text("flags")?.is_empty() => Err(FLAGGED),
        _ if !matches!(row.unit.as_str(), "images/s" | "sequences/s" | "samples/s") => {
            Err("unit is not samples/s")
        }
        None => Err("batch not stated"),
        Some(batch) => {
            let set = QuestionSet::of_steps(fabric);
            let (accumulation, gpus) = (row.accumulation, row.gpus);
            let question = Question { set, network, gpu, precision, batch, accumulation, gpus, fabric };
            Ok(row.answering(question, Host::of(gpu), row.value))
        }
    })
}

fn network(sheet: &Sheet, name: &str) -> anyhow::Result<Option<Network>> {
    if name != "bert_large" {
        // Other networks of the zoo are measured with other tasks.
        let is_known = matches!(name, "resnet50_v1.5" | "resnext101_32x4d");
        return Ok(Network::convolutional(name).filter(|_| is_known));
    }
    let is_pretraining = sheet.text("task")? == "pretraining";
    Ok(Some(Network::Bert { is_large: true, positions: sheet.count("seq_len")?, is_pretraining }))
}
