//! What is trained: nodes, edges, and what the training program does with their gradients.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The index of a node in [`PlanProblem::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub usize);

/// A training iteration to plan: what there is to compute and to communicate. What that costs is a
/// [`CostModel`](crate::CostModel); where and in which order it is done is an [`Arrangement`](crate::Arrangement).
///
/// The page of the [model](super) says what an iteration does.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanProblem {
    /// How many GPUs there are: ranks are `0..gpus`.
    pub gpus: usize,
    /// What is placed, usually the layers of a network. The last node in an arrangement's order that no other one uses
    /// is the loss.
    pub nodes: Vec<Node>,
    /// Which node uses the output of which: producer and consumer. No cycle, no pair twice.
    pub edges: Vec<(NodeId, NodeId)>,
    /// How the program reduces gradients.
    pub gradients: GradientOptions,
    /// What a rank can hold, bytes; `None` is as much as there is. A search finds only arrangements that keep it.
    pub memory_limit_bytes: Option<u64>,
    /// How many times an iteration runs forward and backward, one after another, with a part of its samples each: costs are of one
    /// such micro-batch. Gradients are added up, reduced in the last one, and used once.
    pub micro_batches: NonZeroUsize,
    /// The time of everything on one GPU, microseconds, which amplification is a multiple of. It is the sum of the nodes' times on
    /// one GPU unless it is given, as it should be with micro-batches, which one GPU need not have.
    pub single_gpu_us: Option<f64>,
    /// Nodes whose outputs are kept, while those of the nodes before them, as far as only these use them, share memory and are computed
    /// again in the backward pass. Every other node comes before or after each of them
    /// ([`possible_checkpoints`](Self::possible_checkpoints)).
    pub checkpoints: Vec<NodeId>,
}

/// One thing to place, usually a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// A name, unique in the problem.
    pub name: String,
    /// The GPU counts that a search may choose from, ascending.
    pub gpu_counts: Vec<usize>,
    /// Size of the gradient of its own parameters; 0 where it has none.
    pub gradient_bytes: u64,
    /// What is held with its parameters on every rank that has them: themselves, and what the optimiser remembers of them. Nodes
    /// that use the parameters of another one have none of their own.
    pub state_bytes: u64,
    /// The node whose parameters it uses instead of its own. That node comes earlier in every order.
    pub parameters_of: Option<NodeId>,
    /// What its ranks sum up before the forward step and after the backward step, as synchronized batch normalisation
    /// does.
    pub synchronized: Option<SynchronizedBytes>,
    /// What its backward step reads of the outputs of forward steps: all unless said otherwise.
    pub backward_reads: BackwardReads,
    /// Whether its output is kept wherever the [checkpoints](PlanProblem::checkpoints) are.
    pub is_kept: bool,
}

/// What the backward step of a node reads of what forward steps left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackwardReads {
    /// The outputs of its producers.
    pub input: bool,
    /// Its own output, or what else its forward step left.
    pub output: bool,
}

/// What a node's ranks sum up in the course of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynchronizedBytes {
    /// Before the forward step; 0 is nothing.
    pub forward: u64,
    /// After the backward step, before the gradient of the inputs is there; 0 is nothing.
    pub backward: u64,
}

/// How the program reduces gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradientOptions {
    /// Gradients of nodes with the same ranks are all-reduced together as soon as they are this many bytes.
    pub bucket_bytes: u64,
    /// Whether they are all-reduced while the backward pass goes on, or after it.
    pub overlap: bool,
    /// Whether all gradients are scaled by their common norm, which all ranks have to know before the first update.
    pub clip_norm: bool,
    /// Size of what the loss's ranks sum up at the end of an iteration; 0 is nothing.
    pub metrics_bytes: u64,
}

impl Default for GradientOptions {
    /// Buckets of 25 MiB during the backward pass, no clipping, no metrics.
    fn default() -> Self {
        Self { bucket_bytes: 25 << 20, overlap: true, clip_norm: false, metrics_bytes: 0 }
    }
}

