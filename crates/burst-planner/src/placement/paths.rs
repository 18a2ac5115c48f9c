//! Longest paths through a placement problem. A *pass* is the forward or the backward pass, in this
//! order in a pair.

use super::problem::{PassTimes, PlacementGraph, later, sum};

impl PlacementGraph {
    /// Returns by operation and pass the length of the longest path from its end to the end of the
    /// pass, microseconds. The backward pass is reversed. Transfers are not counted, as all
    /// operations can be on one device.
    pub(super) fn tails(&self) -> Vec<PassTimes> {
        let mut tails = vec![[0.0; 2]; self.len()];
        for &operation in self.order.iter().rev() {
            tails[operation] = self.consumers[operation].iter().fold([0.0; 2], |longest, consumer| {
                later(longest, sum(self.times[consumer.operation], tails[consumer.operation]))
            });
        }
        tails
    }

    /// Returns a lower bound of the makespan on `devices` devices, microseconds: in each pass, the
    /// larger of the longest path and the work divided by the number of devices.
    pub(super) fn simple_bound_us(&self, devices: usize) -> f64 {
        let tails = self.tails();
        let ways = (0..self.len()).map(|operation| sum(self.times[operation], tails[operation]));
        let longest = ways.fold([0.0; 2], later);
        let work = self.times.iter().copied().fold([0.0; 2], sum);
        (0..2).map(|pass| longest[pass].max(work[pass] / devices as f64)).sum()
    }
}
