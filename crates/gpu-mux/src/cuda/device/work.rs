use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cuda::{Executable, Merged, Result, Stream};

/// Puts work into a stream.
pub type EnqueueFn = dyn Fn(&Stream) -> Result<()> + Send + Sync;

/// What is launched for a tasklet. A clone is the same work, to be launched again.
#[derive(Clone)]
pub struct Work {
    graph: Option<Arc<Executable>>,
    /// What is launched where there is no graph; and what a graph was captured from, because that has the kernels and
    /// the memory.
    enqueue: Option<Arc<Box<EnqueueFn>>>,
}

/// What finished work was the last to hold. Dropping it can make the host wait for the whole device, as memory and modules
/// are freed with it: that is deferred until waiting is allowed.
pub(super) enum DeferredDrop {
    Graph(#[expect(dead_code, reason = "it is there to be dropped")] Executable),
    Enqueue(#[expect(dead_code, reason = "it is there to be dropped")] Box<EnqueueFn>),
}

impl Work {
    /// A graph, which is launched in one call. What it was captured from has to stay as long as it.
    #[must_use]
    pub fn graph(executable: Arc<Executable>) -> Self {
        Self { graph: Some(executable), enqueue: None }
    }

    /// Whatever this puts into the stream that it is given: kernels, one by one. It must not wait.
    pub fn enqueue(enqueue: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static) -> Self {
        Self { graph: None, enqueue: Some(Arc::new(Box::new(enqueue))) }
    }

    /// The same work as a graph.
    pub(super) fn captured(&self, executable: Arc<Executable>) -> Self {
        Self { graph: Some(executable), enqueue: self.enqueue.clone() }
    }

    /// Whether it is a graph.
    #[must_use]
    pub fn is_graph(&self) -> bool {
        self.graph.is_some()
    }

    /// Drops this handle, and gives what it was the last one of.
    pub(super) fn deferred_drops(self) -> impl Iterator<Item = DeferredDrop> {
        let graph = self.graph.and_then(Arc::into_inner).map(DeferredDrop::Graph);
        let enqueue = self.enqueue.and_then(Arc::into_inner).map(DeferredDrop::Enqueue);
        graph.into_iter().chain(enqueue)
    }

    pub(super) fn launch(&self, stream: &Stream) -> Result<()> {
        match (&self.graph, &self.enqueue) {
            (Some(executable), _) => executable.launch(stream),
            (None, Some(enqueue)) => enqueue(stream),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_graph() { "a graph" } else { "kernels" })
    }
}

impl fmt::Debug for DeferredDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what work has held")
    }
}

/// Work with the time that it takes on a device of its own.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What is launched.
    pub work: Work,
    /// How long it took, measured (or for merged graphs: how long they took together).
    pub estimate: Duration,
}

impl From<&Merged> for Prepared {
    fn from(merged: &Merged) -> Self {
        Self { work: Work::graph(Arc::clone(&merged.executable)), estimate: merged.estimate }
    }
}