impl Node {
    /// A node without parameters that may run on these GPU counts.
    #[must_use]
    pub fn new(name: impl Into<String>, gpu_counts: impl IntoIterator<Item = usize>) -> Self {
        let mut gpu_counts: Vec<usize> = gpu_counts.into_iter().collect();
        gpu_counts.sort_unstable();
        gpu_counts.dedup();
        Self {
            name: name.into(),
            gpu_counts,
            gradient_bytes: 0,
            state_bytes: 0,
            parameters_of: None,
            synchronized: None,
            backward_reads: BackwardReads { input: true, output: true },
            is_kept: false,
        }
    }

    /// Sets the size of the gradient of its parameters.
    #[must_use]
    pub fn with_gradient_bytes(self, gradient_bytes: u64) -> Self {
        Self { gradient_bytes, ..self }
    }
}

impl PlanProblem {
    /// A problem without nodes.
    #[must_use]
    pub fn new(gpus: usize) -> Self {
        Self {
            gpus,
            nodes: Vec::new(),
            edges: Vec::new(),
            gradients: GradientOptions::default(),
            memory_limit_bytes: None,
            micro_batches: NonZeroUsize::MIN,
            single_gpu_us: None,
            checkpoints: Vec::new(),
        }
    }

    /// The nodes that can be [checkpoints](Self::checkpoints), producers first. O(nodes x (nodes + edges)).
    ///
    /// # Errors
    /// What [`validate`](Self::validate) reports.
    pub fn possible_checkpoints(&self) -> Result<Vec<NodeId>> {
        self.validate()?;
        Ok(ProblemGraph::new(self)?.possible_checkpoints().map(NodeId).collect())
    }

    /// Adds a node and returns its index.
    pub fn add_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// Lets `consumer` use the output of `producer`.
    pub fn add_edge(&mut self, producer: NodeId, consumer: NodeId) {
        self.edges.push((producer, consumer));
    }

    /// Checks that the problem is well formed. Every evaluation and search calls it. Time linear in its size.
    ///
    /// # Errors
    /// No GPU, no nodes, a name twice, a node without GPU counts or with one of 0, an edge to nowhere, to itself or twice,
    /// a cycle, parameters of a node that has none of its own, a checkpoint that cannot be one.
    pub fn validate(&self) -> Result<()> {
        if self.gpus == 0 {
            return Err(Error::NoGpus);
        }
        if self.nodes.is_empty() {
            return Err(Error::NoNodes);
        }
        let mut names = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(first) = names.insert(node.name.as_str(), index) {
                return Err(Error::DuplicateName { name: node.name.clone(), first, second: index });
            }
            if node.gpu_counts.is_empty() {
                return Err(Error::NoOptions { node: node.name.clone() });
            }
            if let Some((option, &gpus)) = node.gpu_counts.iter().enumerate().find(|&(_, &count)| count == 0)
            {
                let (node, available) = (node.name.clone(), self.gpus);
                return Err(Error::OptionGpus { node, option, gpus, available });
            }
            let has_its_own = |owner: &Node| owner.gradient_bytes > 0 && owner.parameters_of.is_none();
            if node.parameters_of.is_some_and(|NodeId(owner)| !self.nodes.get(owner).is_some_and(has_its_own))
            {
                return Err(Error::NoParametersToShare { node: node.name.clone() });
            }
        }
        let mut seen = HashMap::new();
        for (edge, &(NodeId(from), NodeId(to))) in self.edges.iter().enumerate() {
            let nodes = self.nodes.len();
            if let Some(&node) = [from, to].iter().find(|&&node| node >= nodes) {
                return Err(Error::EdgeToNowhere { edge, node, nodes });
            }
            let name = |node: usize| self.nodes[node].name.clone();
            if from == to {
                return Err(Error::SelfEdge { edge, node: name(from) });
            }
            if let Some(first) = seen.insert((from, to), edge) {
                let (from, to) = (name(from), name(to));
                return Err(Error::DuplicateEdge { first, second: edge, from, to });
            }
        }
        let structure = ProblemGraph::new(self)?;
        let is_wrong =
            |&NodeId(node): &NodeId| self.nodes.get(node).is_none() || !structure.can_be_checkpoint(node);
        self.checkpoints.iter().copied().find(is_wrong).map_or(Ok(()), |NodeId(node)| {
            let name = self.nodes.get(node).map_or_else(|| format!("#{node}"), |node| node.name.clone());
            Err(Error::NotACheckpoint { node: name })
        })
    }
}

