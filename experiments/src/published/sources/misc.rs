//! Small sets of training times: VGG-16 and ResNet-152 at batch 16, and ResNet-50 on 8 and 16 A100.

use super::{GPU, NETWORK, SourceFile, SourceRow};
use crate::published::link::{Fabric, Host};
use crate::published::machine::{Gpu, precision_on_a100};
use crate::published::network::Network;
use crate::published::question::{Question, QuestionSet};
use crate::published::sheet::Sheet;

const NAME: &str = "misc_training.csv";
pub(super) const FILE: SourceFile = SourceFile {
    name: NAME,
    columns: &[
        "source",
        "network",
        "framework",
        "gpu",
        "hosts",
        "gpus",
        "precision",
        "mode",
        "batch_per_gpu",
        "samples_per_s",
    ],
    row,
};

fn row(sheet: &Sheet) -> anyhow::Result<SourceRow> {
    let text = |column| sheet.text(column).map(str::to_owned);
    let (batch, value) = (sheet.count("batch_per_gpu")?, sheet.positive("samples_per_s")?);
    let mut row = SourceRow {
        file: NAME,
        line: sheet.line(),
        suite: text("framework")?,
        software: text("mode")?,
        network: text("network")?,
        machine: text("source")?,
        gpu: text("gpu")?,
        precision: text("precision")?,
        hosts: sheet.count("hosts")?,
        gpus: sheet.count("gpus")?,
        batch: Some(batch),
        accumulation: 1,
        value,
        unit: "samples/s".into(),
        step: Err(NETWORK),
    };
    let precision = super::precision(sheet)?;
    let (gpu, precision) = match row.gpu.split(' ').next() {
        Some("V100-SXM2-16GB") => (Gpu::V100, precision),
        Some("A100-SXM4-40GB") => (Gpu::A100, precision_on_a100(precision)),
        _ => {
            row.step = Err(GPU);
            return Ok(row);
        }
    };
    // 16 adapters of 100 Gb/s a host are as fast as eight of 200 Gb/s.
    let fabric = (row.hosts > 1).then_some(Fabric::EightHdr);
    let set = match (row.software.as_str(), fabric) {
        ("train fwd+bwd", _) => QuestionSet::Passes,
        ("train, full step (SGD)", None) => QuestionSet::Single,
        ("train, full step (SGD)", Some(_)) => QuestionSet::SeveralHosts,
        _ => {
            row.step = Err("inference");
            return Ok(row);
        }
    };
    row.step = Network::convolutional(&row.network).ok_or(NETWORK).map(|network| {
        let gpus = row.gpus;
        let question = Question { set, network, gpu, precision, batch, accumulation: 1, gpus, fabric };
        row.answering(question, Host::of(gpu), value)
    });
    Ok(row)
}
