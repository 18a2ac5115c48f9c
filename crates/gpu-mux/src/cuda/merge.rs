//! Merging of short graphs, to reduce the number of launches.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::intervals;
use super::{CapturedGraph, Error, Executable, Result};

/// Limits for merging consecutive graphs. The defaults are those of DeepPool's published runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeLimits {
    /// No graph is added to a group that takes longer than this. Default 500 us.
    pub enough: Duration,
    /// No graph is added if the group would take longer than this. Default 1 ms.
    pub at_most: Duration,
    /// Maximum number of graphs in a group. Default 10.
    pub count: NonZeroUsize,
}

impl Default for MergeLimits {
    fn default() -> Self {
        let count = NonZeroUsize::MIN.saturating_add(9);
        Self { enough: Duration::from_micros(500), at_most: Duration::from_millis(1), count }
    }
}

/// Consecutive graphs that are launched as one.
#[derive(Debug, Clone)]
pub struct Merged {
    /// The indices of the graphs.
    pub graphs: Range<usize>,
    /// The executable graph.
    pub executable: Arc<Executable>,
    /// The sum of the given durations.
    pub estimate: Duration,
}

impl Merged {
    /// Merges consecutive graphs, each given with its duration, into fewer graphs that are
    /// equivalent. Each graph becomes a child graph node. Priorities of nodes are kept.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] if a merged graph allocates or frees memory; CUDA errors.
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
    /// Creates a graph that runs copies of these graphs one after another. Priorities of nodes are
    /// kept.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] if a graph allocates or frees memory; [`Error::Invalid`] for no
    /// graphs; CUDA errors.
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
