//! Planning problems: nodes, edges and options of the training program.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use crate::{Error, NodeSplit, Result, SynchronizedBytes};

/// The index of a node in [`PlanProblem::nodes`], or of an operation in
/// [`PlacementProblem::operations`](crate::placement::PlacementProblem::operations).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub usize);

/// A training iteration to plan: its nodes, edges and collectives.
///
/// Their costs are given by a [`CostModel`](crate::CostModel). An
/// [`Arrangement`](crate::Arrangement) assigns nodes to ranks. The [crate's
/// page](crate#the-time-of-a-plan) defines the program of an iteration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanProblem {
    /// Number of GPUs: ranks are `0..gpus`.
    pub gpus: usize,
    /// The nodes, usually the layers of a network. Nodes without consumers compute losses, whose
    /// sum is the loss of the network.
    pub nodes: Vec<Node>,
    /// Pairs of a producer and a consumer of its output. Acyclic, without duplicates.
    pub edges: Vec<(NodeId, NodeId)>,
    /// Options of gradient reduction.
    pub gradients: GradientOptions,
    /// Maximum memory of a rank, bytes; `None` is unlimited. A search finds only arrangements
    /// within the limit.
    pub memory_limit_bytes: Option<u64>,
    /// Number of micro-batches. An iteration runs forward and backward passes for one after
    /// another; costs are those of one. Gradients are accumulated and reduced in the last one.
    pub micro_batches: NonZeroUsize,
    /// Time of an iteration on one GPU, microseconds, by which GPU time is divided to give
    /// amplification. The default is the sum of the nodes' times on one GPU. Set it with
    /// micro-batches, which one GPU need not use.
    pub single_gpu_us: Option<f64>,
    /// Nodes whose outputs are kept for the backward pass. Outputs of the nodes before them that
    /// only these nodes use are recomputed in the backward pass. Every other node comes before or
    /// after each of them ([`possible_checkpoints`](Self::possible_checkpoints)).
    pub checkpoints: Vec<NodeId>,
}

/// A node to place, usually a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Name, unique in the problem.
    pub name: String,
    /// The GPU counts that a search chooses from, ascending.
    pub gpu_counts: Vec<usize>,
    /// Size of the gradient of the node's own parameters, bytes; 0 if it has none.
    pub gradient_bytes: u64,
    /// Size of the parameters and optimizer state on every rank that holds them, bytes. Nodes that
    /// use another node's parameters have none of their own.
    pub state_bytes: u64,
    /// The node whose parameters this one uses, which comes earlier in every order; `None` if it
    /// uses its own or none.
    pub parameters_of: Option<NodeId>,
    /// Bytes that the node's ranks all-reduce before the forward step and after the backward step,
    /// as synchronized batch normalization does; `None` if there is no such all-reduce.
    pub synchronized: Option<SynchronizedBytes>,
    /// The results of forward steps that the backward step reads; all by default.
    pub backward_reads: BackwardReads,
    /// Whether the output is kept, whatever the [checkpoints](PlanProblem::checkpoints) are.
    pub is_kept: bool,
    /// Ways to divide the work of a sample among several ranks; none by default. With a split, the
    /// number of ranges of samples is one of `gpu_counts`.
    pub splits: Vec<NodeSplit>,
}

/// The results of forward steps that a node's backward step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackwardReads {
    /// Whether it reads the outputs of the node's producers.
    pub input: bool,
    /// Whether it reads the node's own output.
    pub output: bool,
    /// Whether it reads other values that the forward step saves.
    pub saved: bool,
}

/// Options of gradient reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradientOptions {
    /// Bucket size: gradients of nodes on the same ranks are all-reduced together once they have
    /// this many bytes.
    pub bucket_bytes: u64,
    /// Whether gradients are all-reduced during the backward pass; otherwise after it.
    pub overlap: bool,
    /// Whether gradients are scaled by their global norm, which all ranks need before the first
    /// update.
    pub clip_norm: bool,
    /// Size of the metrics of a loss, bytes; 0 is none. The ranks of each loss all-reduce them at
    /// the end of an iteration, in the order of the losses.
    pub metrics_bytes: u64,
}

impl Default for GradientOptions {
    /// Buckets of 25 MiB during the backward pass, no clipping, no metrics.
    fn default() -> Self {
        Self { bucket_bytes: 25 << 20, overlap: true, clip_norm: false, metrics_bytes: 0 }
    }
}

impl Node {
    /// Creates a node without parameters that can run on these GPU counts. They are sorted, and
    /// duplicates are removed.
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
            backward_reads: BackwardReads { input: true, output: true, saved: true },
            is_kept: false,
            splits: Vec::new(),
        }
    }

    /// Sets the size of the gradient of its parameters, bytes.
    #[must_use]
    pub fn with_gradient_bytes(self, gradient_bytes: u64) -> Self {
        Self { gradient_bytes, ..self }
    }
}

impl PlanProblem {
    /// Creates a problem with `gpus` GPUs, without nodes, a memory limit or checkpoints, with one
    /// micro-batch and the default gradient options.
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

    /// Returns the nodes that can be [checkpoints](Self::checkpoints), producers first. O(nodes x
    /// (nodes + edges)).
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn possible_checkpoints(&self) -> Result<Vec<NodeId>> {
        self.validate()?;
        Ok(ProblemGraph::new(self)?.possible_checkpoints().map(NodeId).collect())
    }

