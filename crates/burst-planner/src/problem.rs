//! The question: nodes with options, edges with transfer times, and the GPUs that there are.

use serde::{Deserialize, Serialize};

/// A node of a problem, by its place in the problem's list of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub usize);

/// What to plan: which option every node takes so that an iteration is fast and wastes little GPU time.
///
/// Nodes and edges are numbered in the order in which they were added. The fields are public, so a problem can
/// be put together in any way; it is checked as a whole by [`validate`](Self::validate), which every search and
/// the JSON reader call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanProblem {
    /// How many GPUs there are. No option may take more.
    pub gpus: usize,
    /// What one rank may hold. With a limit every option has to say its `memory_bytes`.
    pub memory_limit_bytes: Option<u64>,
    /// Time of an iteration on one GPU, microseconds. Amplification is a multiple of it. When absent it is the
    /// sum over the nodes of the fastest one-GPU option, which every node must then have.
    pub single_gpu_us: Option<f64>,
    /// What is to be placed, usually the layers of a network.
    pub nodes: Vec<Node>,
    /// What is moved between nodes. The edges form no cycle, and no two join the same nodes.
    pub edges: Vec<Edge>,
}

/// One thing to place, usually a layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// A name, unique in the problem.
    pub name: String,
    /// The ways to run it; at least one.
    pub options: Vec<NodeOption>,
}

/// One way to run a node: on how many GPUs, and what that costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NodeOption {
    /// The GPU count. A node on `k` GPUs runs on ranks `0..k`.
    pub gpus: usize,
    /// Forward and backward together, microseconds.
    pub time_us: f64,
    /// What each of its ranks holds for this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// All-reduce of the node's gradients, microseconds; added to `time_us`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub all_reduce_us: f64,
    /// The part of `time_us` that is backward, microseconds; when absent, two thirds. The additive model does
    /// not depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward_us: Option<f64>,
    /// A label such as `sample`, `channel` or `spatial`: carried, not interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
}

/// What is moved from a producer to a consumer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The producer.
    pub from: NodeId,
    /// The consumer.
    pub to: NodeId,
    /// `transfer_us[i][j]`: microseconds, forward and backward together, when the producer takes its option `i`
    /// and the consumer its option `j`.
    pub transfer_us: Vec<Vec<f64>>,
    /// The same when the two ends share no rank. Without it the edge does not allow branches to run apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_disjoint_us: Option<Vec<Vec<f64>>>,
}

impl PlanProblem {
    /// A problem without nodes, to be filled by [`add_node`](Self::add_node) and [`add_edge`](Self::add_edge).
    #[must_use]
    pub fn new(gpus: usize) -> Self {
        Self { gpus, memory_limit_bytes: None, single_gpu_us: None, nodes: Vec::new(), edges: Vec::new() }
    }

    /// Adds a node and returns its index.
    pub fn add_node(
        &mut self,
        name: impl Into<String>,
        options: impl IntoIterator<Item = NodeOption>,
    ) -> NodeId {
        self.nodes.push(Node { name: name.into(), options: options.into_iter().collect() });
        NodeId(self.nodes.len() - 1)
    }

    /// Adds an edge whose `transfer_us[i][j]` is the time when `from` takes its option `i` and `to` its option
    /// `j`. The edge is returned for whatever else there is to say about it.
    pub fn add_edge(&mut self, from: NodeId, to: NodeId, transfer_us: Vec<Vec<f64>>) -> &mut Edge {
        let index = self.edges.len();
        self.edges.push(Edge { from, to, transfer_us, transfer_disjoint_us: None });
        &mut self.edges[index]
    }
}

impl NodeOption {
    /// An option on `gpus` GPUs that takes `time_us` microseconds, forward and backward together.
    #[must_use]
    pub fn new(gpus: usize, time_us: f64) -> Self {
        Self { gpus, time_us, memory_bytes: None, all_reduce_us: 0.0, backward_us: None, split: None }
    }

    /// Sets what each rank holds.
    #[must_use]
    pub fn with_memory_bytes(self, memory_bytes: u64) -> Self {
        Self { memory_bytes: Some(memory_bytes), ..self }
    }

    /// Sets the time of the gradient all-reduce, microseconds.
    #[must_use]
    pub fn with_all_reduce_us(self, all_reduce_us: f64) -> Self {
        Self { all_reduce_us, ..self }
    }

    /// Sets the part of the time that is backward, microseconds.
    #[must_use]
    pub fn with_backward_us(self, backward_us: f64) -> Self {
        Self { backward_us: Some(backward_us), ..self }
    }

    /// Sets the label of the split.
    #[must_use]
    pub fn with_split(self, split: impl Into<String>) -> Self {
        Self { split: Some(split.into()), ..self }
    }

    /// The part of the time that is backward, microseconds: two thirds unless it is given.
    #[must_use]
    pub fn backward_part_us(&self) -> f64 {
        self.backward_us.unwrap_or(self.time_us * 2.0 / 3.0)
    }

    /// Compute and all-reduce: what the node adds to an iteration, microseconds.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.time_us + self.all_reduce_us
    }
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
