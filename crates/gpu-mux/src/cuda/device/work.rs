use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cuda::{Executable, GraphPiece, Merged, Result, Stream};

/// Puts work into a stream.
pub type EnqueueFn = dyn Fn(&Stream) -> Result<()> + Send + Sync;

/// What is launched for a tasklet. A clone is the same work, to be launched again.
#[derive(Clone)]
pub enum Work {
    /// A graph, in one call.
    Graph(Arc<Executable>),
    /// Whatever this puts into the stream that it is given: kernels, one by one. It must not wait.
    Enqueue(Arc<EnqueueFn>),
}

impl Work {
    /// Work that is put into the stream by `enqueue` each time.
    pub fn enqueue(enqueue: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static) -> Self {
        Self::Enqueue(Arc::new(enqueue))
    }

    pub(super) fn launch(&self, stream: &Stream) -> Result<()> {
        match self {
            Self::Graph(executable) => executable.launch(stream),
            Self::Enqueue(enqueue) => enqueue(stream),
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Graph(_) => "a graph",
            Self::Enqueue(_) => "kernels",
        })
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

impl From<&GraphPiece> for Prepared {
    fn from(piece: &GraphPiece) -> Self {
        Self { work: Work::Graph(Arc::clone(&piece.executable)), estimate: piece.took }
    }
}

impl From<&Merged> for Prepared {
    fn from(merged: &Merged) -> Self {
        Self { work: Work::Graph(Arc::clone(&merged.executable)), estimate: merged.estimate }
    }
}
