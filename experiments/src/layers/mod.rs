//! How far each layer of a network gets faster on more GPUs, with the same global batch.

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
use crate::report::Header;
use crate::style::Style;

pub(crate) const NAME: &str = "layers";

/// What layers are shown with: the paper's first picture.
const BATCH: usize = 128;
const GPUS: usize = 64;

#[derive(Args)]
#[command(
    after_help = "Each layer by itself, with the same global batch on 1, 2, 4, ... GPUs: by the device model's times, or those of a profile.

Examples:
  experiments layers
  experiments layers --model inception-v3 --batch 256 --gpus 32
  experiments layers --onnx net.onnx --device h100 --out results"
)]
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
    /// Up to how many GPUs
    /// [default: 64, or as many as the links of --link connect]
    #[arg(long, value_name = "N", value_parser = gpus)]
    gpus: Option<usize>,
}

impl Experiment for LayersOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let gpus = self.gpus.map_or_else(|| self.machine.at_most(GPUS), Ok)?;
        let (times, link) = self.machine.load(gpus)?;
        let network = self.network.load(&times)?.map_or_else(|| zoo::model("vgg16"), Ok)?;
        let batch = self.batch;
        let counts = counts(batch, gpus);
        let mut samples: Vec<usize> = counts.iter().map(|count| batch.div_ceil(*count)).collect();
        samples.sort_unstable();
        samples.dedup();
        let profile = times.profile(&network, &samples)?;
        Ok(prepared(move |_| {
            let header = Header::new(NAME, &times, &link);
            Layers::run(header, &network, batch, &counts, (&profile, &link))
        }))
    }
}

/// 1, 2, 4, ... GPUs, up to so many, and as many as there are samples at most.
fn counts(batch: usize, gpus: usize) -> Vec<usize> {
    let most = gpus.min(batch);
    let powers = std::iter::successors(Some(1), |count| Some(2 * count)).take_while(|&count| count < most);
    powers.chain([most]).collect()
}

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Layers {
    #[serde(flatten)]
    header: Header,
    model: String,
    batch: usize,
    rows: Vec<Row>,
}

/// A layer on some GPUs, each with an equal part of the batch, or one sample more. Times are of the one that takes longest.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    layer: String,
    kind: &'static str,
    gpus: usize,
    /// Samples of the GPU that has most.
    samples: usize,
    forward_us: f64,
    backward_us: f64,
    update_us: f64,
    /// Summing the layer's gradients over the GPUs, by itself.
    all_reduce_us: f64,
    /// The time of the layer on one GPU over that on these: forward, backward and update.
    speedup: f64,
    /// The same, with the all-reduce after the backward step instead of beside it.
    speedup_with_all_reduce: f64,
    /// The time of all these GPUs together over that on one: what speed costs.
    amplification: f64,
}

impl Row {
    fn step_us(&self) -> f64 {
        self.forward_us + self.backward_us + self.update_us
    }
}

impl Layers {
    /// Each layer on each of some numbers of GPUs, 1 being the first.
    fn run(
        header: Header,
        network: &LayerGraph,
        batch: usize,
        counts: &[usize],
        (profile, link): (&ProfileTable, &LinkModel),
    ) -> anyhow::Result<Self> {
        let mut rows = Vec::new();
        for (id, layer) in network.layers().skip(1) {
            let gradient_bytes = 4 * network.own_parameter_count(id) as u64;
            let mut alone: Option<Row> = None;
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
                let mut row = Row {
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
                if let Some(alone_us) = alone.as_ref().map(Row::step_us) {
                    row.speedup = alone_us / row.step_us();
                    row.speedup_with_all_reduce = alone_us / (row.step_us() + row.all_reduce_us);
                    row.amplification = count as f64 / row.speedup;
                } else {
                    alone = Some(row.clone());
                }
                // What takes no time on one GPU does not get faster.
                if alone.as_ref().is_some_and(|alone| alone.step_us() > 0.0) && row.step_us() > 0.0 {
                    rows.push(row);
                }
            }
        }
        Ok(Self { header, model: network.name().into(), batch, rows })
    }

    /// The rows of each layer, by rising GPU count.
    fn by_layer(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.layer == b.layer)
    }

    /// What the times are from.
    fn origin(&self) -> String {
        format!(
            "{}, all-reduces of link model {}; global batch {}",
            self.header.layer_times, self.header.link, self.batch
        )
    }

    /// What is shown, for people.
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