    /// Adds a node and returns its index.
    pub fn add_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// Adds an edge: `consumer` uses the output of `producer`. [`validate`](Self::validate) checks
    /// it.
    pub fn add_edge(&mut self, producer: NodeId, consumer: NodeId) {
        self.edges.push((producer, consumer));
    }

    /// Returns whether any node can be split.
    pub(crate) fn has_splits(&self) -> bool {
        self.nodes.iter().any(|node| !node.splits.is_empty())
    }

    /// Returns the numbers of parts of all splits, ascending.
    pub(crate) fn all_parts(&self) -> Vec<usize> {
        let splits = self.nodes.iter().flat_map(|node| &node.splits);
        let mut all: Vec<usize> = splits.map(|split| split.parts).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns all GPU counts up to the number of GPUs that some node can run on, ascending.
    pub(crate) fn all_gpu_counts(&self) -> Vec<usize> {
        let counts = self.nodes.iter().flat_map(|node| node.gpu_counts.iter().copied());
        let mut counts: Vec<usize> = counts.filter(|&count| count <= self.gpus).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Checks the problem. Every evaluation and search calls it. Linear time.
    ///
    /// # Errors
    /// An error if there is no GPU or node, a name is used twice, a node has no GPU counts or the
    /// count 0, a split has fewer than two parts, an edge refers to a missing node, to itself or is
    /// a duplicate, the edges form a cycle, a node uses the parameters of a node without any, or a
    /// checkpoint is not possible.
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
            if let Some((split, &NodeSplit { parts, .. })) =
                node.splits.iter().enumerate().find(|(_, split)| split.parts < 2)
            {
                return Err(Error::SplitParts { node: node.name.clone(), split, parts });
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

/// Relations between nodes that follow from the edges and shared parameters. Nodes are given by
/// their indices in [`PlanProblem::nodes`].
#[derive(Debug, Clone)]
pub(crate) struct ProblemGraph {
    /// By node: the nodes whose outputs it uses, in order of the edges.
    pub(crate) producers: Vec<Vec<usize>>,
    /// By node: the nodes that use its output, in order of the edges.
    pub(crate) consumers: Vec<Vec<usize>>,
    /// By node: whether the gradient of its output is needed, because it or a node before it has
    /// parameters.
    pub(crate) needs_gradient: Vec<bool>,
    /// By node: the nodes that use its parameters, itself first; empty if it owns none.
    pub(crate) users: Vec<Vec<usize>>,
    /// By node: the bytes that its ranks all-reduce within its steps; 0 if there are none.
    pub(crate) synchronized: Vec<SynchronizedBytes>,
    /// By node: [`Node::gradient_bytes`].
    pub(crate) gradient_bytes: Vec<u64>,
    /// By node: [`Node::state_bytes`].
    pub(crate) state_bytes: Vec<u64>,
    /// Topological order: producers first, owners of parameters before other users, then by index.
    pub(crate) order: Vec<usize>,
}

impl ProblemGraph {
    /// Returns whether any node has several producers or consumers.
    pub(crate) fn has_branches(&self) -> bool {
        self.producers.iter().chain(&self.consumers).any(|near| near.len() > 1)
    }

    /// Returns by place in the topological order whether all paths contain the node. O(nodes +
    /// edges).
    pub(crate) fn articulations(&self) -> Vec<bool> {
        let count = self.order.len();
        let mut places = vec![0; count];
        for (place, &node) in self.order.iter().enumerate() {
            places[node] = place;
        }
        // The farthest place that an edge from before a node leads to. If it is that node, and no
        // path starts later, all paths contain it.
        let mut reaches = 0;
        let mut sources = self.producers.iter().filter(|producers| producers.is_empty()).count();
        let is_articulation = |(place, &node): (usize, &usize)| {
            sources -= usize::from(self.producers[node].is_empty());
            let is_cut = reaches <= place && sources == 0;
            let farthest = self.consumers[node].iter().map(|&consumer| places[consumer]).max();
            reaches = reaches.max(farthest.unwrap_or(count));
            is_cut
        };
        self.order.iter().enumerate().map(is_articulation).collect()
    }

    /// Computes the relations of a problem whose edges refer to existing nodes. Fails with
    /// [`Error::Cycle`].
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
        let nothing = SynchronizedBytes { forward: 0, backward: 0 };
        let synchronized = problem.nodes.iter().map(|node| node.synchronized.unwrap_or(nothing)).collect();
        let gradient_bytes = problem.nodes.iter().map(|node| node.gradient_bytes).collect();
        let state_bytes = problem.nodes.iter().map(|node| node.state_bytes).collect();
        Ok(Self {
            producers,
            consumers,
            needs_gradient,
            users,
            synchronized,
            gradient_bytes,
            state_bytes,
            order,
        })
    }

    /// Returns the nodes that directly precede a node in every order: its producers and the owner
    /// of the parameters that it uses.
    pub(crate) fn comes_before(&self, problem: &PlanProblem, node: usize) -> impl Iterator<Item = usize> {
        self.producers[node]
            .iter()
            .copied()
            .chain(problem.nodes[node].parameters_of.map(|NodeId(owner)| owner))
    }
}

/// Returns the nodes `0..count` in topological order, the smaller index first among those that are
/// ready. `after` returns the successors of a node. If there is a cycle, the nodes on it and after
/// it are missing. O((nodes + edges) log(nodes)).
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
