//! What uses memory, and what is known to be done before it.

use super::clock::VectorClock;
use crate::state::Handle;
use std::{collections::HashMap, sync::Arc};

/// A kernel, a copy, a fill, or a group of collectives: whatever uses memory.
pub(crate) struct Task {
    chain: usize,
    /// Its place in its chain, from 1.
    count: u64,
    /// What is done before it, and itself.
    pub(in crate::state) clock: VectorClock,
    /// What it is, and where: `kernel gemm in stream 3 of device 0`.
    pub(in crate::state) label: String,
}

impl Task {
    /// Whether one who knows this comes after it.
    pub(in crate::state) fn is_before(&self, clock: &VectorClock) -> bool {
        clock.of(self.chain) >= self.count
    }
}

/// The chains of all streams. The work of a stream is a chain, and so are those nodes of a graph that follow each other; nodes that are
/// beside each other are of other chains of the graph's stream.
#[derive(Default)]
pub(in crate::state) struct Chains {
    /// By chain: how many tasks it has.
    counts: Vec<u64>,
    streams: HashMap<Handle, StreamOrder>,
}

/// What a stream knows.
#[derive(Default)]
pub(in crate::state) struct StreamOrder {
    /// The first is of the work that is in no graph.
    chains: Vec<usize>,
    /// What is done before its next work.
    clock: VectorClock,
    graph: Option<LaunchOrder>,
}

/// What the nodes of a graph that is under way know.
struct LaunchOrder {
    start: VectorClock,
    /// By node, what whoever depends on it knows.
    nodes: HashMap<usize, VectorClock>,
    /// By their places among the stream's chains, the last node of each.
    lanes: Vec<usize>,
}

impl LaunchOrder {
    fn before(&self, dependencies: &[usize]) -> VectorClock {
        let mut clock = self.start.clone();
        dependencies.iter().filter_map(|node| self.nodes.get(node)).for_each(|node| clock.join(node));
        clock
    }

    /// The chain on which a node goes on: that of a dependency after which nobody has gone on yet, or else a new one.
    fn lane(&mut self, node: usize, dependencies: &[usize]) -> usize {
        let found = self.lanes.iter().position(|last| dependencies.contains(last));
        if let Some(lane) = found {
            self.lanes[lane] = node;
            return lane;
        }
        self.lanes.push(node);
        self.lanes.len() - 1
    }
}

/// A node of a graph under way, and those that it depends on.
pub(in crate::state) type Node<'a> = (usize, &'a [usize]);

impl Chains {
    fn stream(&mut self, stream: Handle) -> &mut StreamOrder {
        self.streams.entry(stream).or_default()
    }

    /// What a stream knows that has done its work.
    pub(in crate::state) fn of_stream(&self, stream: Handle) -> Option<&VectorClock> {
        self.streams.get(&stream).map(|stream| &stream.clock)
    }

    pub(in crate::state) fn remove(&mut self, stream: Handle) -> VectorClock {
        self.streams.remove(&stream).unwrap_or_default().clock
    }

    /// Begins a task, which is the next one of a stream or a node of its graph.
    pub(in crate::state) fn begin(
        &mut self,
        stream: Handle,
        node: Option<Node<'_>>,
        label: String,
    ) -> Arc<Task> {
        let order = self.streams.entry(stream).or_default();
        let graph = node.zip(order.graph.as_mut());
        let (mut clock, lane) = match graph {
            Some(((node, dependencies), graph)) => {
                (graph.before(dependencies), graph.lane(node, dependencies))
            }
            None => (std::mem::take(&mut order.clock), 0),
        };
        while order.chains.len() <= lane {
            order.chains.push(self.counts.len());
            self.counts.push(0);
        }
        let chain = order.chains[lane];
        self.counts[chain] += 1;
        let count = self.counts[chain];
        clock.set(chain, count);
        let task = Arc::new(Task { chain, count, clock: clock.clone(), label });
        self.teach(stream, node, &clock);
        task
    }

    /// Whoever comes after this work of a stream, or this node of its graph, knows that, too.
    pub(in crate::state) fn teach(&mut self, stream: Handle, node: Option<Node<'_>>, clock: &VectorClock) {
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

    pub(in crate::state) fn begin_graph(&mut self, stream: Handle) {
        let order = self.stream(stream);
        let (start, nodes, lanes) = (order.clock.clone(), HashMap::new(), Vec::new());
        order.graph = Some(LaunchOrder { start, nodes, lanes });
    }

    /// What comes after a graph comes after all its nodes.
    pub(in crate::state) fn end_graph(&mut self, stream: Handle) {
        let order = self.stream(stream);
        for node in order.graph.take().into_iter().flat_map(|graph| graph.nodes.into_values()) {
            order.clock.join(&node);
        }
    }
}
