//! `PyTorch`'s iterations measured on an H200 (`benchmarks/2026-11-27-nvidia-h200`), as
//! observations: whole iterations, and the kernels of each class of layers.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use layer_graph::{Layer, LayerGraph, LayerKind, zoo};
use layer_profile::{Direction, Gpu, Iteration, NumberFormat, Observations, Optimizer};
use serde::Deserialize;

const FILES: [&str; 2] = ["pytorch-iterations.jsonl", "pytorch-iterations-2.jsonl"];

/// Measured iteration of a network.
#[derive(Deserialize)]
struct Line {
    network: String,
    precision: String,
    batch: usize,
    /// Median and quartiles.
    iteration_us: [f64; 3],
    /// Name, number of runs and microseconds of each kernel in one iteration.
    kernels: Vec<(String, u32, f64)>,
}

/// Class of kernels that belong to certain layers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Normalisation,
    Pooling,
    /// Matrix products, with the changes of layout before and after them.
    Product,
    Other,
}

/// Adds the iterations in a number format, each once.
pub(super) fn add(observations: &mut Observations, folder: &Path, gpu: &Gpu) -> anyhow::Result<()> {
    let precision = match gpu.format {
        NumberFormat::Fp32 => "f32",
        NumberFormat::Tf32 => "tf32",
        NumberFormat::Half => "bf16",
    };
    let mut seen = Vec::new();
    for file in FILES {
        let path = folder.join(file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // The first line describes the machine; others may report a lack of memory.
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| line.contains("\"iteration_us\": ["))
        {
            let line: Line =
                serde_json::from_str(line).with_context(|| format!("{}:{number}", path.display()))?;
            let key = (line.network.clone(), line.batch);
            if line.precision == precision && !seen.contains(&key) {
                seen.push(key);
                add_iteration(observations, &line, gpu)?;
            }
        }
    }
    Ok(())
}

fn add_iteration(observations: &mut Observations, line: &Line, gpu: &Gpu) -> anyhow::Result<()> {
    let network = zoo::model(&line.network)?;
    let [iteration_us, ..] = line.iteration_us;
    let run = Iteration {
        network: &network,
        samples: line.batch,
        micro_batches: 1,
        optimizer: Optimizer::Momentum,
    };
    observations.add_iteration("iteration", &run, gpu, microseconds(iteration_us));
    // In a transformer, kernels of attention and of linear layers have the same names as others.
    if network.layers().any(|(_, layer)| matches!(layer.kind(), LayerKind::MultiHeadAttention(_))) {
        return Ok(());
    }
    let kernels_us: f64 = line.kernels.iter().map(|(.., us)| us).sum();
    for (class, name) in [
        (Class::Normalisation, "normalisations"),
        (Class::Pooling, "pooling"),
        (Class::Product, "matrix products"),
    ] {
        let us: f64 =
            line.kernels.iter().filter(|(name, ..)| class_of_kernel(name) == class).map(|(.., us)| us).sum();
        let work = passes(&network, class);
        if us > 0.0 && !work.is_empty() {
            // Part of the iteration: kernels overlap, or have gaps between them.
            let time = microseconds(us * iteration_us / kernels_us);
            observations.add(&line.network, name, line.batch, &work, time);
        }
    }
    Ok(())
}

fn passes(network: &LayerGraph, class: Class) -> Vec<(&Layer, Direction)> {
    let layers = network.layers().map(|(_, layer)| layer).filter(|layer| class_of_layer(layer) == class);
    layers.flat_map(|layer| [Direction::Forward, Direction::Backward].map(|pass| (layer, pass))).collect()
}

fn class_of_layer(layer: &Layer) -> Class {
    match layer.kind() {
        LayerKind::BatchNorm(_) | LayerKind::LayerNorm(_) | LayerKind::RmsNorm(_) => Class::Normalisation,
        LayerKind::MaxPool2d(_) | LayerKind::AvgPool2d(_) => Class::Pooling,
        LayerKind::Conv2d(_) | LayerKind::Linear(_) => Class::Product,
        _ => Class::Other,
    }
}

fn class_of_kernel(name: &str) -> Class {
    let name = name.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if is(&["multi_tensor"]) {
        Class::Other
    } else if is(&["bn_bw", "bn_fw", "batchnorm", "batch_norm", "bn_backward"]) {
        Class::Normalisation
    } else if is(&["pool"]) {
        Class::Pooling
    } else if is(&[
        "fprop",
        "dgrad",
        "wgrad",
        "nchwtonhwc",
        "nhwctonchw",
        "convert",
        "gemm",
        "cutlass",
        "nvjet",
        "gemv",
        "splitk",
        "convolve",
        "winograd",
        "fft",
        "dse::",
        "region_transform",
        "flip_filter",
        "pointwise_mult",
        "scalepackedtensor",
        "addpadding",
    ]) {
        Class::Product
    } else {
        Class::Other
    }
}

fn microseconds(us: f64) -> Duration {
    Duration::from_secs_f64(us / 1e6)
}
