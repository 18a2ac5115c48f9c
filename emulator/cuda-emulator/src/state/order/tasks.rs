//! Tasks and the order of the chains that they belong to. The clock of a task is the set of the
//! task and its predecessors; the clock of a stream is the set of the predecessors of its next
//! work.

use super::clock::VectorClock;
use crate::state::Handle;
use std::{collections::HashMap, sync::Arc};

/// Work that uses memory, such as a kernel, copy, fill or group of collectives.
pub(crate) struct Task {
    chain: usize,
    /// Index in its chain, from 1.
    count: u64,
    /// Set of the task and all its predecessors.
    pub(in crate::state) clock: VectorClock,
    /// Description such as `kernel gemm in stream 3 of device 0`.
    pub(in crate::state) label: String,
}

impl Task {
    /// Returns whether the task is in the set `clock`.
    pub(in crate::state) fn is_before(&self, clock: &VectorClock) -> bool {
        clock.get(self.chain) >= self.count
    }
}

/// Chains of tasks. The work of a stream is a chain. Nodes of a graph that follow each other share
/// a chain, and parallel nodes use further chains of the graph's stream.
#[derive(Default)]
pub(in crate::state) struct Chains {
    /// Number of tasks of each chain.
    counts: Vec<u64>,
    streams: HashMap<Handle, StreamOrder>,
}

/// Order of the work of a stream.
#[derive(Default)]
pub(in crate::state) struct StreamOrder {
    /// Chains of the stream. The first holds the work outside graphs.
    chains: Vec<usize>,
    /// Predecessors of the stream's next work.
    clock: VectorClock,
    graph: Option<GraphOrder>,
}

/// Order of the nodes of a running graph.
struct GraphOrder {
    start: VectorClock,
    /// Clock of each node's dependents.
    nodes: HashMap<usize, VectorClock>,
    /// Last node of each chain of the stream, in the order of `StreamOrder::chains`.
    last_nodes: Vec<usize>,
}

impl GraphOrder {
    fn before(&self, dependencies: &[usize]) -> VectorClock {
        let mut clock = self.start.clone();
        dependencies.iter().filter_map(|node| self.nodes.get(node)).for_each(|node| clock.join(node));
        clock
    }

    /// Returns the index of a node's chain among the chains of the stream. The node continues the
    /// chain of a dependency that is the last of its chain, or else starts a new chain.
    fn chain(&mut self, node: usize, dependencies: &[usize]) -> usize {
        let found = self.last_nodes.iter().position(|last| dependencies.contains(last));
        if let Some(index) = found {
            self.last_nodes[index] = node;
            return index;
        }
        self.last_nodes.push(node);
        self.last_nodes.len() - 1
    }
}

/// Node of a running graph: the index of its step in the executable graph, and the indices of the
/// steps that it depends on.
pub(in crate::state) type Node<'a> = (usize, &'a [usize]);

impl Chains {
    fn stream(&mut self, stream: Handle) -> &mut StreamOrder {
        self.streams.entry(stream).or_default()
    }

    /// Returns the clock of a stream, or `None` if it has had no work.
    pub(in crate::state) fn of_stream(&self, stream: Handle) -> Option<&VectorClock> {
        self.streams.get(&stream).map(|stream| &stream.clock)
    }

    /// Removes a stream and returns its clock.
    pub(in crate::state) fn remove(&mut self, stream: Handle) -> VectorClock {
        self.streams.remove(&stream).unwrap_or_default().clock
    }

    /// Starts the next task of a stream, or of a node of the graph that it runs. `label` describes
    /// the task.
    pub(in crate::state) fn begin(
        &mut self,
        stream: Handle,
        node: Option<Node<'_>>,
        label: String,
    ) -> Arc<Task> {
        let order = self.streams.entry(stream).or_default();
        let graph = node.zip(order.graph.as_mut());
        let (mut clock, index) = match graph {
            Some(((node, dependencies), graph)) => {
                (graph.before(dependencies), graph.chain(node, dependencies))
            }
            None => (std::mem::take(&mut order.clock), 0),
        };
        while order.chains.len() <= index {
            order.chains.push(self.counts.len());
            self.counts.push(0);
        }
        let chain = order.chains[index];
        self.counts[chain] += 1;
        let count = self.counts[chain];
        clock.set(chain, count);
        let task = Arc::new(Task { chain, count, clock: clock.clone(), label });
        self.add_predecessors(stream, node, &clock);
        task
    }

    /// Orders the later work of a stream, or the dependents of a node of the graph that it runs,
    /// after the tasks in `clock`.
    pub(in crate::state) fn add_predecessors(
        &mut self,
        stream: Handle,
        node: Option<Node<'_>>,
        clock: &VectorClock,
    ) {
        let order = self.stream(stream);
        match node.zip(order.graph.as_mut()) {
            Some(((node, dependencies), graph)) => {
                let before = graph.before(dependencies);
                let own = graph.nodes.entry(node).or_default();
                own.join(&before);
                own.join(clock);
            }
            None => order.clock.join(clock),
        }
    }

    /// Starts a graph in a stream. Its nodes are ordered after the earlier work of the stream.
    pub(in crate::state) fn begin_graph(&mut self, stream: Handle) {
        let order = self.stream(stream);
        let (start, nodes, last_nodes) = (order.clock.clone(), HashMap::new(), Vec::new());
        order.graph = Some(GraphOrder { start, nodes, last_nodes });
    }

    /// Ends the graph of a stream. The later work of the stream is ordered after all its nodes.
    pub(in crate::state) fn end_graph(&mut self, stream: Handle) {
        let order = self.stream(stream);
        for node in order.graph.take().into_iter().flat_map(|graph| graph.nodes.into_values()) {
            order.clock.join(&node);
        }
    }
}
