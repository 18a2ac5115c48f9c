//! Lower bounds for the time after the backward steps of the first nodes of a chain.
//!
//! The *first nodes* are the consecutive nodes, from the first one with a gradient on, that run on
//! the same list of ranks. A *place* is the index of a node in topological order, an *option* a GPU
//! count of a node.

use std::ops::Range;

use super::{Bound, BoundNode};
use crate::costs::{CostModel, bounds_of};

/// Lower bounds for the time after the last backward step of the first nodes, on their ranks, if
/// their gradients are reduced with no other node's. Times are in microseconds; all are 0 if
/// nothing is known.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_field_names, reason = "the unit")]
pub(super) struct FirstRun {
    /// Time from the end of the last backward step to the end of the last update of these nodes, as
    /// updates wait for all-reduces.
    pub(super) tail_us: f64,
    /// Time in which each rank only communicates, if it has no update of another node.
    pub(super) exposed_us: f64,
    /// Time by which a rank with the smaller shard (one sample less, if the batch does not divide
    /// evenly) can start updates of other nodes earlier; 0 if all gradients are reduced after the
    /// backward pass.
    pub(super) earlier_us: f64,
}

/// Sizes from which the division of gradients into all-reduce buckets follows.
pub(super) struct Buckets<'b> {
    /// By place: size of the gradient of the node's parameters, bytes.
    pub(super) gradient_bytes: &'b [u64],
    /// Minimum number of bytes of a bucket that is reduced during the backward pass; `None` if all
    /// gradients are reduced after it.
    pub(super) bucket_bytes: Option<u64>,
}

impl Buckets<'_> {
    /// Returns the bounds for the nodes at these places on `gpus` ranks. The last nodes are reduced
    /// first.
    fn after(
        &self,
        nodes: &[BoundNode],
        (places, gpus): (Range<usize>, f64),
        costs: &dyn CostModel,
    ) -> FirstRun {
        let option =
            |place: usize| nodes[place].options.iter().find(|option| option.gpus.total_cmp(&gpus).is_eq());
        let mut to_come: f64 = places.clone().filter_map(option).map(|option| option.backward_us).sum();
        let mut run = FirstRun::default();
        if self.bucket_bytes.is_some() {
            run.earlier_us = places.clone().filter_map(option).map(|option| option.less_us.1).sum();
        }
        // Time at which the communication lane is free, relative to the last backward step; and
        // updates that need not wait for it.
        let (mut free_us, mut waiting_us) = (f64::NEG_INFINITY, 0.0);
        let (mut meanwhile_us, mut max_waiting_us) = (0.0, 0.0);
        let mut bytes: u64 = 0;
        for place in places.clone().rev() {
            let Some(option) = option(place) else { continue };
            to_come -= option.backward_us;
            waiting_us += option.update_us;
            max_waiting_us += option.max_update_us;
            bytes = bytes.saturating_add(self.gradient_bytes[place]);
            let is_full = bytes > 0 && self.bucket_bytes.is_some_and(|maximum| bytes >= maximum);
            if bytes > 0 && (is_full || place == places.start) {
                let takes_us = bounds_of(costs).min_all_reduce(bytes, gpus as usize);
                free_us = f64::max(free_us, -to_come) + takes_us;
                // Updates run one after another, each after its all-reduce.
                run.tail_us = f64::max(run.tail_us, free_us) + waiting_us;
                run.exposed_us = if place == places.start { (takes_us - meanwhile_us).max(0.0) } else { 0.0 };
                meanwhile_us += max_waiting_us;
                (bytes, waiting_us, max_waiting_us) = (0, 0.0, 0.0);
            }
        }
        run
    }
}

impl Bound {
    /// Returns the bounds by place and option of the last of the first nodes. They are 0 for places
    /// before the first gradient, for a single GPU, and if `costs` is `None`.
    pub(super) fn first_runs(
        &self,
        buckets: &Buckets<'_>,
        costs: Option<&dyn CostModel>,
    ) -> Vec<Vec<FirstRun>> {
        let first = self.first_with_gradient();
        let of_place = |last: usize| {
            let of_option = |index: usize| {
                let gpus = self.nodes[last].options[index].gpus;
                match costs {
                    Some(costs) if last >= first && gpus > 1.0 => {
                        buckets.after(&self.nodes, (first..last + 1, gpus), costs)
                    }
                    _ => FirstRun::default(),
                }
            };
            (0..self.nodes[last].options.len()).map(of_option).collect()
        };
        (0..self.nodes.len()).map(of_place).collect()
    }
}
