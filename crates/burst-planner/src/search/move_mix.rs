//! Kinds of moves, which are random changes of an arrangement, and their frequencies. A *group* is
//! a list of ranks.

use rand_chacha::ChaCha8Rng;

use super::random::below;

/// A kind of move.
#[derive(Clone, Copy)]
pub(super) enum MoveKind {
    /// Moves a node to another group.
    Node,
    /// Moves consecutive nodes of the order to another group.
    Window,
    /// Moves nodes that are on the same group to another group, often consecutive ones of the
    /// order.
    Run,
    /// Moves nodes to the group of their neighbours in the order.
    Boundary,
    /// Moves a branch between a fork and a join to another group.
    Branch,
    /// Places all branches between a fork and a join side by side, on different ranks.
    Spread,
    /// Replaces a rank of a node's group by another rank.
    Exchange,
    /// Moves nodes to the group that another node is on.
    CopyRanks,
    /// Exchanges the groups of two nodes.
    Swap,
    /// Adds a distance to each rank of nodes, modulo the number of ranks.
    RotateRanks,
    /// Moves a node or a branch to another place in the order.
    Reorder,
    /// Reverses the lists of ranks of nodes.
    Reverse,
}

/// Kinds of moves with their relative frequencies.
#[derive(Clone, Copy)]
pub(super) struct MoveMix(&'static [(usize, MoveKind)]);

/// Moves for searches with many steps, including reversed lists of ranks.
pub(super) const REVERSING: MoveMix = MoveMix(&[
    (20, MoveKind::Node),
    (10, MoveKind::Window),
    (15, MoveKind::Run),
    (18, MoveKind::Boundary),
    (9, MoveKind::Branch),
    (8, MoveKind::Spread),
    (6, MoveKind::Exchange),
    (12, MoveKind::CopyRanks),
    (3, MoveKind::Swap),
    (8, MoveKind::RotateRanks),
    (14, MoveKind::Reorder),
    (4, MoveKind::Reverse),
]);

/// Moves for searches with few steps: those of [`REVERSING`] without reversed lists.
pub(super) const USUAL: MoveMix = match REVERSING.0.split_last() {
    Some((_, others)) => MoveMix(others),
    None => REVERSING,
};

impl MoveMix {
    /// Draws a kind of move with the frequencies of this mix.
    pub(super) fn draw(self, random: &mut ChaCha8Rng) -> MoveKind {
        let mut left = below(random, self.0.iter().map(|(often, _)| often).sum());
        for &(often, kind) in self.0 {
            match left.checked_sub(often) {
                Some(less) => left = less,
                None => return kind,
            }
        }
        MoveKind::Node
    }
}
