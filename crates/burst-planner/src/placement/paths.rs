//! The longest ways through a problem.

use super::problem::{Pair, PlacementGraph, later, sum};

impl PlacementGraph {
    /// By operation and pass: the longest way from its end to the end of all, whichever devices operations are on.
    pub(super) fn tails(&self) -> Vec<Pair> {
        let mut tails = vec![[0.0; 2]; self.len()];
        for &operation in self.order.iter().rev() {
            tails[operation] = self.consumers[operation].iter().fold([0.0; 2], |longest, consumer| {
                later(longest, sum(self.times[consumer.operation], tails[consumer.operation]))
            });
        }
        tails
    }

    /// What no placement on so many devices takes less than: in each pass the longest way, or an even part of all work.
    pub(super) fn simple_bound_us(&self, devices: usize) -> f64 {
        let tails = self.tails();
        let ways = (0..self.len()).map(|operation| sum(self.times[operation], tails[operation]));
        let longest = ways.fold([0.0; 2], later);
        let work = self.times.iter().copied().fold([0.0; 2], sum);
        (0..2).map(|pass| longest[pass].max(work[pass] / devices as f64)).sum()
    }
}
