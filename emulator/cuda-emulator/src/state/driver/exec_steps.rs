//! Execution of launches of executable graphs. The nodes of an executable graph are called steps.

use super::Driver;
use crate::state::{
    Handle,
    exec_steps::{ExecProgress, ExecSteps},
    nccl::BatchId,
    nodes::NodeWork,
    work::StreamWork,
};
use std::{collections::BTreeMap, sync::Arc};

impl Driver {
    /// Executes the ready steps of the graph launch at the head of a stream that take no time.
    /// `batches` has the batch of each step with NCCL operations, by the index of the step. Returns
    /// whether anything was executed, and whether the launch has ended.
    pub(super) fn advance_graph(
        &mut self,
        stream: Handle,
        steps: &ExecSteps,
        batches: &BTreeMap<usize, BatchId>,
    ) -> (bool, bool) {
        let Some(mut run) = self.streams.get_mut(&stream).and_then(|stream| stream.graph.take()) else {
            self.note_graph_begin(stream);
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.graph = Some(ExecProgress::new(steps));
            }
            return (true, false);
        };
        let mut moved = false;
        for node in run.ready.clone() {
            let done = match &steps.list[node].work {
                NodeWork::Kernel(_) => false,
                NodeWork::Collectives(_) => {
                    batches.get(&node).is_none_or(|id| self.advance_batch(stream, Some(node), *id))
                }
                work => self.execute_instant(stream, Some(node), work),
            };
            if done {
                run.end(steps, node);
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
        let Some(steps) = stream.queue.front().and_then(|head| match &head.work {
            StreamWork::Graph { steps, .. } => Some(Arc::clone(steps)),
            _ => None,
        }) else {
            return;
        };
        if let Some(run) = &mut stream.graph {
            run.end(&steps, node);
        }
    }
}
