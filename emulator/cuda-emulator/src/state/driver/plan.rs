//! Execution of launches of executable graphs. A plan holds the steps of the graph.

use super::Driver;
use crate::state::{
    Handle,
    nccl::BatchId,
    nodes::NodeWork,
    plan::{Plan, PlanProgress},
    work::StreamWork,
};
use std::{collections::BTreeMap, sync::Arc};

impl Driver {
    /// Executes the ready steps of the graph launch at the head of a stream that take no time.
    /// `batches` are its batches of NCCL operations, by step. Returns whether anything was
    /// executed, and whether the launch has ended.
    pub(super) fn step_graph(
        &mut self,
        stream: Handle,
        plan: &Plan,
        batches: &BTreeMap<usize, BatchId>,
    ) -> (bool, bool) {
        let Some(mut run) = self.streams.get_mut(&stream).and_then(|stream| stream.graph.take()) else {
            self.note_graph_begin(stream);
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.graph = Some(PlanProgress::new(plan));
            }
            return (true, false);
        };
        let mut moved = false;
        for node in run.ready.clone() {
            let done = match &plan.nodes[node].work {
                NodeWork::Kernel(_) => false,
                NodeWork::Collectives(_) => {
                    batches.get(&node).is_none_or(|id| self.advance_batch(stream, Some(node), *id))
                }
                work => self.execute_instant(stream, Some(node), work),
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

    /// Marks the kernel with step index `node` of the graph launch at the head of a stream as
    /// complete.
    pub(super) fn end_node(&mut self, stream: Handle, node: usize) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        let Some(plan) = stream.queue.front().and_then(|head| match &head.work {
            StreamWork::Graph { plan, .. } => Some(Arc::clone(plan)),
            _ => None,
        }) else {
            return;
        };
        if let Some(run) = &mut stream.graph {
            run.end(&plan, node);
        }
    }
}
