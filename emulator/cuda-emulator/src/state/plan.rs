//! Graphs as they run: their nodes, child graphs opened up, by dependencies.

use super::{
    Driver, Handle,
    nccl::BatchId,
    nodes::{KernelNode, NodeWork},
    work::Work,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// A graph that was instantiated.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(super) nodes: Vec<PlanNode>,
    /// Which step stands for each node.
    pub(super) places: HashMap<Handle, usize>,
    /// Kernels have the priorities of their nodes, rather than their stream's.
    pub(super) own_priorities: bool,
}

/// One step of a plan.
#[derive(Clone)]
pub(crate) struct PlanNode {
    pub(super) work: NodeWork,
    pub(super) dependencies: Vec<usize>,
    pub(super) dependents: Vec<usize>,
}

impl Plan {
    pub(super) fn add(&mut self, work: NodeWork, dependencies: Vec<usize>) -> usize {
        let index = self.nodes.len();
        for &before in &dependencies {
            self.nodes[before].dependents.push(index);
        }
        self.nodes.push(PlanNode { work, dependencies, dependents: Vec::new() });
        index
    }
}

/// How far a launch of a plan has come.
pub(crate) struct PlanRun {
    /// How many of each node's dependencies have not ended.
    waiting: Vec<usize>,
    ready: BTreeSet<usize>,
    left: usize,
}

impl PlanRun {
    fn new(plan: &Plan) -> Self {
        let waiting: Vec<_> = plan.nodes.iter().map(|node| node.dependencies.len()).collect();
        let ready = (0..waiting.len()).filter(|&node| waiting[node] == 0).collect();
        Self { left: waiting.len(), waiting, ready }
    }

    /// The nodes whose turn it is.
    pub(super) fn ready(&self) -> impl Iterator<Item = usize> {
        self.ready.iter().copied()
    }

    /// Kernels whose turn it is: node, priority, kernel.
    pub(super) fn kernels<'a>(
        &'a self,
        plan: &'a Plan,
        stream_priority: i32,
    ) -> impl Iterator<Item = (Option<usize>, i32, &'a KernelNode)> {
        self.ready.iter().filter_map(move |&node| match &plan.nodes[node].work {
            NodeWork::Kernel(kernel) => Some((
                Some(node),
                if plan.own_priorities { kernel.priority } else { stream_priority },
                kernel,
            )),
            _ => None,
        })
    }

    fn end(&mut self, plan: &Plan, node: usize) {
        self.ready.remove(&node);
        self.left -= 1;
        for &next in &plan.nodes[node].dependents {
            self.waiting[next] -= 1;
            if self.waiting[next] == 0 {
                self.ready.insert(next);
            }
        }
    }
}

impl Driver {
    /// Does what a graph's launch can do now: whether anything was done, and whether the launch has ended.
    pub(super) fn step_graph(
        &mut self,
        stream: Handle,
        plan: &Plan,
        batches: &BTreeMap<usize, BatchId>,
    ) -> (bool, bool) {
        let Some(mut run) = self.streams.get_mut(&stream).and_then(|stream| stream.graph.take()) else {
            self.note_graph_begin(stream);
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.graph = Some(PlanRun::new(plan));
            }
            return (true, false);
        };
        let mut moved = false;
        for node in run.ready.clone() {
            let done = match &plan.nodes[node].work {
                NodeWork::Kernel(_) => false,
                NodeWork::Collectives(_) => {
                    batches.get(&node).is_none_or(|id| self.run_batch(stream, Some(node), *id))
                }
                work => self.do_now(stream, Some(node), work),
            };
            if done {
                run.end(plan, node);
                moved = true;
            }
        }
        let lost = self.streams.get(&stream).is_none_or(|stream| stream.queue.is_empty());
        let ended = run.left == 0 || lost;
        if ended {
            self.note_graph_end(stream);
        } else if let Some(stream) = self.streams.get_mut(&stream) {
            stream.graph = Some(run);
        }
        (moved, ended)
    }

    /// The kernel of this node has ended.
    pub(super) fn end_node(&mut self, stream: Handle, node: usize) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        let Some(plan) = stream.queue.front().and_then(|head| match &head.work {
            Work::Graph { plan, .. } => Some(Arc::clone(plan)),
            _ => None,
        }) else {
            return;
        };
        if let Some(run) = &mut stream.graph {
            run.end(&plan, node);
        }
    }
}
