//! Times of torchvision's networks with 12 images a GPU: forward and backward passes.

use super::{GPU, NETWORK, SourceFile, SourceRow};
use crate::published::link::Host;
use crate::published::machine::{Gpu, precision_on_a100};
use crate::published::network::Network;
use crate::published::question::{Question, QuestionSet};
use crate::published::sheet::Sheet;

const NAME: &str = "torchvision_train_ms.csv";
pub(super) const FILE: SourceFile = SourceFile {
    name: NAME,
    columns: &["network", "gpu", "gpus", "precision", "mode", "batch", "median_ms", "dir"],
    row,
};

fn row(sheet: &Sheet) -> anyhow::Result<SourceRow> {
    let text = |column| sheet.text(column).map(str::to_owned);
    let (batch, gpus, ms) = (sheet.count("batch")?, sheet.count("gpus")?, sheet.positive("median_ms")?);
    let mut row = SourceRow {
        file: NAME,
        line: sheet.line(),
        suite: "torchvision".into(),
        software: text("mode")?,
        network: text("network")?,
        machine: text("dir")?,
        gpu: text("gpu")?,
        precision: text("precision")?,
        hosts: 1,
        gpus,
        batch: Some(batch / gpus),
        accumulation: 1,
        value: ms,
        unit: "ms".into(),
        step: Err(NETWORK),
    };
    row.step = match Network::convolutional(&row.network) {
        _ if row.software != "train" => Err("inference"),
        _ if row.gpu != "A100-SXM4-40GB" => Err(GPU),
        None => Err(NETWORK),
        Some(_) if gpus > 1 => Err("several GPUs by torch.nn.DataParallel"),
        Some(network) => {
            // PyTorch 1.7 uses TF32 by default.
            let precision = precision_on_a100(super::precision(sheet)?);
            let (set, gpu) = (QuestionSet::Passes, Gpu::A100);
            let question =
                Question { set, network, gpu, precision, batch, accumulation: 1, gpus, fabric: None };
            Ok(row.answering(question, Host::NvSwitch, 1e3 * batch as f64 / ms))
        }
    };
    Ok(row)
}
