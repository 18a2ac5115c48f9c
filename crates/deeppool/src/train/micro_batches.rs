use std::time::Duration;

use layer_profile::ProfileError;

use crate::Error;
use crate::costs::Costs;

/// By what part of its shortest time the longest step may be longer, where no cut brings it below the bound: one in
/// so many.
const NEARLY: u32 = 10;

/// Into how many micro-batches a job's batch is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MicroBatches {
    /// How many.
    pub count: usize,
    /// How long the longest step of a layer then takes, by the costs: forward, backward, or the optimiser's, which no cut
    /// makes shorter. It may still be above the bound.
    pub longest_step: Duration,
}

impl MicroBatches {
    /// The fewest micro-batches of a batch for which every step of a layer (forward, backward, the optimiser's) takes at
    /// most `bound`, by the costs. Where nothing brings that about, because a layer's optimiser takes longer or a single
    /// sample does, the fewest for which the longest step is within 10% of as short as it gets: every micro-batch costs
    /// the job something, and beyond that the foreground gains nothing.
    ///
    /// Sizes of micro-batches that the profile has no times for are passed over. O(layers x batch).
    ///
    /// # Errors
    /// When the batch is empty, or the profile has times for none of the sizes: then what it says to the whole batch.
    pub fn within(bound: Duration, costs: &Costs<'_>, batch: usize) -> Result<Self, Error> {
        if batch == 0 {
            return Err(Error::EmptyBatch);
        }
        let mut known: Vec<Self> = Vec::new();
        let mut unknown = None;
        for count in 1..=batch {
            let largest = batch.div_ceil(count);
            // More micro-batches of the same size gain nothing.
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
        let nearly =
            known.into_iter().find(|cut| cut.longest_step <= shortest.saturating_add(shortest / NEARLY));
        nearly.ok_or_else(|| unknown.map_or(Error::EmptyBatch, Error::from))
    }
}

fn longest_step(costs: &Costs<'_>, samples: usize) -> Result<Duration, Error> {
    let layers = costs.network().layers().skip(1);
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
    fn the_fewest_that_keep_the_bound() {
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
    fn where_no_cut_keeps_the_bound_it_ends_where_cutting_gains_nothing() {
        let network = zoo::model("digits-cnn").unwrap();
        let batch = 24;
        let link = LinkModel::threads_of_one_host();
        let modelled =
            DeviceModel::named("cpu-core").unwrap().profile(&network, &shard_sizes(batch, batch)).unwrap();
        let cut = |profile: &ProfileTable| {
            let costs = Costs::new(&network, profile, &link);
            let chosen = MicroBatches::within(Duration::ZERO, &costs, batch).unwrap();
            let longest = |count: usize| longest_step(&costs, batch.div_ceil(count)).unwrap();
            let nearly = longest(batch) + longest(batch) / NEARLY;
            assert_eq!(chosen.longest_step, longest(chosen.count));
            assert!(chosen.longest_step <= nearly, "{chosen:?}");
            assert!((1..chosen.count).all(|count| longest(count) > nearly), "{chosen:?}");
            chosen.count
        };
        assert!(cut(&modelled) > 1);
        // An optimiser that takes longer than anything else, which no cut makes shorter.
        let mut layers = modelled.layers().to_vec();
        for layer in &mut layers {
            layer.update = layer.update.map(|update| update + Duration::from_secs(1));
        }
        let slow = ProfileTable::new("digits-cnn", "a core", Origin::Modelled, layers, Vec::new()).unwrap();
        assert_eq!(cut(&slow), 1);
    }

    #[test]
    fn sizes_without_times_are_passed_over() {
        let network = zoo::model("digits-cnn").unwrap();
        let profile = DeviceModel::named("cpu-core").unwrap().profile(&network, &[4, 8]).unwrap();
        let link = LinkModel::threads_of_one_host();
        let costs = Costs::new(&network, &profile, &link);
        assert_eq!(MicroBatches::within(Duration::ZERO, &costs, 8).unwrap().count, 2);
        let unknown = MicroBatches::within(Duration::ZERO, &costs, 2).unwrap_err();
        assert!(unknown.is_input() && unknown.to_string().contains('2'), "{unknown}");
    }
}
