//! The experiment `layers`: speed-up of each layer of a network on more GPUs with the same global
//! batch.

mod figure;
mod text;

use std::time::Duration;

use clap::Args;
use collectives::LinkModel;
use layer_graph::{LayerGraph, zoo};
use layer_profile::ProfileTable;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::options::{MachineOptions, NetworkOptions, RunOptions, batch, gpus};
use crate::outcome::{self, Outcome};
use crate::report::ReportHeader;
use crate::style::Style;

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "layers";

/// Default global batch in samples, that of the paper's first figure.
const BATCH: usize = 128;
/// Default maximum number of GPUs, that of the paper's first figure.
const GPUS: usize = 64;

/// Options of the experiment `layers`.
#[derive(Args)]
#[command(after_help = "\
Shows each layer alone, with the same global batch on 1, 2, 4, ... GPUs. Times are those of the
device model or of a profile.
Examples:
  experiments layers
  experiments layers --model inception-v3 --batch 256 --gpus 32
  experiments layers --onnx net.onnx --device h100 --out results")]
pub(crate) struct LayersOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    network: NetworkOptions,
    #[command(flatten)]
    machine: MachineOptions,
    /// Samples of the global batch
    #[arg(long, value_name = "N", default_value_t = BATCH, value_parser = batch)]
    batch: usize,
    /// Maximum number of GPUs [default: 64, or the number that the links of --link connect]
    #[arg(long, value_name = "N", value_parser = gpus)]
    gpus: Option<usize>,
}

impl Experiment for LayersOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let gpus = self.gpus.map_or_else(|| self.machine.clamp_gpus(GPUS), Ok)?;
        let (times, link) = self.machine.load(gpus)?;
        let network = self.network.load(&times)?.map_or_else(|| zoo::model("vgg16"), Ok)?;
        let batch = self.batch;
        if self.gpus.is_some() && gpus > batch {
            eprintln!(
                "warning: left out {} of {gpus} GPUs: a layer runs on at most as many as the batch has \
                 samples, {batch}",
                gpus - batch
            );
        }
        let counts = counts(batch, gpus);
        let mut samples: Vec<usize> = counts.iter().map(|count| batch.div_ceil(*count)).collect();
        samples.sort_unstable();
        samples.dedup();
        let profile = times.profile(&network, &samples)?;
        Ok(prepared(move |_| {
            let header = ReportHeader::new(NAME, &times, &link);
            Layers::run(header, &network, batch, &counts, (&profile, &link))
        }))
    }
}

/// Returns 1, 2, 4, ... and `gpus`, but no more GPUs than samples.
fn counts(batch: usize, gpus: usize) -> Vec<usize> {
    let max = gpus.min(batch);
    let powers = std::iter::successors(Some(1), |count| Some(2 * count)).take_while(|&count| count < max);
    powers.chain([max]).collect()
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Layers {
    #[serde(flatten)]
    header: ReportHeader,
    /// Name of the network.
    model: String,
    /// Samples of the global batch.
    batch: usize,
    /// Rows by layer and, within a layer, by increasing GPU count.
    rows: Vec<LayerRow>,
}

/// A layer on a number of GPUs that share the batch evenly. Times are those of the GPU with the
/// most samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct LayerRow {
    /// Name of the layer.
    layer: String,
    /// Label of the kind of layer, such as a convolution.
    kind: &'static str,
    /// Number of GPUs.
    gpus: usize,
    /// Maximum number of samples of a GPU.
    samples: usize,
    /// Time of the forward pass in microseconds.
    forward_us: f64,
    /// Time of the backward pass in microseconds.
    backward_us: f64,
    /// Time of the parameter update in microseconds.
    update_us: f64,
    /// Time in microseconds to all-reduce the layer's gradients over the GPUs, without other
    /// traffic.
    all_reduce_us: f64,
    /// Forward, backward and update time on one GPU, divided by that on these GPUs.
    speedup: f64,
    /// The same, with the all-reduce after the backward step instead of beside it.
    speedup_with_all_reduce: f64,
    /// GPU time of the layer on these GPUs divided by its time on one GPU.
    amplification: f64,
}

impl LayerRow {
    fn step_us(&self) -> f64 {
        self.forward_us + self.backward_us + self.update_us
    }
}

impl Layers {
    /// Computes the rows of each layer on each number of GPUs, the first of which is 1.
    fn run(
        header: ReportHeader,
        network: &LayerGraph,
        batch: usize,
        counts: &[usize],
        (profile, link): (&ProfileTable, &LinkModel),
    ) -> anyhow::Result<Self> {
        let mut rows = Vec::new();
        for (id, layer) in network.computing_layers() {
            let gradient_bytes = 4 * network.own_parameter_count(id) as u64;
            let mut alone: Option<LayerRow> = None;
            for &count in counts {
                let samples = batch.div_ceil(count);
                let time = profile.time(layer.name(), samples)?;
                let ranks: Vec<usize> = (0..count).collect();
                let all_reduce = match gradient_bytes {
                    0 => Duration::ZERO,
                    bytes if count > 1 => link.all_reduce_among(&ranks, bytes),
                    _ => Duration::ZERO,
                };
                let us = |time: Duration| 1e6 * time.as_secs_f64();
                let mut row = LayerRow {
                    layer: layer.name().into(),
                    kind: layer.kind().label(),
                    gpus: count,
                    samples,
                    forward_us: us(time.forward),
                    backward_us: us(time.backward),
                    update_us: us(time.update),
                    all_reduce_us: us(all_reduce),
                    speedup: 1.0,
                    speedup_with_all_reduce: 1.0,
                    amplification: 1.0,
                };
                if let Some(alone_us) = alone.as_ref().map(LayerRow::step_us) {
                    row.speedup = alone_us / row.step_us();
                    row.speedup_with_all_reduce = alone_us / (row.step_us() + row.all_reduce_us);
                    row.amplification = count as f64 / row.speedup;
                } else {
                    alone = Some(row.clone());
                }
                // A layer without any time on one GPU has no speed-up.
                if alone.as_ref().is_some_and(|alone| alone.step_us() > 0.0) && row.step_us() > 0.0 {
                    rows.push(row);
                }
            }
        }
        Ok(Self { header, model: network.name().into(), batch, rows })
    }

    /// Returns the rows of each layer, by increasing GPU count.
    fn by_layer(&self) -> impl Iterator<Item = &[LayerRow]> {
        self.rows.chunk_by(|a, b| a.layer == b.layer)
    }

    /// Returns the origin of the times.
    fn origin(&self) -> String {
        format!(
            "{}, all-reduces of link model {}; global batch {}",
            self.header.layer_times, self.header.link, self.batch
        )
    }

    /// Returns the title.
    fn heading(&self) -> String {
        format!("Speed-up of each layer of {} by GPUs ({})", self.model, self.header.origin)
    }
}

impl Outcome for Layers {
    fn title(&self) -> String {
        self.heading()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.summary().join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        vec![self.origin()]
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(vec![figure::draw(self, style)?])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
