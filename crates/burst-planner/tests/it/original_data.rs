//! The inputs and outputs of the original planner, read from `shared/data/original` beside the
//! workspace if it exists.

use std::path::PathBuf;

use burst_planner::per_layer::{Layer, LayerChain, LayerOption};
use burst_planner::{CostModel, Node, NodeId, PlanProblem, ShardSize, StepTimes, gpu_counts};
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/original")
}

/// Returns the text of a file, or prints that a test is skipped without it.
pub(crate) fn read(name: &str) -> Option<String> {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        println!("SKIPPED: no {}", path.display());
    }
    text
}

/// The costs of one network.
pub(crate) struct Model {
    pub(crate) batch: usize,
    layers: Vec<Value>,
}

impl Model {
    pub(crate) fn load(name: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(&read("cost-vectors.json")?).unwrap();
        let model = &all[name];
        let layers = model["layers"].as_array().unwrap().clone();
        Some(Self { batch: model["batch"].as_u64().unwrap() as usize, layers })
    }

    /// The GPU counts of every layer: 1, 2, 4, ..., at most `gpus` and the batch.
    fn counts(&self, gpus: usize) -> Vec<usize> {
        gpu_counts::powers_of_two_and_max(gpus.min(self.batch))
    }

    fn name(&self, layer: usize) -> String {
        let layer = &self.layers[layer];
        format!("{} {}", layer["kind"].as_str().unwrap(), layer["id"])
    }

    fn compute_us(&self, layer: usize, gpus: usize) -> Option<f64> {
        self.layers[layer]["compute_us"][gpus.to_string()].as_f64()
    }

    fn all_reduce_us(&self, layer: usize, gpus: usize) -> f64 {
        if gpus == 1 { 0.0 } else { self.layers[layer]["sync_us"][gpus.to_string()].as_f64().unwrap() }
    }

    /// The duration of moving the output along an edge and its gradient back.
    fn transfer_us(edge: &Value, latency_us: f64, from: usize, to: usize) -> f64 {
        let us = edge["xfer_us_lat240"][format!("{from}->{to}")].as_f64().unwrap();
        // Both ways; resharding into an activation takes a thousand times as long.
        let less = 2.0 * (240.0 - latency_us) * if us > 1e5 { 1000.0 } else { 1.0 };
        if us > 0.0 { us - less } else { 0.0 }
    }

    /// The network as the original's planner sees it.
    pub(crate) fn chain(&self, gpus: usize, latency_us: f64) -> LayerChain {
        let counts = self.counts(gpus);
        let layers = self.layers.iter().enumerate().map(|(index, layer)| {
            let option = |&gpus: &usize| {
                let time_us = self.compute_us(index, gpus).unwrap() + self.all_reduce_us(index, gpus);
                LayerOption { gpus, time_us }
            };
            let edges = layer["in_edges"].as_array().unwrap();
            assert!(edges.len() <= 1, "not a chain");
            let cell =
                |from, to| edges.first().map_or(0.0, |edge| Self::transfer_us(edge, latency_us, from, to));
            let row = |&from: &usize| counts.iter().map(|&to| cell(from, to)).collect();
            Layer {
                name: self.name(index),
                options: counts.iter().map(option).collect(),
                transfer_us: counts.iter().map(row).collect(),
            }
        });
        LayerChain { layers: layers.collect() }
    }

    /// The network as a planning problem with all-reduces after the backward pass. `gradient_bytes`
    /// is the duration of the layer's all-reduce in picoseconds, which is the same for all GPU
    /// counts: [`OriginalCosts`] reads it from there. The iteration time of a plan on the first
    /// ranks is then the original's sum.
    pub(crate) fn problem(&self, gpus: usize) -> PlanProblem {
        let mut problem = PlanProblem::new(gpus);
        problem.gradients.overlap = false;
        for layer in 0..self.layers.len() {
            let picoseconds = (self.all_reduce_us(layer, 2) * 1e6).max(1.0) as u64;
            problem.add_node(Node::new(self.name(layer), self.counts(gpus)).with_gradient_bytes(picoseconds));
        }
        for (to, layer) in self.layers.iter().enumerate() {
            for edge in layer["in_edges"].as_array().unwrap() {
                problem.add_edge(NodeId(edge["from"].as_u64().unwrap() as usize), NodeId(to));
            }
        }
        problem
    }

