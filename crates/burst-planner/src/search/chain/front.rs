//! Labels of dynamic programming along a chain, and those that are kept. A *place* is the index of
//! a node in topological order; a *list* is a list of ranks.

use super::lists::ListId;
use super::prefix_cost::PrefixCost;
use super::steps::MinRemaining;

/// Number of bins of GPU time. Bins are finer for smaller times.
const GPU_TIME_BINS: usize = 200;
/// GPU time of the last bin, as a multiple of the minimum.
const MAX_GPU_TIME: f64 = 3.0;
/// Fraction of the longest remaining update that a rank should be able to hide.
const HIDDEN_PART: f64 = 0.5;

/// A choice of lists for the nodes before some place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    /// Modelled cost of these nodes.
    pub(super) cost: PrefixCost,
    /// Modelled iteration time of these nodes, microseconds.
    pub(super) iteration_us: f64,
    /// The list of the last node.
    pub(super) list: ListId,
    /// The list that the ranks of `list` were chosen from; `list` if they were chosen from all
    /// ranks.
    pub(super) source_list: ListId,
    /// Place of the first node of the last run, the consecutive nodes on `list`.
    pub(super) start: usize,
    /// The list of the node before `start`; `None` if there is none.
    pub(super) before: Option<ListId>,
    /// Index of the label that it extends among all expanded labels; `u32::MAX` if there is none.
    pub(super) predecessor: u32,
}

/// The fastest labels at some place for each kind: by GPU count of the last list, by whether a rank
/// can hide half of the longest remaining update, and by range of GPU time.
#[derive(Default)]
pub(super) struct LabelFront {
    labels: Vec<Label>,
    /// By kind: 1 + the index of its fastest label, or 0.
    fastest: Vec<u32>,
    segments: usize,
    all: MinRemaining,
    after: MinRemaining,
}

impl LabelFront {
    /// Creates an empty front for `counts` GPU counts and `segments` segments of ranks. `all` is
    /// the minimum cost of all nodes, `after` that of the nodes from the place on.
    pub(super) fn new(counts: usize, segments: usize, [all, after]: [MinRemaining; 2]) -> Self {
        Self { labels: Vec::new(), fastest: vec![0; 2 * counts * GPU_TIME_BINS], segments, all, after }
    }

    /// Returns the range of GPU time of labels with `gpu_us` GPU-microseconds so far.
    fn bin(&self, gpu_us: f64) -> usize {
        let beyond = ((gpu_us + self.after.gpu_us) / self.all.gpu_us - 1.0).max(0.0);
        ((beyond / (MAX_GPU_TIME - 1.0)).sqrt() * GPU_TIME_BINS as f64) as usize
    }

    /// Returns whether [`offer`](Self::offer) does not keep a label with these times, microseconds
    /// and GPU-microseconds, or with longer ones in the same range of GPU time.
    pub(super) fn is_useless(&self, count: usize, min_us: f64, gpu_us: f64) -> bool {
        let bin = self.bin(gpu_us);
        let is_faster = |kind: usize| {
            let fastest = self.fastest[(2 * count + kind) * GPU_TIME_BINS + bin] as usize;
            self.labels.get(fastest.wrapping_sub(1)).is_some_and(|label| label.iteration_us <= min_us)
        };
        bin >= GPU_TIME_BINS || (is_faster(0) && is_faster(1))
    }

    /// Keeps a label if it is the fastest of its kind. `count` is the index of the length of its
    /// list among the GPU counts. A label with more than three times the minimum GPU time is not
    /// kept.
    pub(super) fn offer(&mut self, count: usize, label: Label) {
        let bin = self.bin(label.cost.gpu_us());
        if bin >= GPU_TIME_BINS {
            return;
        }
        let could_hide = label.cost.could_hide(self.segments, HIDDEN_PART * self.after.update_us);
        let fastest = &mut self.fastest[(2 * count + usize::from(could_hide)) * GPU_TIME_BINS + bin];
        match self.labels.get_mut((*fastest as usize).wrapping_sub(1)) {
            Some(slower) if label.iteration_us < slower.iteration_us => *slower = label,
            Some(_) => {}
            None => {
                self.labels.push(label);
                *fastest = self.labels.len() as u32;
            }
        }
    }

    /// Returns the labels of each count in ascending order of GPU time, without those that are no
    /// faster than one with less GPU time.
    pub(super) fn labels(&self) -> impl Iterator<Item = &Label> {
        self.fastest.chunks(GPU_TIME_BINS).flat_map(|amounts| {
            let mut min_us = f64::INFINITY;
            let labels = amounts.iter().map(|&fastest| (fastest as usize).wrapping_sub(1));
            labels.filter_map(|place| self.labels.get(place)).filter(move |label| {
                let is_faster = label.iteration_us < min_us;
                min_us = min_us.min(label.iteration_us);
                is_faster
            })
        })
    }
}
