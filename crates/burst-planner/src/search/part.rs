//! The parts of the search, which an ablation leaves out one at a time.

use super::SearchOptions;

/// A part of the search. [`SearchOptions::without`] leaves parts out, to measure what each of them
/// contributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Places neighbouring nodes with little work as one node, a block, at first.
    Blocks,
    /// Dynamic programming along the order of the nodes, as if steps ran one after another, for
    /// several prices of GPU time.
    Sequences,
    /// The same if the iteration waits for the all-reduces of the last nodes in the backward pass.
    CommunicationBound,
    /// Both with the branches between a fork and a join side by side.
    BranchSequences,
    /// Arrangements with fewer and fewer GPUs along the order, with the best places to change.
    Staircases,
    /// The branches of the fastest arrangement side by side.
    SpreadBranches,
    /// The last nodes on few GPUs, at the start or the end of the ranks.
    NarrowEnds,
    /// Each node on one GPU: [placements](crate::placement).
    Placements,
    /// All users of the same parameters on one GPU.
    ParameterUsers,
    /// With a memory limit: stretches of the order with equal memory, on different ranks.
    MemoryStretches,
    /// Threshold accepting within each of several budgets of GPU time.
    ThresholdAccepting,
    /// Random moves of arrangements of the archive, and combinations of two of them.
    ArchiveMoves,
    /// Iterated local search, if there are few blocks.
    IteratedSearch,
    /// For a chain: dynamic programming over lists of ranks, by a model of the time.
    ChainProgramming,
    /// For a chain: local search of Pareto-optimal arrangements, by the same model.
    ChainRefinement,
    /// Systematic moves of the fastest arrangement within each of several budgets.
    SystematicMoves,
    /// Systematic and random moves that give nodes splits, if there are any.
    Splits,
}

impl Part {
    /// All parts, in the order in which the search uses them.
    pub const ALL: [Self; 17] = [
        Self::Blocks,
        Self::Sequences,
        Self::CommunicationBound,
        Self::BranchSequences,
        Self::Staircases,
        Self::SpreadBranches,
        Self::NarrowEnds,
        Self::Placements,
        Self::ParameterUsers,
        Self::MemoryStretches,
        Self::ThresholdAccepting,
        Self::ArchiveMoves,
        Self::IteratedSearch,
        Self::ChainProgramming,
        Self::ChainRefinement,
        Self::SystematicMoves,
        Self::Splits,
    ];
}

impl SearchOptions {
    /// Returns whether the search uses a part.
    pub(super) fn uses(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }
}
