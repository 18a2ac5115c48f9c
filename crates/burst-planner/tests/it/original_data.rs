//! The original planner's inputs and outputs, where they are at hand: `shared/data/original` beside the workspace.

use std::path::PathBuf;

use burst_planner::{NodeId, NodeOption, PlanProblem, gpu_counts};
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/original")
}

/// The text of a file, or a note that a test is skipped without it.
pub(crate) fn read(name: &str) -> Option<String> {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        println!("SKIPPED: no {}", path.display());
    }
    text
}

/// The cost functions of one model, as values.
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

    /// The problem for so many GPUs: 1, 2, 4, ... for a layer, no more than samples.
    pub(crate) fn problem(&self, gpus: usize, latency_us: f64) -> PlanProblem {
        let mut problem = PlanProblem::new(gpus);
        let counts = gpu_counts::powers_of_two_and_max(gpus.min(self.batch));
        for layer in &self.layers {
            let us = |field: &str, count: usize| layer[field][count.to_string()].as_f64().unwrap();
            let options = counts.iter().map(|&count| {
                let sync_us = if count == 1 { 0.0 } else { us("sync_us", count) };
                NodeOption::new(count, us("compute_us", count)).with_all_reduce_us(sync_us)
            });
            problem.add_node(format!("{} {}", layer["kind"].as_str().unwrap(), layer["id"]), options);
        }
        for (to, layer) in self.layers.iter().enumerate() {
            for edge in layer["in_edges"].as_array().unwrap() {
                let cell = |from: usize, to: usize| {
                    let us = edge["xfer_us_lat240"][format!("{from}->{to}")].as_f64().unwrap();
                    // There and back; resharding into an activation costs a thousand times as much.
                    let less = 2.0 * (240.0 - latency_us) * if us > 1e5 { 1000.0 } else { 1.0 };
                    if us > 0.0 { us - less } else { 0.0 }
                };
                let matrix =
                    counts.iter().map(|&from| counts.iter().map(|&to| cell(from, to)).collect()).collect();
                problem.add_edge(NodeId(edge["from"].as_u64().unwrap() as usize), NodeId(to), matrix);
            }
        }
        problem
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

/// The plans for which there are cost vectors and which did not fail. Without a limit they are data parallel.
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
