//! The time in which the first node's ranks do nothing but reduce its gradients: the least that it can be.
//!
//! The last all-reduce of the first nodes begins when the last of their ranks has done its backward steps. A rank that has updates of
//! other nodes to do then computes meanwhile; it is *spared*. One with the smaller share ends its backward steps sooner, and is spared
//! only if its updates take longer than that.

/// What a list of ranks has of the first node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FirstNodeRanks {
    /// One that has the larger share there, or more.
    #[default]
    Larger,
    /// Only such as have the smaller share there.
    Smaller,
    /// None.
    Nothing,
    /// Any of these, as far as numbers of ranks allow it.
    Unknown,
}

/// What is known of it while nodes are gone through. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exposure {
    /// How long the last all-reduce takes, beside updates of the first nodes themselves; nothing where that is not known.
    each_us: f64,
    /// How many ranks the first nodes are on, how many of them have the smaller share, and by how much sooner these are done.
    ranks: f64,
    smaller: f64,
    sooner_us: f64,
    /// How many with the smaller share can have updates of other nodes, and how long all these updates take, none of which counts as more
    /// than [`sooner_us`](Self::sooner_us): each of these ranks has others.
    with_updates: f64,
    updates_us: f64,
    /// By how much ranks with the larger share are spared, by lists before the family.
    spared_us: f64,
    family: Family,
}

/// The latest lists, each chosen from the one before.
#[derive(Debug, Clone, Copy, Default)]
struct Family {
    /// How many ranks with the larger share can be in the first of them.
    max_larger: f64,
    /// How many of its ranks have updates, and how many of these can have the larger share.
    ranks: f64,
    larger: f64,
    /// How long the updates of the latter take.
    updates_us: f64,
}

impl Family {
    fn with_max_larger(max_larger: f64) -> Self {
        Self { max_larger, ..Self::default() }
    }
}

impl Exposure {
    /// Nothing else is known yet.
    pub(super) fn new(each_us: f64, ranks: f64, smaller: f64, sooner_us: f64) -> Self {
        let family = Family::with_max_larger(ranks - smaller);
        Self { each_us, ranks, smaller, sooner_us, family, ..Self::default() }
    }

    /// A list comes that was not chosen from the one before.
    pub(super) fn begin_family(&mut self) {
        self.spared_us += self.spared_by_family_us();
        self.family = Family::with_max_larger(self.ranks - self.smaller);
    }

    /// The first list of the family has at most so many ranks with the larger share.
    pub(super) fn limit_larger(&mut self, most: f64) {
        self.family.max_larger = self.family.max_larger.min(most);
    }

    /// Adds a node on a list of so many ranks.
    pub(super) fn add(&mut self, gpus: f64, update_us: f64, holds: FirstNodeRanks) {
        if self.each_us <= 0.0 || holds == FirstNodeRanks::Nothing {
            return;
        }
        let before = self.family;
        let family = &mut self.family;
        if family.ranks <= 0.0 && update_us > 0.0 {
            (family.ranks, family.larger) = (gpus, gpus.min(family.max_larger));
        }
        if holds == FirstNodeRanks::Smaller {
            family.larger = family.larger.min((family.ranks - gpus).max(0.0));
        }
        family.updates_us += update_us * gpus.min(family.larger);
        let smaller = |family: &Family| (family.ranks - family.larger).min(self.smaller);
        self.with_updates += smaller(family) - smaller(&before);
        let can_be_smaller = if holds == FirstNodeRanks::Larger { gpus - 1.0 } else { gpus };
        self.updates_us += update_us.min(self.sooner_us) * can_be_smaller.min(self.smaller);
    }

    /// The least that it is, of all ranks together, if no other node follows.
    pub(super) fn us(&self) -> f64 {
        if self.each_us <= 0.0 {
            return 0.0;
        }
        let done_sooner =
            if self.sooner_us > 0.0 { (self.updates_us / self.sooner_us).floor() } else { self.smaller };
        let spared = self.with_updates.min(self.smaller).min(done_sooner);
        (self.larger_us() - self.spared_by_family_us()).max(0.0) + self.each_us * (self.smaller - spared)
    }

    /// The most that it is, whatever follows: later lists of the family may leave out ranks that have the larger share.
    pub(super) fn max_us(&self) -> f64 {
        self.larger_us().max(0.0) + self.each_us * self.smaller
    }

    /// That of ranks with the larger share, as far as lists before the family do not spare them.
    fn larger_us(&self) -> f64 {
        self.each_us * (self.ranks - self.smaller) - self.spared_us
    }

    fn spared_by_family_us(&self) -> f64 {
        self.family.updates_us.min(self.each_us * self.family.larger)
    }

    /// Whether it is no less than the other one, whatever follows; never where the first nodes are not on the same ranks.
    pub(super) fn is_no_less(&self, other: &Self) -> bool {
        let first = |of: &Self| {
            let Family { max_larger, ranks, larger, .. } = of.family;
            [of.each_us, of.ranks, of.smaller, of.sooner_us, max_larger, ranks, larger]
        };
        std::iter::zip(first(self), first(other)).all(|(one, other)| one.total_cmp(&other).is_eq())
            && self.with_updates <= other.with_updates
            && self.updates_us <= other.updates_us
            && self.spared_us <= other.spared_us
            && self.family.updates_us <= other.family.updates_us
    }

    /// One that is no more than either, whatever follows.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.is_no_less(other) {
            *self = *other;
        } else if !other.is_no_less(self) {
            let (each_us, us) = (self.each_us.max(other.each_us), self.us().min(other.us()));
            *self = if us > 0.0 { Self::new(each_us, us / each_us, 0.0, 0.0) } else { Self::default() };
        }
    }
}
