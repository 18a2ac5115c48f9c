//! Cutting of a captured graph into pieces of bounded duration (the *budget*). A node is a kernel,
//! copy or child graph. *CUDA errors* are failed calls of the CUDA driver.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::graph::Node;
use crate::intervals;
use crate::{CapturedGraph, Error, Executable, Result, Stopwatch, Stream, TimingRuns};

/// Graph that has been cut. Run in order on one stream, the pieces are equivalent to the graph.
#[derive(Debug)]
pub struct CutGraph {
    /// Pieces in order.
    pub pieces: Vec<GraphPiece>,
    /// Nodes that alone exceed the budget. Each is a separate piece.
    pub oversized: Vec<OversizedNode>,
}

/// Part of a graph that is launched at once.
#[derive(Debug, Clone)]
pub struct GraphPiece {
    /// Nodes of the piece, as positions in the topological order of the graph.
    pub nodes: Range<usize>,
    /// Executable graph of the piece.
    pub executable: Arc<Executable>,
    /// Measured duration of the piece on the device: the median of its executions.
    pub took: Duration,
}

/// Node that exceeds the budget and cannot be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OversizedNode {
    /// Position of the node in the topological order of the graph.
    pub node: usize,
    /// Measured duration of the node on the device: the median of its executions.
    pub took: Duration,
}

impl CapturedGraph {
    /// Cuts the graph into pieces of at most `budget`, which are intervals of a topological order.
    /// The order is that in which CUDA lists the nodes, as far as the edges permit.
    ///
    /// The nodes and then the pieces are timed by executing each of them `runs` + 1 times on
    /// `stream`, which should be idle; see [`TimingRuns`] for the memory that they write. A node is
    /// timed as a graph of one node, including some microseconds of launch overhead, so pieces of
    /// many short nodes are shorter than the budget, not longer. Priorities of nodes are kept.
    ///
    /// O(n log n) CUDA calls for n nodes, plus the executions.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] if the graph allocates or frees memory; CUDA errors, for example for
    /// programmatic edges, which let a kernel start before its predecessor has ended.
    pub fn cut(&self, stream: &Stream, budget: Duration, runs: TimingRuns<'_>) -> Result<CutGraph> {
        runs.with_restored_buffers(stream, || self.cut_by_times(stream, budget, runs.runs()))
    }

    fn cut_by_times(&self, stream: &Stream, budget: Duration, runs: NonZeroUsize) -> Result<CutGraph> {
        let nodes = self.in_order()?;
        let stopwatch = Stopwatch::new(stream)?;
        let mut times = Vec::with_capacity(nodes.len());
        let single: Vec<_> = (0..nodes.len()).map(|node| node..node + 1).collect();
        self.divide(&nodes, &single, &mut |part| {
            let executable = part.instantiate()?;
            times.push(stopwatch.median(runs, |stream| executable.launch(stream))?);
            Ok(())
        })?;

        let ranges = intervals::pieces(&times, budget);
        let mut pieces = Vec::with_capacity(ranges.len());
        self.divide(&nodes, &ranges, &mut |part| {
            let executable = Arc::new(part.instantiate()?);
            let took = stopwatch.median(runs, |stream| executable.launch(stream))?;
            pieces.push(GraphPiece { nodes: ranges[pieces.len()].clone(), executable, took });
            Ok(())
        })?;
        let oversized = times.iter().enumerate().filter(|&(_, &took)| took > budget);
        let oversized = oversized.map(|(node, &took)| OversizedNode { node, took }).collect();
        Ok(CutGraph { pieces, oversized })
    }

    /// Returns the nodes in a topological order.
    fn in_order(&self) -> Result<Vec<Node>> {
        self.refuse_memory_nodes()?;
        let nodes = self.nodes()?;
        let numbers: HashMap<_, _> =
            nodes.iter().enumerate().map(|(number, node)| (node.0, number)).collect();
        let edges = self.edges()?;
        let edges: Vec<_> = edges
            .iter()
            .filter_map(|(from, to)| Some((*numbers.get(&from.0)?, *numbers.get(&to.0)?)))
            .collect();
        let order = intervals::order(nodes.len(), &edges).ok_or(Error::Cycle)?;
        Ok(order.into_iter().map(|number| nodes[number]).collect())
    }

    /// Checks that the graph neither allocates nor frees memory.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] if it does; CUDA errors.
    pub(crate) fn refuse_memory_nodes(&self) -> Result<()> {
        match self.memory_nodes()? {
            0 => Ok(()),
            nodes => Err(Error::MemoryNodes { nodes }),
        }
    }

    /// Calls `visit` for each of `ranges`, which partition the nodes, with the graph of that range.
    /// Repeated halving copies O(n log n) nodes; a copy of the whole graph for each range would
    /// copy O(n^2).
    fn divide(
        &self,
        nodes: &[Node],
        ranges: &[Range<usize>],
        visit: &mut impl FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        match ranges {
            [] => Ok(()),
            [_] => visit(self),
            _ => {
                let (left, right) = ranges.split_at(ranges.len() / 2);
                for half in [left, right] {
                    let (start, end) = (half[0].start, half[half.len() - 1].end);
                    let (part, copies) = self.part(nodes, &(start..end))?;
                    let shifted: Vec<_> =
                        half.iter().map(|range| range.start - start..range.end - start).collect();
                    part.divide(&copies, &shifted, visit)?;
                }
                Ok(())
            }
        }
    }
}