/// What follows from the nodes and edges alone.
#[derive(Debug, Clone)]
pub(crate) struct ProblemGraph {
    pub(crate) producers: Vec<Vec<usize>>,
    pub(crate) consumers: Vec<Vec<usize>>,
    /// By node: whether anything learns from the gradient of its output.
    pub(crate) needs_gradient: Vec<bool>,
    /// By node: the nodes that use its parameters, itself first; none where it has none of its own.
    pub(crate) users: Vec<Vec<usize>>,
    /// Producers first, owners of parameters before other users, else the smaller index first.
    pub(crate) order: Vec<usize>,
}

impl ProblemGraph {
    /// Whether some node has several producers or consumers.
    pub(crate) fn has_branches(&self) -> bool {
        self.producers.iter().chain(&self.consumers).any(|near| near.len() > 1)
    }

    pub(crate) fn new(problem: &PlanProblem) -> Result<Self> {
        let count = problem.nodes.len();
        let (mut producers, mut consumers) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for &(NodeId(from), NodeId(to)) in &problem.edges {
            producers[to].push(from);
            consumers[from].push(to);
        }
        let mut users = vec![Vec::new(); count];
        for (index, node) in problem.nodes.iter().enumerate() {
            if node.gradient_bytes > 0 && node.parameters_of.is_none() {
                users[index].insert(0, index);
            }
            if let Some(NodeId(owner)) = node.parameters_of {
                users[owner].push(index);
            }
        }
        let order = topological(count, |node| {
            let other_users = users[node].iter().copied().filter(move |&user| user != node);
            consumers[node].iter().copied().chain(other_users)
        });
        if order.len() < count {
            let mut is_ordered = vec![false; count];
            for &node in &order {
                is_ordered[node] = true;
            }
            let on_cycle = is_ordered.iter().position(|ordered| !ordered).unwrap_or(0);
            return Err(Error::Cycle { node: problem.nodes[on_cycle].name.clone() });
        }
        let mut needs_gradient = vec![false; count];
        for &node in &order {
            let has_parameters =
                problem.nodes[node].gradient_bytes > 0 || problem.nodes[node].parameters_of.is_some();
            needs_gradient[node] =
                has_parameters || producers[node].iter().any(|&producer: &usize| needs_gradient[producer]);
        }
        Ok(Self { producers, consumers, needs_gradient, users, order })
    }

    /// What has to come before a node in any order.
    pub(crate) fn comes_before(&self, problem: &PlanProblem, node: usize) -> impl Iterator<Item = usize> {
        self.producers[node]
            .iter()
            .copied()
            .chain(problem.nodes[node].parameters_of.map(|NodeId(owner)| owner))
    }
}

/// Returns `count` nodes in topological order, the smaller index first among those that are ready. `after` lists
/// the successors of a node. If there is a cycle, the nodes on it and after it are missing.
/// O((nodes + edges) log(nodes)).
pub(crate) fn topological<I: Iterator<Item = usize>>(count: usize, after: impl Fn(usize) -> I) -> Vec<usize> {
    let mut waits = vec![0_usize; count];
    for later in (0..count).flat_map(&after) {
        waits[later] += 1;
    }
    let mut ready: BinaryHeap<_> = (0..count).filter(|&node| waits[node] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for later in after(node) {
            waits[later] -= 1;
            if waits[later] == 0 {
                ready.push(Reverse(later));
            }
        }
    }
    order
}
