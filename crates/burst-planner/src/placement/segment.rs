//! Segments between cuts. A *cut* is an operation that all others precede or follow; no edge leads
//! from an operation before it to one after it. A *segment* consists of the operations after one
//! cut, up to and including the next one. The first segment begins with the first operation of the
//! problem. The last one ends with the last operation, which need not be a cut.

use super::DevicePlacement;
use super::branch::BranchAndBound;
use super::list::schedule;
use super::problem::{Neighbour, PlacementGraph, PlacementProblem};
use crate::{NodeId, Result, Stop};

/// Returns the cuts in topological order. A cut is an operation that all others precede or follow;
/// no edge leads from an operation before it to one after it. The makespan of the problem is the
/// sum of the makespans of the segments between cuts. O(operations + edges).
///
/// # Errors
/// Those of [`PlacementProblem::validate`].
pub fn cuts(problem: &PlacementProblem) -> Result<Vec<NodeId>> {
    let structure = problem.structure()?;
    Ok(cut_places(&structure).into_iter().map(|place| NodeId(structure.order[place])).collect())
}

/// Returns the indices of the [`cuts`] in the topological order of `structure`, ascending.
pub(super) fn cut_places(structure: &PlacementGraph) -> Vec<usize> {
    let count = structure.len();
    let mut place_of = vec![0; count];
    for (place, &operation) in structure.order.iter().enumerate() {
        place_of[operation] = place;
    }
    // The farthest end of edges from before, and the number of operations without consumers.
    let (mut farthest, mut dead_ends) = (0, 0);
    let mut from_before = Vec::with_capacity(count);
    for (place, &operation) in structure.order.iter().enumerate() {
        from_before.push(farthest <= place && dead_ends == 0);
        let consumers = &structure.consumers[operation];
        dead_ends += usize::from(consumers.is_empty());
        farthest = consumers.iter().map(|consumer| place_of[consumer.operation]).fold(farthest, usize::max);
    }
    // In the other direction: operations after it have a producer.
    let mut sources_after = 0;
    let mut cuts = Vec::new();
    for (place, &operation) in structure.order.iter().enumerate().rev() {
        if from_before[place] && sources_after == 0 {
            cuts.push(place);
        }
        sources_after += usize::from(structure.producers[operation].is_empty());
    }
    cuts.reverse();
    cuts
}

/// The operations after one cut, up to and including the next one. Indices in the segment begin
/// with an additional operation 0, which has duration 0 and is on device 0. It stands for the cut
/// before the segment; in the first segment, for the start of the problem.
pub(super) struct Segment {
    /// Graph of its operations, by index in the segment.
    structure: PlacementGraph,
    /// Indices in the whole problem of all operations except the additional one. Entry `i` belongs
    /// to index `i + 1` in the segment.
    pub(super) operations: Vec<usize>,
    /// Whether the segment ends in a cut, its last operation.
    pub(super) ends_in_cut: bool,
    /// The placement of its operations with the minimum makespan so far, by index in the segment.
    pub(super) solved: DevicePlacement,
    /// Maximum number of branches of the last search; 0 before the first one.
    max_branches: u64,
}

impl Segment {
    /// Returns all segments of a problem in order, placed on `devices` devices by list scheduling.
    pub(super) fn all(structure: &PlacementGraph, devices: usize) -> Vec<Self> {
        let mut segments = Vec::new();
        let mut begin = 0;
        let cuts = cut_places(structure);
        let ends = cuts.iter().map(|&place| (place + 1, true)).chain([(structure.len(), false)]);
        for (end, ends_in_cut) in
            ends.filter(|&(end, is_cut)| is_cut || end > cuts.last().map_or(0, |&last| last + 1))
        {
            segments.push(Self::new(structure, begin..end, ends_in_cut, devices));
            begin = end;
        }
        segments
    }

    fn new(
        whole: &PlacementGraph,
        places: std::ops::Range<usize>,
        ends_in_cut: bool,
        devices: usize,
    ) -> Self {
        let operations = whole.order[places.clone()].to_vec();
        let local =
            |operation: usize| operations.iter().position(|&one| one == operation).map_or(0, |at| at + 1);
        let count = operations.len() + 1;
        let mut times = vec![[0.0; 2]];
        let (mut producers, mut consumers) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for &operation in &operations {
            times.push(whole.times[operation]);
            let to = local(operation);
            let mut edges: Vec<Neighbour> = whole.producers[operation]
                .iter()
                .map(|producer| Neighbour { operation: local(producer.operation), ..*producer })
                .collect();
            if edges.is_empty() {
                edges.push(Neighbour { operation: 0, transfer_us: [0.0; 2] });
            }
            for edge in &edges {
                consumers[edge.operation].push(Neighbour { operation: to, transfer_us: edge.transfer_us });
            }
            producers[to] = edges;
        }
        let structure = PlacementGraph { times, producers, consumers, order: (0..count).collect() };
        let (placed, order) = schedule(&structure, devices);
        let makespan_us = structure.makespan_us(&placed, &order);
        let lower_bound_us = structure.simple_bound_us(devices).min(makespan_us);
        let solved = DevicePlacement { devices: placed, order, makespan_us, lower_bound_us };
        Self { structure, operations, ends_in_cut, solved, max_branches: 0 }
    }

    /// Returns the makespan of the best placement so far minus the lower bound, microseconds.
    pub(super) fn excess_us(&self) -> f64 {
        self.solved.makespan_us - self.solved.lower_bound_us
    }

    /// Searches for a placement with a shorter makespan by branch and bound. The search expands at
    /// most `n` branches: `n` is `first` in the first call and four times the previous `n` in later
    /// calls, but at most `maximum`. Returns `n`. Fails with
    /// [`Error::Stopped`](crate::Error::Stopped) once `stop` is set.
    pub(super) fn refine(&mut self, devices: usize, first: u64, maximum: u64, stop: &Stop) -> Result<u64> {
        self.max_branches = (4 * self.max_branches).max(first).min(maximum);
        let before = self.solved.clone();
        let branch =
            BranchAndBound::new(&self.structure, devices, None, before.clone(), self.max_branches, stop);
        self.solved = branch.solve()?;
        self.solved.lower_bound_us = self.solved.lower_bound_us.max(before.lower_bound_us);
        Ok(self.max_branches)
    }
}
