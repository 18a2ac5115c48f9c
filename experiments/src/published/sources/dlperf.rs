//! Throughputs of `DLPerf`: ResNet-50 and BERT-base by framework, on one to four hosts of 8 V100.

use super::{NETWORK, SourceFile, SourceRow};
use crate::published::link::{Fabric, Host};
use crate::published::machine::Gpu;
use crate::published::network::Network;
use crate::published::question::{Question, QuestionSet};
use crate::published::sheet::Sheet;

const NAME: &str = "dlperf_v100.csv";
pub(super) const FILE: SourceFile = SourceFile {
    name: NAME,
    columns: &[
        "network",
        "framework",
        "precision",
        "batch_per_gpu",
        "hosts",
        "gpus",
        "samples_per_s",
        "notes",
    ],
    row,
};

fn row(sheet: &Sheet) -> anyhow::Result<SourceRow> {
    let text = |column| sheet.text(column).map(str::to_owned);
    let (hosts, gpus) = (sheet.count("hosts")?, sheet.count("gpus")?);
    let (batch, value) = (sheet.count("batch_per_gpu")?, sheet.positive("samples_per_s")?);
    let mut row = SourceRow {
        file: NAME,
        line: sheet.line(),
        suite: format!("DLPerf {}", sheet.text("framework")?),
        software: text("notes")?,
        network: text("network")?,
        machine: "8 V100 SXM2 a host".into(),
        gpu: "V100 16GB".into(),
        precision: text("precision")?,
        hosts,
        gpus,
        batch: Some(batch),
        accumulation: 1,
        value,
        unit: "samples/s".into(),
        step: Err(NETWORK),
    };
    let network = match row.network.as_str() {
        "bert_base_pretrain_seq128" => {
            Network::Bert { is_large: false, positions: 128, is_pretraining: true }
        }
        name => match Network::convolutional(name) {
            Some(network) => network,
            None => return Ok(row),
        },
    };
    let precision = super::precision(sheet)?;
    let fabric = (hosts > 1).then_some(Fabric::OneEdr);
    let set = QuestionSet::of_steps(fabric);
    let question = Question { set, network, gpu: Gpu::V100, precision, batch, accumulation: 1, gpus, fabric };
    row.step = Ok(row.answering(question, Host::CubeMesh, value));
    Ok(row)
}
