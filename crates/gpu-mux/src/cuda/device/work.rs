//! Work that is launched for a tasklet on a GPU. An executable *graph* is work that was captured
//! from a stream, and is launched at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::cuda::{Executable, MergedGraph, Result, Stream};

/// Function that enqueues work into the given stream.
pub type EnqueueFn = dyn Fn(&Stream) -> Result<()> + Send + Sync;

/// Work of a tasklet: an executable graph, or a function that enqueues kernels. A clone is the same
/// work, which can be launched again.
#[derive(Clone)]
pub struct Work(Launched);

/// Function that owns kernels and their memory. The box is the object whose drop is deferred.
type Function = Arc<Box<EnqueueFn>>;

#[derive(Clone)]
enum Launched {
    /// A graph, and the function that it was captured from, if it is known: it may own memory that
    /// the graph does not keep, because kernels are given its address only.
    Graph(Arc<Executable>, Option<Function>),
    Function(Function),
}

/// Objects whose last reference was held by finished work. Dropping them frees memory and unloads
/// modules, which can block until the device is idle, so the drop is deferred until blocking is
/// allowed.
pub(super) enum DeferredDrop {
    /// A graph that no handle refers to.
    Graph(#[expect(dead_code, reason = "it is there to be dropped")] Executable),
    /// A function that no handle refers to, with the kernels and the memory that it owns.
    Enqueue(#[expect(dead_code, reason = "it is there to be dropped")] Box<EnqueueFn>),
}

impl Work {
    /// Creates work from an executable graph.
    #[must_use]
    pub fn graph(executable: Arc<Executable>) -> Self {
        Self(Launched::Graph(executable, None))
    }

    /// Creates work from a function that enqueues kernels into the given stream. It must not block.
    pub fn enqueue(enqueue: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Launched::Function(Arc::new(Box::new(enqueue))))
    }

    /// Returns this work with `executable`, the graph that was captured from it, which is launched
    /// instead of calling the function.
    pub(super) fn captured(&self, executable: Arc<Executable>) -> Self {
        let function = match &self.0 {
            Launched::Function(function) => Some(Arc::clone(function)),
            Launched::Graph(_, function) => function.clone(),
        };
        Self(Launched::Graph(executable, function))
    }

    /// Whether the work is launched as a graph.
    #[must_use]
    pub fn is_graph(&self) -> bool {
        matches!(self.0, Launched::Graph(..))
    }

    /// Drops this handle and returns the objects of which it was the last reference.
    pub(super) fn deferred_drops(self) -> impl Iterator<Item = DeferredDrop> {
        let (graph, function) = match self.0 {
            Launched::Graph(graph, function) => (Some(graph), function),
            Launched::Function(function) => (None, Some(function)),
        };
        let graph = graph.and_then(Arc::into_inner).map(DeferredDrop::Graph);
        let function = function.and_then(Arc::into_inner).map(DeferredDrop::Enqueue);
        graph.into_iter().chain(function)
    }

    /// Enqueues the work into a stream without waiting for it.
    pub(super) fn launch(&self, stream: &Stream) -> Result<()> {
        match &self.0 {
            Launched::Graph(graph, _) => graph.launch(stream),
            Launched::Function(enqueue) => enqueue(stream),
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
        f.write_str("a deferred drop")
    }
}

/// Work of a tasklet with its measured duration.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Work to launch.
    pub work: Work,
    /// Measured duration alone on the device; for merged graphs, the sum of their durations.
    pub estimate: Duration,
}

impl From<&MergedGraph> for Prepared {
    fn from(merged: &MergedGraph) -> Self {
        Self { work: Work::graph(Arc::clone(&merged.executable)), estimate: merged.estimate }
    }
}
