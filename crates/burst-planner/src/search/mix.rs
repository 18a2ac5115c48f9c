//! Which changes of an arrangement are drawn, and how often.

use rand_chacha::ChaCha8Rng;

use super::random::below;

/// A kind of change.
#[derive(Clone, Copy)]
pub(super) enum Kind {
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
    Adopt,
    /// Two nodes, each on the group of the other.
    Swap,
    /// Many nodes on ranks as far from theirs.
    Turn,
    /// Another order.
    Reorder,
    /// Some nodes on the same ranks in reverse order.
    Reverse,
    /// A node on any ranks.
    SomeRanks,
}

/// How often each kind of change is drawn, relatively.
#[derive(Clone, Copy)]
pub(super) struct Mix(&'static [(usize, Kind)]);

/// Of use with many tries: lists of ranks are reversed, too.
pub(super) const REVERSING: Mix = Mix(&[
    (20, Kind::Node),
    (10, Kind::Window),
    (15, Kind::Run),
    (18, Kind::Boundary),
    (9, Kind::Branch),
    (8, Kind::Spread),
    (6, Kind::Exchange),
    (12, Kind::Adopt),
    (3, Kind::Swap),
    (8, Kind::Turn),
    (14, Kind::Reorder),
    (4, Kind::Reverse),
]);

/// Of use with few tries: all of these but the last.
pub(super) const USUAL: Mix = match REVERSING.0.split_last() {
    Some((_, others)) => Mix(others),
    None => REVERSING,
};

/// Of use where what is changed may get slower for a while: small changes, to any ranks.
pub(super) const SMALL: Mix = Mix(&[
    (20, Kind::Node),
    (15, Kind::Run),
    (9, Kind::Branch),
    (8, Kind::Spread),
    (6, Kind::Exchange),
    (12, Kind::Adopt),
    (30, Kind::Reorder),
    (4, Kind::Reverse),
    (20, Kind::SomeRanks),
]);

impl Mix {
    pub(super) fn draw(self, random: &mut ChaCha8Rng) -> Kind {
        let mut left = below(random, self.0.iter().map(|(often, _)| often).sum());
        for &(often, kind) in self.0 {
            match left.checked_sub(often) {
                Some(less) => left = less,
                None => return kind,
            }
        }
        Kind::Node
    }
}