    pub(crate) fn costs(&self, latency_us: f64) -> OriginalCosts<'_> {
        OriginalCosts { model: self, latency_us }
    }
}

/// The original's costs for plans that it has none for: between two sets of ranks that are not
/// nested, a transfer takes as long as the longest between nested ones.
pub(crate) struct OriginalCosts<'m> {
    model: &'m Model,
    latency_us: f64,
}

impl CostModel for OriginalCosts<'_> {
    fn compute(&self, node: NodeId, ranks: usize, _: ShardSize) -> Option<StepTimes> {
        let us = self.model.compute_us(node.0, ranks)?;
        Some(StepTimes { forward_us: us / 3.0, backward_us: us * 2.0 / 3.0, update_us: 0.0 })
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        let edges = self.model.layers.iter().flat_map(|layer| layer["in_edges"].as_array().unwrap());
        let Some(edge) = edges.clone().find(|edge| edge["from"].as_u64() == Some(producer.0 as u64)) else {
            return 0.0;
        };
        let is_nested = from.len() != to.len()
            && (from.iter().all(|rank| to.contains(rank)) || to.iter().all(|rank| from.contains(rank)));
        let both_ways_us = if is_nested {
            Model::transfer_us(edge, self.latency_us, from.len(), to.len())
        } else {
            let counts = self.model.counts(usize::MAX);
            let pairs = counts.iter().flat_map(|&from| counts.iter().map(move |&to| (from, to)));
            pairs.map(|(from, to)| Model::transfer_us(edge, self.latency_us, from, to)).fold(0.0, f64::max)
        };
        both_ways_us / 2.0
    }

    fn all_reduce(&self, bytes: u64, _: &[usize]) -> f64 {
        bytes as f64 / 1e6
    }
}

/// A plan that the original found.
pub(crate) struct Row {
    pub(crate) model: String,
    pub(crate) latency_us: f64,
    pub(crate) gpus: usize,
    pub(crate) limit: Option<f64>,
    pub(crate) iteration_us: f64,
    pub(crate) gpu_time_us: f64,
    /// The GPU count of each layer.
    pub(crate) counts: Vec<usize>,
}

/// The plans whose costs are known and which did not fail. Without a limit they are data parallel.
pub(crate) fn rows(models: &[(&str, &Model)]) -> Option<Vec<Row>> {
    let text = read("plans.csv")?;
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next()?;
    let row = |cells: Vec<&str>| {
        let cell = |name: &str| cells[header.iter().position(|&column| column == name).unwrap()];
        let number = |name: &str| cell(name).parse::<f64>().ok();
        let (_, model) = models.iter().find(|(name, _)| *name == cell("model"))?;
        if cell("batch") != model.batch.to_string() || cell("spatial") == "True" {
            return None;
        }
        let runs = cell("gpu_count_rle").split_whitespace().map(|run| run.split_once('x').unwrap());
        let counts = runs
            .flat_map(|(count, times)| std::iter::repeat_n(count.parse().unwrap(), times.parse().unwrap()));
        Some(Row {
            model: cell("model").into(),
            latency_us: number("net_latency_us")?,
            gpus: cell("gpus").parse().ok()?,
            limit: number("amp_limit"),
            iteration_us: number("iter_ms")? * 1e3,
            gpu_time_us: number("gpu_ms")? * 1e3,
            counts: counts.collect(),
        })
    };
    Some(lines.filter_map(row).collect())
}
