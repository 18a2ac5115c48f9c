//! What certainly follows the backward steps of the first nodes of a chain, on the ranks that these share.

use std::ops::Range;

use super::{Bound, BoundNode};
use crate::costs::{CostModel, bounds_of};

/// What comes after the last backward step, on ranks whose gradients no other node's are reduced with.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_field_names, reason = "the unit")]
pub(super) struct FirstRun {
    /// From the end of the last backward step to the last update of these nodes, as far as all-reduces keep it.
    pub(super) tail_us: f64,
    /// How long each of the ranks does nothing but communicate then, if it has no other node's update to do meanwhile.
    pub(super) exposed_us: f64,
    /// By how much sooner a rank with the smaller share can begin updates of other nodes; 0 where all gradients are reduced at the end.
    pub(super) sooner_us: f64,
}

/// How a program divides gradients.
pub(super) struct Buckets<'b> {
    /// By place.
    pub(super) gradient_bytes: &'b [u64],
    /// Gradients are reduced when they are so many; never before the end of the backward pass if it is `None`.
    pub(super) bucket_bytes: Option<u64>,
}

impl Buckets<'_> {
    /// What follows the nodes at these places on so many ranks. The last nodes come first.
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
            run.sooner_us = places.clone().filter_map(option).map(|option| option.less_us.1).sum();
        }
        // When the communication lane is free, counted from the last backward step on; updates that need not wait for it.
        let (mut free_us, mut waiting_us) = (f64::NEG_INFINITY, 0.0);
        let (mut meanwhile_us, mut most_waiting_us) = (0.0, 0.0);
        let mut bytes: u64 = 0;
        for place in places.clone().rev() {
            let Some(option) = option(place) else { continue };
            to_come -= option.backward_us;
            waiting_us += option.update_us;
            most_waiting_us += option.max_update_us;
            bytes = bytes.saturating_add(self.gradient_bytes[place]);
            let is_full = bytes > 0 && self.bucket_bytes.is_some_and(|most| bytes >= most);
            if bytes > 0 && (is_full || place == places.start) {
                let takes_us = bounds_of(costs).min_all_reduce(bytes, gpus as usize);
                free_us = f64::max(free_us, -to_come) + takes_us;
                // Updates follow each other, and each its all-reduce.
                run.tail_us = f64::max(run.tail_us, free_us) + waiting_us;
                run.exposed_us = if place == places.start { (takes_us - meanwhile_us).max(0.0) } else { 0.0 };
                meanwhile_us += most_waiting_us;
                (bytes, waiting_us, most_waiting_us) = (0, 0.0, 0.0);
            }
        }
        run
    }
}

impl Bound {
    /// By place of the last node and its option, from the first node that learns on; nothing is known to follow without costs.
    pub(super) fn first_runs(
        &self,
        buckets: &Buckets<'_>,
        costs: Option<&dyn CostModel>,
    ) -> Vec<Vec<FirstRun>> {
        let first = self.learns_from();
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
