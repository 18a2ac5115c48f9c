//! Merging of short graphs, to reduce the number of launches. Consecutive graphs that are merged
//! form a *group*. *CUDA errors* are failed calls of the CUDA driver.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::intervals;
use crate::memory::Kept;
use crate::{CapturedGraph, Error, Executable, Result};

/// Limits for merging consecutive graphs. The defaults are those of DeepPool's published runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeLimits {
    /// Duration of a group above which no graph is added to it. Default 500 us.
    pub soft_limit: Duration,
    /// Maximum duration of a group of several graphs. Default 1 ms.
    pub hard_limit: Duration,
    /// Maximum number of graphs in a group. Default 10.
    pub max_graphs: NonZeroUsize,
}

impl Default for MergeLimits {
    fn default() -> Self {
        let max_graphs = NonZeroUsize::MIN.saturating_add(9);
        Self { soft_limit: Duration::from_micros(500), hard_limit: Duration::from_millis(1), max_graphs }
    }
}

/// Group of consecutive graphs that are launched as one.
#[derive(Debug, Clone)]
pub struct MergedGraph {
    /// Indices of the graphs, from 0, in the sequence that was merged.
    pub graphs: Range<usize>,
    /// Executable graph of the group.
    pub executable: Arc<Executable>,
    /// Sum of the durations that were given for the graphs.
    pub estimate: Duration,
}

impl MergedGraph {
    /// Merges consecutive graphs, each given with its duration, into fewer graphs that are
    /// equivalent, within `limits`. Each graph becomes a child graph node. Priorities of nodes are
    /// kept.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] if a merged graph allocates or frees memory; CUDA errors.
    pub fn merge_consecutive(graphs: &[(CapturedGraph, Duration)], limits: MergeLimits) -> Result<Vec<Self>> {
        let times: Vec<_> = graphs.iter().map(|(_, time)| *time).collect();
        let ranges = intervals::groups(&times, limits.soft_limit, limits.hard_limit, limits.max_graphs);
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
        let graphs: Vec<&Self> = graphs.into_iter().collect();
        let Some(first) = graphs.first() else {
            return Err(Error::Invalid("there are no graphs to chain".to_owned()));
        };
        let kept = graphs.iter().map(|graph| Arc::clone(graph.kept()) as Kept);
        let chain = Self::empty(first.context(), Arc::new(kept.collect()))?;
        let mut last = None;
        for graph in graphs {
            graph.refuse_memory_nodes()?;
            last = Some(chain.append(graph, last)?);
        }
        Ok(chain)
    }
}
