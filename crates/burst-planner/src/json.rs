//! The format `deeppool/plan-problem/v2`: a problem with tables of its costs.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer};

use crate::costs::{CostModel, NodeMemory, ShardSize};
use crate::problem::ProblemGraph;
use crate::{
    AllReduceTime, BackwardReads, Error, GradientOptions, Node, NodeId, PlanProblem, Result, StepTimes,
    SynchronizedBytes, TableCosts, TransferTimes,
};

const SCHEMA: &str = "deeppool/plan-problem/v2";
/// The format of earlier versions, whose times were added up.
const OLD_SCHEMA: &str = "deeppool/plan-problem/v1";

/// The field that is read before all others, so that a document of another kind is reported as
/// such, and not by a list of unexpected fields.
#[derive(Deserialize)]
struct Header {
    schema: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "schema")]
    _schema: String,
    gpus: usize,
    memory_limit_bytes: Option<u64>,
    bucket_bytes: Option<u64>,
    overlap: Option<bool>,
    #[serde(default)]
    clip_norm: bool,
    #[serde(default)]
    metrics_bytes: u64,
    nodes: Vec<NodeDocument>,
    edges: Vec<Edge>,
    #[serde(default)]
    all_reduce: Vec<AllReduce>,
    #[serde(default)]
    checkpoints: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeDocument {
    name: String,
    options: Vec<OptionDocument>,
    #[serde(default)]
    gradient_bytes: u64,
    #[serde(default)]
    state_bytes: u64,
    #[serde(default)]
    output_bytes: u64,
    parameters_of: Option<Reference>,
    synchronized: Option<Synchronized>,
    #[serde(default)]
    output: Vec<Transfer>,
    #[serde(default = "yes")]
    backward_reads_input: bool,
    #[serde(default = "yes")]
    backward_reads_output: bool,
    backward_reads_saved: Option<bool>,
    #[serde(default)]
    kept: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionDocument {
    gpus: usize,
    forward_us: f64,
    backward_us: f64,
    #[serde(default)]
    update_us: f64,
    #[serde(default)]
    memory_bytes: u64,
    #[serde(default)]
    saved_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Synchronized {
    forward_bytes: u64,
    backward_bytes: u64,
}

/// The duration of moving a node's output or its gradient.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    from_gpus: usize,
    to_gpus: usize,
    #[serde(rename = "transfer_us")]
    nested_us: f64,
    #[serde(rename = "transfer_disjoint_us", default, deserialize_with = "not_null")]
    disjoint_us: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edge {
    from: Reference,
    to: Reference,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllReduce {
    gpus: usize,
    startup_us: f64,
    us_per_byte: f64,
}

/// A node, by index or by name.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a node: its index or its name")]
enum Reference {
    Index(usize),
    Name(String),
}

/// Reads an optional number. `null`, as which some programs write a number that is not finite, is
/// an error and not an omitted field.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<f64>, D::Error> {
    f64::deserialize(deserializer).map(Some)
}

impl PlanProblem {
    #[doc = include_str!("../docs/plan-problem.md")]
    pub fn from_json(text: &str) -> Result<(Self, TableCosts)> {
        check_schema(text)?;
        read(parse(text)?)
    }
}

fn read(document: Document) -> Result<(PlanProblem, TableCosts)> {
    let mut problem = PlanProblem::new(document.gpus);
    problem.memory_limit_bytes = document.memory_limit_bytes;
    let usual = GradientOptions::default();
    problem.gradients = GradientOptions {
        bucket_bytes: document.bucket_bytes.unwrap_or(usual.bucket_bytes),
        overlap: document.overlap.unwrap_or(usual.overlap),
        clip_norm: document.clip_norm,
        metrics_bytes: document.metrics_bytes,
    };
    let names: Vec<String> = document.nodes.iter().map(|node| node.name.clone()).collect();
    let by_name: HashMap<&str, NodeId> =
        names.iter().enumerate().map(|(index, name)| (name.as_str(), NodeId(index))).collect();
    let find = |reference: Reference, path: String| match reference {
        Reference::Index(index) => Ok(NodeId(index)),
        Reference::Name(name) => by_name
            .get(name.as_str())
            .copied()
            .ok_or_else(|| Error::Json { path, message: format!("there is no node `{name}`") }),
    };
    let mut costs = TableCosts::new();
    for (index, node) in document.nodes.into_iter().enumerate() {
        let path = format!("nodes[{index}]");
        set_options(&mut costs, NodeId(index), &node.options, &path)?;
        set_output(&mut costs, NodeId(index), &node.output, document.gpus, &path)?;
        costs.set_output_bytes(NodeId(index), node.output_bytes);
        let owner =
            node.parameters_of.map(|owner| find(owner, format!("{path}.parameters_of"))).transpose()?;
        let synchronized = node
            .synchronized
            .map(|bytes| SynchronizedBytes { forward: bytes.forward_bytes, backward: bytes.backward_bytes });
        problem.add_node(Node {
            gradient_bytes: node.gradient_bytes,
            state_bytes: node.state_bytes,
            parameters_of: owner,
            synchronized,
            backward_reads: BackwardReads {
                input: node.backward_reads_input,
                output: node.backward_reads_output,
                saved: node.backward_reads_saved.unwrap_or(node.backward_reads_output),
            },
            is_kept: node.kept,
            ..Node::new(node.name, node.options.iter().map(|option| option.gpus))
        });
    }
    for (index, edge) in document.edges.into_iter().enumerate() {
        let from = find(edge.from, format!("edges[{index}].from"))?;
        problem.add_edge(from, find(edge.to, format!("edges[{index}].to"))?);
    }
    for (index, AllReduce { gpus, startup_us, us_per_byte }) in document.all_reduce.into_iter().enumerate() {
        let path = || format!("all_reduce[{index}].gpus");
        is_count(gpus, document.gpus, path)?;
        if costs.set_all_reduce(gpus, AllReduceTime { startup_us, us_per_byte }).is_some() {
            return Err(Error::Json { path: path(), message: format!("{gpus} GPUs are listed twice") });
        }
    }
    let checkpoints = document.checkpoints.into_iter().enumerate();
    problem.checkpoints = checkpoints
        .map(|(index, checkpoint)| find(checkpoint, format!("checkpoints[{index}]")))
        .collect::<Result<_>>()?;
    costs.validate(&problem)?;
    subtract_parts(&mut costs, &problem)?;
    Ok((problem, costs))
}

/// Replaces the memory of each node, `memory_bytes`, by the part of it that is neither its output
/// nor a saved value nor a gradient.
fn subtract_parts(costs: &mut TableCosts, problem: &PlanProblem) -> Result<()> {
    let structure = ProblemGraph::new(problem)?;
    for (index, node) in problem.nodes.iter().enumerate() {
        let owner = node.parameters_of.unwrap_or(NodeId(index));
        for &gpus in &node.gpu_counts {
            let memory = |node| costs.memory(NodeId(node), gpus, ShardSize::Larger);
            let NodeMemory { held_bytes, saved_bytes, output_bytes, .. } = memory(index);
            let producers = structure.producers[index].iter().copied();
            let gradients = producers.filter(|&producer| structure.needs_gradient[producer]);
            let gradients = gradients.map(|producer| memory(producer).output_bytes);
            let parts = gradients.chain([saved_bytes, output_bytes, problem.nodes[owner.0].gradient_bytes]);
            let others = parts.fold(held_bytes, u64::saturating_sub);
            costs.set_memory(NodeId(index), gpus, others);
        }
    }
    Ok(())
}

fn set_options(costs: &mut TableCosts, node: NodeId, options: &[OptionDocument], path: &str) -> Result<()> {
    for (index, option) in options.iter().enumerate() {
        let &OptionDocument { gpus, forward_us, backward_us, update_us, memory_bytes, saved_bytes } = option;
        costs.set_memory(node, gpus, memory_bytes);
        costs.set_saved(node, gpus, saved_bytes);
        if costs.set_steps(node, gpus, StepTimes { forward_us, backward_us, update_us }).is_some() {
            let path = format!("{path}.options[{index}].gpus");
            return Err(Error::Json { path, message: format!("{gpus} GPUs are listed twice") });
        }
    }
    Ok(())
}

fn set_output(
    costs: &mut TableCosts,
    node: NodeId,
    output: &[Transfer],
    gpus: usize,
    path: &str,
) -> Result<()> {
    for (index, transfer) in output.iter().enumerate() {
        let (from, to) = (transfer.from_gpus, transfer.to_gpus);
        is_count(from, gpus, || format!("{path}.output[{index}].from_gpus"))?;
        is_count(to, gpus, || format!("{path}.output[{index}].to_gpus"))?;
        if costs.set_transfer(node, from, to, transfer.times()).is_some() {
            let path = format!("{path}.output[{index}]");
            return Err(Error::Json { path, message: format!("from {from} to {to} GPUs is listed twice") });
        }
    }
    // A direction that is not listed takes as long as the other one.
    for transfer in output {
        let (from, to) = (transfer.from_gpus, transfer.to_gpus);
        if costs.transfer_times(node, to, from).is_none() {
            costs.set_transfer(node, to, from, transfer.times());
        }
    }
    Ok(())
}

impl Transfer {
    fn times(&self) -> TransferTimes {
        let nested_us = self.nested_us;
        TransferTimes { nested_us, disjoint_us: self.disjoint_us.unwrap_or(nested_us) }
    }
}

fn is_count(gpus: usize, available: usize, path: impl FnOnce() -> String) -> Result<()> {
    if (1..=available).contains(&gpus) {
        return Ok(());
    }
    Err(Error::Json { path: path(), message: format!("{gpus} GPUs, expected 1 to {available}") })
}

fn check_schema(text: &str) -> Result<()> {
    let header: Header = parse(text)?;
    let found = match header.schema {
        Some(serde_json::Value::String(schema)) if schema == SCHEMA => return Ok(()),
        Some(serde_json::Value::String(schema)) if schema == OLD_SCHEMA => return Err(Error::OldFormat),
        Some(other) => other.to_string(),
        None => "none".into(),
    };
    Err(Error::Schema { found, expected: SCHEMA })
}

fn parse<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T> {
    // A byte order mark, with which some editors begin a file, is no part of the JSON text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| Error::Json {
        path: error.path().to_string(),
        message: error.inner().to_string(),
    })?;
    reader.end().map_err(|error| Error::Json { path: ".".into(), message: error.to_string() })?;
    Ok(value)
}
