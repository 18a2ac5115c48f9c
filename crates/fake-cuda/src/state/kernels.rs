//! Which kernel runs, from its start to its end.

use super::{Driver, Handle, nodes::NodeWork, work::Work};
use std::sync::Arc;

/// How the names of kernels begin that fail when they end.
const FAILING: &str = "fail_";

/// The kernel that the device runs.
pub(crate) struct Running {
    stream: Handle,
    /// The node of the graph at the stream's head, for a graph's kernel.
    node: Option<usize>,
    name: Arc<str>,
    started: u64,
    pub(super) ends: u64,
}

impl Driver {
    /// Starts the kernel whose turn it is, if there is one.
    pub(super) fn start_kernel(&mut self) {
        let mut best: Option<((i32, u64, usize), Running)> = None;
        for (handle, stream) in &self.streams {
            let Some(head) = stream.queue.front() else { continue };
            let kernels: Vec<_> = match &head.work {
                Work::Single(NodeWork::Kernel(kernel)) => vec![(None, stream.priority, kernel)],
                Work::Graph { plan, .. } => {
                    let run = stream.graph.iter();
                    run.flat_map(|run| run.kernels(plan, stream.priority)).collect()
                }
                _ => Vec::new(),
            };
            for (node, priority, kernel) in kernels {
                let rank = (priority, head.launch, node.unwrap_or(0));
                if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                    let started = self.engine.now;
                    let ends = started + kernel.duration_ns;
                    let name = Arc::clone(&kernel.name);
                    best = Some((rank, Running { stream: *handle, node, name, started, ends }));
                }
            }
        }
        self.engine.running = best.map(|(_, running)| running);
    }

    /// Goes to the end of the kernel that runs.
    pub(super) fn end_kernel(&mut self) {
        let Some(Running { stream, node, name, started, ends }) = self.engine.running.take() else { return };
        self.engine.now = self.engine.now.max(ends);
        self.engine.idle_queries = 0;
        let line = format!("{started} {ends} {} {name}\n", self.handles.name(stream).replace(' ', "-"));
        self.engine.finished.push(line);
        if name.starts_with(FAILING) {
            self.engine.failed = true;
            self.streams.values_mut().for_each(|stream| stream.queue.clear());
            return;
        }
        match node {
            None => self.drop_head(stream),
            Some(node) => self.end_node(stream, node),
        }
    }
}
