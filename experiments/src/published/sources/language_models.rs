//! Training speed of language models, of which GPT-2 with 124 million parameters is in the zoo.

use super::{NETWORK, SourceFile, SourceRow};
use crate::published::link::Host;
use crate::published::machine::Gpu;
use crate::published::network::Network;
use crate::published::question::{Question, QuestionSet};
use crate::published::sheet::Sheet;

const NAME: &str = "llm_iterations.csv";
pub(super) const FILE: SourceFile = SourceFile {
    name: NAME,
    columns: &[
        "source",
        "model",
        "gpu",
        "hosts",
        "gpus",
        "global_batch",
        "micro_batch",
        "seq",
        "precision",
        "strategy",
        "iteration_ms",
        "tokens_per_s",
    ],
    row,
};
/// Tokens of a sequence of the zoo's GPT-2.
const POSITIONS: &str = "1024";

fn row(sheet: &Sheet) -> anyhow::Result<SourceRow> {
    let text = |column| sheet.text(column).map(str::to_owned);
    let (gpus, global_batch) = (sheet.count("gpus")?, sheet.optional_count("global_batch")?);
    let ms =
        if sheet.text("iteration_ms")?.is_empty() { None } else { Some(sheet.positive("iteration_ms")?) };
    let mut row = SourceRow {
        file: NAME,
        line: sheet.line(),
        suite: text("source")?,
        software: text("strategy")?,
        network: text("model")?,
        machine: text("gpu")?,
        gpu: text("gpu")?,
        precision: text("precision")?,
        hosts: sheet.count("hosts")?,
        gpus,
        batch: sheet.optional_count("micro_batch")?,
        accumulation: 1,
        value: sheet.positive("tokens_per_s")?,
        unit: "tokens/s".into(),
        step: Err(NETWORK),
    };
    if row.network != "GPT-2 124M" || sheet.text("seq")? != POSITIONS {
        return Ok(row);
    }
    let gpu = match row.gpu.as_str() {
        "A100-SXM4-40GB" => Gpu::A100,
        "H100-SXM5-80GB" => Gpu::H100,
        _ => {
            row.step = Err(super::GPU);
            return Ok(row);
        }
    };
    let (Some(batch), Some(global_batch), Some(ms)) = (row.batch, global_batch, ms) else {
        row.step = Err("batch or optimizer not expressible");
        return Ok(row);
    };
    let precision = super::precision(sheet)?;
    if global_batch % (batch * gpus) != 0 {
        return Err(sheet.bad("global_batch", "no multiple of the micro-batches of all GPUs"));
    }
    row.accumulation = global_batch / (batch * gpus);
    let question = Question {
        set: QuestionSet::Single,
        network: Network::Gpt2,
        gpu,
        precision,
        batch,
        accumulation: row.accumulation,
        gpus,
        fabric: None,
    };
    row.step = Ok(row.answering(question, Host::of(gpu), 1e3 * global_batch as f64 / ms));
    Ok(row)
}
