//! Kernels of a V100 in `DeepBench` (`operators_deepbench_v100.csv`), as observations.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use layer_graph::{Conv2d, LayerGraph, Linear, Shape};
use layer_profile::{Direction, NumberFormat, Observations};

use crate::published::sheet::Sheet;

const FILE: &str = "operators_deepbench_v100.csv";
const COLUMNS: [&str; 16] = [
    "op",
    "precision",
    "w",
    "h",
    "c",
    "n",
    "k",
    "m",
    "fw",
    "fh",
    "pad_w",
    "pad_h",
    "stride_w",
    "stride_h",
    "fwd_ms",
    "bwd_data_ms",
];

/// Adds the convolutions and the matrix products in a number format.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn add(
    observations: &mut Observations,
    folder: &Path,
    format: NumberFormat,
) -> anyhow::Result<()> {
    let sheet = Sheet::open(folder, FILE, &COLUMNS)?;
    let mut sheet = sheet.with_context(|| format!("{}: no such file", folder.join(FILE).display()))?;
    let precision = if format == NumberFormat::Half { "fp16" } else { "fp32" };
    while sheet.next()? {
        match sheet.text("op")? {
            _ if sheet.text("precision")? != precision => {}
            "conv" => add_convolution(observations, &sheet)?,
            "gemm" => add_product(observations, &sheet)?,
            _ => {}
        }
    }
    Ok(())
}

fn add_convolution(observations: &mut Observations, sheet: &Sheet) -> anyhow::Result<()> {
    let size = |name: &str| sheet.count(name);
    // A padding may be 0.
    let padding = |name: &str| sheet.text(name)?.parse().map_err(|_| sheet.bad(name, "expected a number"));
    let mut conv = Conv2d::new(size("k")?, 1).without_bias();
    conv.kernel = [size("fh")?, size("fw")?];
    conv.stride = [size("stride_h")?, size("stride_w")?];
    conv.padding = [padding("pad_h")?, padding("pad_w")?];
    let mut net = LayerGraph::new("DeepBench", Shape::image(size("c")?, size("h")?, size("w")?))?;
    let id = net.add("conv", conv, [net.input()]).map_err(|error| sheet.bad("op", error))?;
    for (pass, columns) in
        [(Direction::Forward, &["fwd_ms"][..]), (Direction::Backward, &["bwd_data_ms", "bwd_weight_ms"])]
    {
        if let Some(time) = milliseconds(sheet, columns)? {
            let row = format!("line {}, {}", sheet.line(), columns[0]);
            let work = [(net.layer(id), pass)];
            observations.add("DeepBench convolutions", &row, size("n")?, &work, time);
        }
    }
    Ok(())
}

/// Adds `C (m x n) = A (m x k) B (k x n)`: a linear layer of k inputs and m outputs for n samples.
fn add_product(observations: &mut Observations, sheet: &Sheet) -> anyhow::Result<()> {
    let mut net = LayerGraph::new("DeepBench", Shape::features(sheet.count("k")?))?;
    let id = net.add("product", Linear::new(sheet.count("m")?).without_bias(), [net.input()])?;
    if let Some(time) = milliseconds(sheet, &["fwd_ms"])? {
        let work = [(net.layer(id), Direction::Forward)];
        let row = format!("line {}", sheet.line());
        observations.add("DeepBench products", &row, sheet.count("n")?, &work, time);
    }
    Ok(())
}

/// Returns the sum of columns in milliseconds. `None` if one is empty.
fn milliseconds(sheet: &Sheet, columns: &[&str]) -> anyhow::Result<Option<Duration>> {
    let mut sum = Duration::ZERO;
    for column in columns {
        let Some(ms) = sheet.optional_positive(column)? else { return Ok(None) };
        sum += Duration::from_secs_f64(ms / 1e3);
    }
    Ok(Some(sum))
}
