//! Cutting a captured graph into pieces that are short enough.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::intervals;
use super::safe::graph::Node;
use super::{CapturedGraph, Error, Executable, Result, Stopwatch, Stream, TimingRuns};

/// A graph, cut. Run in order on one stream, the pieces do what the graph does.
#[derive(Debug)]
pub struct Cut {
    /// The pieces, in order.
    pub pieces: Vec<GraphPiece>,
    /// Nodes that take longer than the budget alone: each is a piece of its own, and longer than was asked for.
    pub over_long: Vec<OverLong>,
}

/// A part of a graph that is launched at once.
#[derive(Debug, Clone)]
pub struct GraphPiece {
    /// The nodes that it has, by their places in the order that the graph was cut in.
    pub nodes: Range<usize>,
    /// What is launched.
    pub executable: Arc<Executable>,
    /// How long it takes, measured whole.
    pub took: Duration,
}

/// A node that cannot be cut and takes longer than the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLong {
    /// Its place in the order that the graph was cut in.
    pub node: usize,
    /// How long it takes.
    pub took: Duration,
}

impl CapturedGraph {
    /// Cuts the graph, before a piece would take longer than `budget`, into intervals of a topological order: the
    /// order in which CUDA lists its nodes, as far as that keeps its edges.
    ///
    /// Its nodes and then its pieces are timed by executing each of them once more than `runs` says, on `stream`,
    /// which should have nothing else to do: [`TimingRuns`] says what happens to the memory that they write. A node is
    /// timed as a graph of one node, with the launch that costs some microseconds, so that pieces of many short nodes
    /// come out shorter than the budget, not longer. Priorities of nodes are kept.
    ///
    /// O(n log n) calls of CUDA for n nodes, besides the executions.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] if the graph allocates or frees memory; what CUDA reports, as for edges that let a
    /// kernel start before the one that it depends on has ended.
    pub fn cut(&self, stream: &Stream, budget: Duration, runs: TimingRuns<'_>) -> Result<Cut> {
        runs.around(stream, || self.cut_by_times(stream, budget, runs.runs()))
    }

    fn cut_by_times(&self, stream: &Stream, budget: Duration, runs: NonZeroUsize) -> Result<Cut> {
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
        let over_long = times.iter().enumerate().filter(|&(_, &took)| took > budget);
        let over_long = over_long.map(|(node, &took)| OverLong { node, took }).collect();
        Ok(Cut { pieces, over_long })
    }

    /// Its nodes in a topological order.
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

    pub(super) fn refuse_memory_nodes(&self) -> Result<()> {
        match self.memory_nodes()? {
            0 => Ok(()),
            nodes => Err(Error::MemoryNodes { nodes }),
        }
    }

    /// Calls `visit` with the parts that `ranges`, which cover the nodes in order, are. Halving again and again costs O(n
    /// log n) copies of nodes; a copy of the whole for each part would cost O(n^2).
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
