//! Number of micro-batches of a background job for a bound on the foreground's wait.

use std::time::Duration;

use layer_profile::ProfileError;

use crate::Error;
use crate::batch::check_batch;
use crate::costs::Costs;

/// Tolerance of the longest step relative to its minimum, as a divisor: a tenth.
const TOLERANCE_DIVISOR: u32 = 10;

/// Number of micro-batches of a background job's iteration, and the longest step that results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MicroBatches {
    /// Number of micro-batches of an iteration.
    pub count: usize,
    /// Predicted duration of the longest step of a layer: forward or backward of one micro-batch,
    /// or the optimiser step, which micro-batches do not shorten. It may exceed the bound.
    pub longest_step: Duration,
}

impl MicroBatches {
    /// Returns the minimum number of micro-batches of a batch of `batch` samples for which every
    /// step of a layer (forward, backward, optimiser) takes at most `bound`, as predicted by
    /// `costs`. If that is impossible, because of an optimiser step or a single sample, returns the
    /// minimum number for which the longest step is within 10% of its minimum: each micro-batch has
    /// a cost, and more of them would not help the foreground.
    ///
    /// Micro-batch sizes without times in the profile are skipped. O(layers x batch).
    ///
    /// # Errors
    /// [`Error::EmptyBatch`] for an empty batch. [`Error::Profile`] for the whole batch if the
    /// profile has times for none of the sizes.
    pub fn within(bound: Duration, costs: &Costs<'_>, batch: usize) -> Result<Self, Error> {
        check_batch(batch)?;
        let mut known: Vec<Self> = Vec::new();
        let mut unknown = None;
        for count in 1..=batch {
            let largest = batch.div_ceil(count);
            // More micro-batches of the same size do not help.
            if count > 1 && batch.div_ceil(count - 1) == largest {
                continue;
            }
            match longest_step(costs, largest) {
                Ok(longest_step) if longest_step <= bound => return Ok(Self { count, longest_step }),
                Ok(longest_step) => known.push(Self { count, longest_step }),
                Err(Error::Profile(error @ ProfileError::OutsideRange { .. })) => {
                    unknown.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        let shortest = known.iter().map(|cut| cut.longest_step).min().unwrap_or_default();
        let nearly = known
            .into_iter()
            .find(|cut| cut.longest_step <= shortest.saturating_add(shortest / TOLERANCE_DIVISOR));
        nearly.ok_or_else(|| unknown.map_or(Error::EmptyBatch, Error::from))
    }
}

fn longest_step(costs: &Costs<'_>, samples: usize) -> Result<Duration, Error> {
    let layers = costs.network().computing_layers();
    let times = layers.map(|(id, _)| {
        costs.layer_time(id, samples).map(|time| time.forward.max(time.backward).max(time.update))
    });
    times.reduce(|a, b| Ok(a?.max(b?))).unwrap_or(Ok(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::LinkModel;
    use layer_graph::zoo;
    use layer_profile::{DeviceModel, Origin, ProfileTable};

    use crate::costs::shard_sizes;

    #[test]
    fn fewest_micro_batches_within_the_bound_are_chosen() {
        let network = zoo::model("digits-cnn").unwrap();
        let batch = 24;
        let profile =
            DeviceModel::named("cpu-core").unwrap().profile(&network, &shard_sizes(batch, batch)).unwrap();
        let link = LinkModel::threads_of_one_host();
        let costs = Costs::new(&network, &profile, &link);
        let whole = longest_step(&costs, batch).unwrap();
        assert_eq!(MicroBatches::within(whole, &costs, batch).unwrap().count, 1);
        for parts in 2..6 {
            let bound = whole / parts;
            let chosen = MicroBatches::within(bound, &costs, batch).unwrap();
            let longest = |count: usize| longest_step(&costs, batch.div_ceil(count)).unwrap();
            assert_eq!(chosen.longest_step, longest(chosen.count));
            assert!(chosen.longest_step <= bound, "{chosen:?} for {bound:?}");
            assert!((1..chosen.count).all(|count| longest(count) > bound), "{chosen:?} for {bound:?}");
        }
    }

    #[test]
    fn search_stops_when_cutting_gains_nothing() {
        let network = zoo::model("digits-cnn").unwrap();
        let batch = 24;
        let link = LinkModel::threads_of_one_host();
        let modelled =
            DeviceModel::named("cpu-core").unwrap().profile(&network, &shard_sizes(batch, batch)).unwrap();
        let cut = |profile: &ProfileTable| {
            let costs = Costs::new(&network, profile, &link);
            let chosen = MicroBatches::within(Duration::ZERO, &costs, batch).unwrap();
            let longest = |count: usize| longest_step(&costs, batch.div_ceil(count)).unwrap();
            let nearly = longest(batch) + longest(batch) / TOLERANCE_DIVISOR;
            assert_eq!(chosen.longest_step, longest(chosen.count));
            assert!(chosen.longest_step <= nearly, "{chosen:?}");
            assert!((1..chosen.count).all(|count| longest(count) > nearly), "{chosen:?}");
            chosen.count
        };
        assert!(cut(&modelled) > 1);
        // An optimiser step that is longer than anything else, and that micro-batches do not
        // shorten.
        let mut layers = modelled.layers().to_vec();
        for layer in &mut layers {
            layer.update = layer.update.map(|update| update + Duration::from_secs(1));
        }
        let slow = ProfileTable::new("digits-cnn", "a core", Origin::Modelled, layers, Vec::new()).unwrap();
        assert_eq!(cut(&slow), 1);
    }

    #[test]
    fn sizes_without_times_are_skipped() {
        let network = zoo::model("digits-cnn").unwrap();
        let profile = DeviceModel::named("cpu-core").unwrap().profile(&network, &[4, 8]).unwrap();
        let link = LinkModel::threads_of_one_host();
        let costs = Costs::new(&network, &profile, &link);
        assert_eq!(MicroBatches::within(Duration::ZERO, &costs, 8).unwrap().count, 2);
        let unknown = MicroBatches::within(Duration::ZERO, &costs, 2).unwrap_err();
        assert!(unknown.is_input() && unknown.to_string().contains('2'), "{unknown}");
    }
}
