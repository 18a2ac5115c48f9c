//! What partial plans of a region are compared by.

use super::trace::Traces;

/// Sums in different orders differ by rounding: what differs by no more than this factor is the same. A small part
/// of what two whole sums may differ by, since plans can be left out many times on the way.
pub(super) const ROUNDED: f64 = 1.0 + 1e-14;

/// Times that are added to partial plans.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) time_us: f64,
    pub(super) gpu_us: f64,
}

/// A layer with its option.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layer {
    pub(super) times: Times,
    pub(super) gpus: usize,
    pub(super) memory_bytes: u64,
    /// The decision.
    pub(super) trace: u32,
}

/// Partial plans of which none is as good as another in everything.
///
/// A tolerance is a factor of at least 1: a plan is *covered* to a tolerance by one that is at most so many times as slow
/// and takes no more GPU time, but for [rounding](ROUNDED), and no more memory anywhere.
pub(super) trait Front: Clone + Default {
    /// Whether it matters which ranks a plan uses. Then only plans of one width are compared with each other.
    const BY_RANK: bool;

    /// How many plans a front may have where `max_labels` can be kept.
    fn most(max_labels: usize) -> usize;

    /// One plan. `ranks` is how many there are.
    fn one(times: Times, trace: u32, ranks: usize) -> Self;

    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in `other`, with `times` added to each of its plans.
    fn unite(&mut self, other: &Self, times: Times);

    /// Takes in all that `one` followed by `other` can be, as far as it is not covered to the tolerance. At most
    /// `most` plans, or else false.
    fn unite_sums(&mut self, one: &Self, other: &Self, tolerance: f64, most: usize) -> bool;

    /// Takes in all that `one` and `other` at the same time can be, the other `offset` ranks further on. At most `most`
    /// plans, or else false.
    fn unite_waves(&mut self, one: &Self, other: &Self, offset: usize, most: usize) -> bool;

    /// Drops what `better` has better.
    fn drop_dominated_by(&mut self, better: &Self);

    /// Adds a layer to each plan.
    fn add_layer(&mut self, layer: &Layer, traces: &mut Traces);

    /// Appends a decision to each plan.
    fn append(&mut self, trace: u32, traces: &mut Traces);

    /// Leaves out what others cover to the tolerance, but never, save for rounding, the fastest plan and the cheapest.
    fn thin(&mut self, tolerance: f64);

    /// Records the decisions of plans that were combined since.
    fn settle(&mut self, traces: &mut Traces);

    fn traces(&mut self) -> impl Iterator<Item = &mut u32>;
}
