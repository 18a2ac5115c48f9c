//! Executable graphs (`CUgraphExec`), as steps with dependencies. A step is a node of the graph;
//! the nodes of child graphs are steps too.

use super::{
    Handle,
    nodes::{KernelNode, NodeWork},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Steps of an executable graph.
#[derive(Clone)]
pub(crate) struct ExecSteps {
    /// Steps in a topological order. The index of a step is its index in this list.
    pub(super) list: Vec<ExecStep>,
    /// Index of the step of each node, by the handle of the node.
    pub(super) step_of_node: HashMap<Handle, usize>,
    /// Whether kernels have the priorities of their nodes instead of the priority of the stream.
    pub(super) use_node_priorities: bool,
}

/// Step of an executable graph.
#[derive(Clone)]
pub(crate) struct ExecStep {
    /// Work of the step.
    pub(super) work: NodeWork,
    /// Indices of the steps that must complete before it.
    pub(super) dependencies: Vec<usize>,
    /// Indices of the steps that depend on it.
    pub(super) dependents: Vec<usize>,
}

impl ExecSteps {
    /// Appends a step and returns its index. `dependencies` are indices of earlier steps.
    pub(super) fn add(&mut self, work: NodeWork, dependencies: Vec<usize>) -> usize {
        let index = self.list.len();
        for &before in &dependencies {
            self.list[before].dependents.push(index);
        }
        self.list.push(ExecStep { work, dependencies, dependents: Vec::new() });
        index
    }
}

/// Progress of one launch of an executable graph.
pub(crate) struct ExecProgress {
    /// Number of incomplete dependencies of each step.
    waiting: Vec<usize>,
    /// Indices of the steps that are not complete and whose dependencies are.
    pub(super) ready: BTreeSet<usize>,
    /// Number of steps that are not complete.
    pub(super) left: usize,
}

impl ExecProgress {
    /// Creates the progress of a launch of which no step is complete.
    pub(super) fn new(steps: &ExecSteps) -> Self {
        let waiting: Vec<_> = steps.list.iter().map(|node| node.dependencies.len()).collect();
        let ready = (0..waiting.len()).filter(|&node| waiting[node] == 0).collect();
        Self { left: waiting.len(), waiting, ready }
    }

    /// Returns the indices of the steps that are not complete and whose dependencies are.
    pub(super) fn ready(&self) -> impl Iterator<Item = usize> {
        self.ready.iter().copied()
    }

    /// Returns the ready kernels, each with the index of its step, which is never `None`, and its
    /// priority: that of its node if the graph was instantiated with node priorities, or else
    /// `stream_priority`. The lowest number is the highest priority.
    pub(super) fn kernels<'a>(
        &'a self,
        steps: &'a ExecSteps,
        stream_priority: i32,
    ) -> impl Iterator<Item = (Option<usize>, i32, &'a KernelNode)> {
        self.ready.iter().filter_map(move |&node| match &steps.list[node].work {
            NodeWork::Kernel(kernel) => Some((
                Some(node),
                if steps.use_node_priorities { kernel.priority } else { stream_priority },
                kernel,
            )),
            _ => None,
        })
    }

    /// Marks the ready step with index `node` as complete, so that its dependents may become ready.
    pub(super) fn end(&mut self, steps: &ExecSteps, node: usize) {
        self.ready.remove(&node);
        self.left -= 1;
        for &next in &steps.list[node].dependents {
            self.waiting[next] -= 1;
            if self.waiting[next] == 0 {
                self.ready.insert(next);
            }
        }
    }
}

/// Executable graph.
pub(crate) struct Exec {
    /// Graph from which it was instantiated.
    pub(super) graph: Handle,
    /// Steps of the graph.
    pub(super) steps: Arc<ExecSteps>,
    /// Number of the event record that was enqueued after its last launch, or `None` before the
    /// first launch.
    pub(super) last: Option<u64>,
}
