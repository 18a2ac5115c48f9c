//! Labels of dynamic programming along a chain, and those that are kept.

use super::lists::ListId;
use super::prefix_cost::PrefixCost;
use super::steps::MinRemaining;

/// Number of bins of GPU time. Bins are finer for smaller times.
const GPU_TIME_BINS: usize = 200;
/// GPU time of the last bin, as a multiple of the minimum.
const MAX_GPU_TIME: f64 = 3.0;
/// Fraction of the longest remaining update that a rank should be able to hide.
const HIDDEN_PART: f64 = 0.5;

/// A choice of rank lists for the nodes up to some place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    /// Modelled cost of these nodes.
    pub(super) taken: PrefixCost,
    /// Modelled iteration time of these nodes, microseconds.
    pub(super) iteration_us: f64,
    /// The list of the last nodes.
    pub(super) list: ListId,
    /// The list that `list` was chosen from.
    pub(super) above: ListId,
    /// Place of the first of the last nodes, which are all on `list`.
    pub(super) start: usize,
    /// The list of the nodes before `start`; `None` if there are none.
    pub(super) before: Option<ListId>,
    /// Index of the label before.
    pub(super) trail: u32,
}

/// The fastest labels at some place: by count of the last list, by whether a rank can hide the
/// longest remaining update, and by bin of GPU time.
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
    /// Creates an empty front. `all` is the minimum over all nodes, `after` that of the remaining
    /// ones.
    pub(super) fn new(counts: usize, segments: usize, [all, after]: [MinRemaining; 2]) -> Self {
        Self { labels: Vec::new(), fastest: vec![0; 2 * counts * GPU_TIME_BINS], segments, all, after }
    }

    /// Keeps a label if it is the fastest of its kind.
    pub(super) fn offer(&mut self, count: usize, label: Label) {
        let beyond = ((label.taken.gpu_us() + self.after.gpu_us) / self.all.gpu_us - 1.0).max(0.0);
        let amount = ((beyond / (MAX_GPU_TIME - 1.0)).sqrt() * GPU_TIME_BINS as f64) as usize;
        if amount >= GPU_TIME_BINS {
            return;
        }
        let could_hide = label.taken.could_hide(self.segments, HIDDEN_PART * self.after.update_us);
        let fastest = &mut self.fastest[(2 * count + usize::from(could_hide)) * GPU_TIME_BINS + amount];
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
