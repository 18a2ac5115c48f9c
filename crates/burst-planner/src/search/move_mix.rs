//! Which changes of an arrangement are drawn, and how often.

use rand_chacha::ChaCha8Rng;

use super::random::below;

/// A kind of change.
#[derive(Clone, Copy)]
pub(super) enum MoveKind {
    /// A node on another group.
    Node,
    /// Nodes that follow each other in the order on another group.
    Window,
    /// Nodes on the same group on another one.
    Run,
    /// Some nodes on the group of their neighbours in the order.
    Boundary,
    /// A branch between a fork and a join on another group.
    Branch,
    /// All branches between a fork and a join side by side.
    Spread,
    /// A node on one rank instead of another one.
    Exchange,
    /// Some nodes on the group of another one.
    CopyRanks,
    /// Two nodes, each on the group of the other.
    Swap,
    /// Many nodes on ranks as far from theirs.
    RotateRanks,
    /// Another order.
    Reorder,
    /// Some nodes on the same ranks in reverse order.
    Reverse,
    /// A node on any ranks.
    RandomRanks,
}

/// How often each kind of change is drawn, relatively.
#[derive(Clone, Copy)]
pub(super) struct MoveMix(&'static [(usize, MoveKind)]);

/// Of use with many tries: lists of ranks are reversed, too.
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

/// Of use with few tries: all of these but the last.
pub(super) const USUAL: MoveMix = match REVERSING.0.split_last() {
    Some((_, others)) => MoveMix(others),
    None => REVERSING,
};

/// Of use where what is changed may get slower for a while: small changes, to any ranks.
pub(super) const SMALL: MoveMix = MoveMix(&[
    (20, MoveKind::Node),
    (15, MoveKind::Run),
    (9, MoveKind::Branch),
    (8, MoveKind::Spread),
    (6, MoveKind::Exchange),
    (12, MoveKind::CopyRanks),
    (30, MoveKind::Reorder),
    (4, MoveKind::Reverse),
    (20, MoveKind::RandomRanks),
]);

impl MoveMix {
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
