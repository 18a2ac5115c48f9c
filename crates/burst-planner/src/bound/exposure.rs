//! Minimum of the GPU time in which the first node's ranks do nothing but reduce its gradients.
//!
//! The *first nodes* are the consecutive nodes, from the first one with a gradient on, that run on
//! the same list of ranks. Their last all-reduce starts when the last of their ranks has completed
//! its backward steps. A rank that has updates of other nodes computes meanwhile: it is *spared*. A
//! rank with the smaller shard (one sample less, if the batch does not divide evenly) completes its
//! backward steps earlier, and is spared only if its updates take longer than that. A *family* is a
//! sequence of consecutive lists of ranks, each a subset of the one before. Numbers of ranks are
//! `f64`.

/// Kind of the first node's ranks that a list of ranks contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FirstNodeRanks {
    /// At least one with the larger shard of the first node.
    #[default]
    Larger,
    /// Ranks of the first node, all with the smaller shard.
    Smaller,
    /// No rank of the first node.
    Nothing,
    /// Any of these that the numbers of ranks allow.
    Unknown,
}

/// Exposed communication of the nodes so far: time in which ranks of the first nodes only
/// communicate. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exposure {
    /// Duration of the last all-reduce beyond updates of the first nodes; 0 if unknown.
    each_us: f64,
    /// Number of ranks of the first nodes.
    ranks: f64,
    /// Number of them with the smaller shard.
    smaller: f64,
    /// Time by which these complete their backward steps earlier.
    earlier_us: f64,
    /// Number of ranks with the smaller shard that can have updates of other nodes. Each rank has
    /// different updates.
    with_updates: f64,
    /// Sum of these updates, each at most [`earlier_us`](Self::earlier_us).
    updates_us: f64,
    /// Time by which ranks with the larger shard are spared by lists before the family.
    spared_us: f64,
    /// The current family.
    family: Family,
}

/// The latest lists, each a subset of the one before.
#[derive(Debug, Clone, Copy, Default)]
struct Family {
    /// Maximum number of ranks with the larger shard in the first of them.
    max_larger: f64,
    /// Number of its ranks with updates.
    ranks: f64,
    /// Number of these that can have the larger shard.
    larger: f64,
    /// Sum of the updates of the latter.
    updates_us: f64,
}

impl Family {
    fn with_max_larger(max_larger: f64) -> Self {
        Self { max_larger, ..Self::default() }
    }
}

impl Exposure {
    /// Creates the exposure of the first nodes alone. `each_us` is the time in which each of their
    /// `ranks` ranks only communicates, 0 if unknown. `smaller` of the ranks have the smaller shard
    /// and complete their backward steps `earlier_us` earlier.
    pub(super) fn new(each_us: f64, ranks: f64, smaller: f64, earlier_us: f64) -> Self {
        let family = Family::with_max_larger(ranks - smaller);
        Self { each_us, ranks, smaller, earlier_us, family, ..Self::default() }
    }

    /// Starts a new family: the list of the next node is not a subset of the one before.
    pub(super) fn begin_family(&mut self) {
        self.spared_us += self.spared_by_family_us();
        self.family = Family::with_max_larger(self.ranks - self.smaller);
    }

    /// Limits the number of ranks with the larger shard of the first nodes in the first list of the
    /// family to `maximum`.
    pub(super) fn limit_larger(&mut self, maximum: f64) {
        self.family.max_larger = self.family.max_larger.min(maximum);
    }

    /// Adds a node that runs on a list of `gpus` ranks and whose update takes `update_us` on each.
    /// `first_node_ranks` is the kind of the first node's ranks in that list.
    pub(super) fn add(&mut self, gpus: f64, update_us: f64, first_node_ranks: FirstNodeRanks) {
        if self.each_us <= 0.0 || first_node_ranks == FirstNodeRanks::Nothing {
            return;
        }
        let before = self.family;
        let family = &mut self.family;
        if family.ranks <= 0.0 && update_us > 0.0 {
            (family.ranks, family.larger) = (gpus, gpus.min(family.max_larger));
        }
        if first_node_ranks == FirstNodeRanks::Smaller {
            family.larger = family.larger.min((family.ranks - gpus).max(0.0));
        }
        family.updates_us += update_us * gpus.min(family.larger);
        let smaller = |family: &Family| (family.ranks - family.larger).min(self.smaller);
        self.with_updates += smaller(family) - smaller(&before);
        if first_node_ranks == FirstNodeRanks::Unknown && update_us > 0.0 {
            // They can be ranks with the smaller shard as well.
            self.with_updates += gpus.min(self.smaller);
        }
        let can_be_smaller = if first_node_ranks == FirstNodeRanks::Larger { gpus - 1.0 } else { gpus };
        self.updates_us += update_us.min(self.earlier_us) * can_be_smaller.min(self.smaller);
    }

    /// Returns the minimum of the exposed time, summed over all ranks, if no other node follows,
    /// GPU-microseconds.
    pub(super) fn exposed_us(&self) -> f64 {
        if self.each_us <= 0.0 {
            return 0.0;
        }
        let done_earlier =
            if self.earlier_us > 0.0 { (self.updates_us / self.earlier_us).floor() } else { self.smaller };
        let spared = self.with_updates.min(self.smaller).min(done_earlier);
        (self.larger_us() - self.spared_by_family_us()).max(0.0) + self.each_us * (self.smaller - spared)
    }

    /// Returns the maximum of [`exposed_us`](Self::exposed_us) over all nodes that can follow,
    /// GPU-microseconds: later lists of the family can leave out ranks with the larger shard.
    pub(super) fn max_exposed_us(&self) -> f64 {
        self.larger_us().max(0.0) + self.each_us * self.smaller
    }

    /// Returns the part of ranks with the larger shard that lists before the family do not spare.
    fn larger_us(&self) -> f64 {
        self.each_us * (self.ranks - self.smaller) - self.spared_us
    }

    fn spared_by_family_us(&self) -> f64 {
        self.family.updates_us.min(self.each_us * self.family.larger)
    }

    /// Returns whether the exposed time is at least that of the other one, whichever nodes follow.
    /// False if they differ in the times or ranks of the first nodes, or in the ranks of the
    /// family.
    pub(super) fn is_at_least(&self, other: &Self) -> bool {
        let first = |of: &Self| {
            let Family { max_larger, ranks, larger, .. } = of.family;
            [of.each_us, of.ranks, of.smaller, of.earlier_us, max_larger, ranks, larger]
        };
        std::iter::zip(first(self), first(other)).all(|(one, other)| one.total_cmp(&other).is_eq())
            && self.with_updates <= other.with_updates
            && self.updates_us <= other.updates_us
            && self.spared_us <= other.spared_us
            && self.family.updates_us <= other.family.updates_us
    }

    /// Lowers the exposed time to at most that of the other one, whichever nodes follow.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.is_at_least(other) {
            *self = *other;
        } else if !other.is_at_least(self) {
            let (each_us, us) = (self.each_us.max(other.each_us), self.exposed_us().min(other.exposed_us()));
            *self = if us > 0.0 { Self::new(each_us, us / each_us, 0.0, 0.0) } else { Self::default() };
        }
    }
}
