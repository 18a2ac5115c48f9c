//! Merging short graphs, so that the host has less to launch.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::intervals;
use super::{CapturedGraph, Error, Executable, Result};

/// How far neighbours are merged. The default is that of DeepPool's published runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeLimits {
    /// Nothing more is added to what takes longer than this. Default 500 us.
    pub enough: Duration,
    /// Nothing is added by which the whole would take longer than this. Default 1 ms.
    pub at_most: Duration,
    /// How many graphs are merged at most. Default 10.
    pub count: NonZeroUsize,
}

impl Default for MergeLimits {
    fn default() -> Self {
        let count = NonZeroUsize::MIN.saturating_add(9);
        Self { enough: Duration::from_micros(500), at_most: Duration::from_millis(1), count }
    }
}

/// Neighbours that are launched at once.
#[derive(Debug, Clone)]
pub struct Merged {
    /// Which of the graphs they were.
    pub graphs: Range<usize>,
    /// What is launched.
    pub executable: Arc<Executable>,
    /// How long the graphs take together, by the times that were given.
    pub estimate: Duration,
}

impl Merged {
    /// Merges graphs that run one after another, each with the time that it takes, into fewer that do the same: every
    /// graph becomes a node of the one that it is part of. Priorities of nodes are kept.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] if a graph that is merged allocates or frees memory; what CUDA reports.
    pub fn from_neighbours(graphs: &[(CapturedGraph, Duration)], limits: MergeLimits) -> Result<Vec<Self>> {
        let times: Vec<_> = graphs.iter().map(|(_, time)| *time).collect();
        let ranges = intervals::groups(&times, limits.enough, limits.at_most, limits.count);
        let merge = |range: Range<usize>| {
            let executable = match &graphs[range.clone()] {
                [(alone, _)] => alone.instantiate()?,
                several => CapturedGraph::chain(several.iter().map(|(graph, _)| graph))?.instantiate()?,
            };
            let estimate = times[range.clone()].iter().sum();
            Ok(Self { graphs: range, executable: Arc::new(executable), estimate })
        };
        ranges.into_iter().map(merge).collect()
    }
}

impl CapturedGraph {
    /// A graph whose nodes are copies of these graphs, which run one after another. Priorities of nodes are kept.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] if one of them allocates or frees memory; [`Error::Invalid`] for no graphs; what CUDA
    /// says.
    pub fn chain<'a>(graphs: impl IntoIterator<Item = &'a Self>) -> Result<Self> {
        let (mut whole, mut last) = (None, None);
        for graph in graphs {
            graph.refuse_memory_nodes()?;
            let chain = match whole.take() {
                Some(chain) => chain,
                None => Self::empty(graph.context())?,
            };
            last = Some(chain.append(graph, last)?);
            whole = Some(chain);
        }
        whole.ok_or_else(|| Error::Invalid("there are no graphs to chain".to_owned()))
    }
}
