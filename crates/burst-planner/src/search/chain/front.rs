//! Which starting_points of a chain are worth going on from.

use super::lists::ListId;
use super::prefix_cost::PrefixCost;
use super::steps::MinRemaining;

/// How many amounts of GPU time are told apart. The less it is, the finer.
const GPU_TIME_BINS: usize = 200;
/// The largest, as a multiple of the least.
const MAX_GPU_TIME: f64 = 3.0;
/// The part of the longest update to come that some rank should be able to hide.
const HIDDEN_PART: f64 = 0.5;

/// The nodes up to some place, on certain ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    pub(super) taken: PrefixCost,
    /// What an iteration of these nodes alone takes.
    pub(super) iteration_us: f64,
    /// What the last of them are on, and the list that this was chosen from.
    pub(super) list: ListId,
    pub(super) above: ListId,
    /// Where those on the same list begin, and what those before are on.
    pub(super) start: usize,
    pub(super) before: Option<ListId>,
    /// Where the label of those before is listed.
    pub(super) trail: u32,
}

/// The fastest labels that end at some place: by count of the last list, by whether some rank could hide the longest update to come, and
/// by amount of GPU time.
#[derive(Default)]
pub(super) struct LabelFront {
    labels: Vec<Label>,
    /// By kind: one more than where its fastest label is.
    fastest: Vec<u32>,
    segments: usize,
    all: MinRemaining,
    after: MinRemaining,
}

impl LabelFront {
    /// Where all nodes take the one at least, and those to come the other.
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

    /// The labels of each count by rising GPU time, without those that are no faster than one that takes less.
    pub(super) fn labels(&self) -> impl Iterator<Item = &Label> {
        self.fastest.chunks(GPU_TIME_BINS).flat_map(|amounts| {
            let mut least_us = f64::INFINITY;
            let labels = amounts.iter().map(|&fastest| (fastest as usize).wrapping_sub(1));
            labels.filter_map(|place| self.labels.get(place)).filter(move |label| {
                let is_faster = label.iteration_us < least_us;
                least_us = least_us.min(label.iteration_us);
                is_faster
            })
        })
    }
}
