use std::time::Duration;

use layer_profile::ProfileError;

use crate::Error;
use crate::costs::Costs;

/// Into how many micro-batches a job's batch is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroBatches {
    /// How many.
    pub count: usize,
    /// How long the longest forward or backward step of a layer then takes, by the costs. It may still be above the
    /// bound.
    pub longest_step: Duration,
}

impl MicroBatches {
    /// The fewest micro-batches of a batch for which every layer's forward and backward step takes at most `bound`, by the
    /// costs. Where nothing brings that about, the fewest for which the longest step is as short as it gets.
    ///
    /// Sizes of micro-batches that the profile has no times for are passed over. O(layers x batch).
    ///
    /// # Errors
    /// When the batch is empty, or the profile has times for none of the sizes: then what it says to the whole batch.
    pub fn within(bound: Duration, costs: &Costs<'_>, batch: usize) -> Result<Self, Error> {
        if batch == 0 {
            return Err(Error::EmptyBatch);
        }
        let mut shortest: Option<Self> = None;
        let mut unknown = None;
        for count in 1..=batch {
            let largest = batch.div_ceil(count);
            // More micro-batches of the same size gain nothing.
            if count > 1 && batch.div_ceil(count - 1) == largest {
                continue;
            }
            let longest_step = match longest_step(costs, largest) {
                Ok(longest) => longest,
                Err(Error::Profile(error @ ProfileError::OutsideRange { .. })) => {
                    unknown.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let candidate = Self { count, longest_step };
            if longest_step <= bound {
                return Ok(candidate);
            }
            if shortest.is_none_or(|shortest| longest_step < shortest.longest_step) {
                shortest = Some(candidate);
            }
        }
        match (shortest, unknown) {
            (Some(shortest), _) => Ok(shortest),
            (None, Some(error)) => Err(error.into()),
            (None, None) => Err(Error::EmptyBatch),
        }
    }
}

fn longest_step(costs: &Costs<'_>, samples: usize) -> Result<Duration, Error> {
    let layers = costs.network().layers().skip(1);
    let times =
        layers.map(|(id, _)| costs.layer_time(id, samples).map(|time| time.forward.max(time.backward)));
    times.reduce(|a, b| Ok(a?.max(b?))).unwrap_or(Ok(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::LinkModel;
    use layer_graph::zoo;
    use layer_profile::DeviceModel;

    use crate::costs::shard_sizes;

    #[test]
    fn the_fewest_that_keep_the_bound() {
        let network = zoo::model("digits-cnn").unwrap();
        let batch = 24;
        let profile =
            DeviceModel::named("cpu-core").unwrap().profile(&network, &shard_sizes(batch, batch)).unwrap();
        let link = LinkModel::shared_memory();
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
        let finest = MicroBatches::within(Duration::ZERO, &costs, batch).unwrap();
        assert_eq!(finest, MicroBatches { count: batch, longest_step: longest_step(&costs, 1).unwrap() });
    }

    #[test]
    fn sizes_without_times_are_passed_over() {
        let network = zoo::model("digits-cnn").unwrap();
        let profile = DeviceModel::named("cpu-core").unwrap().profile(&network, &[4, 8]).unwrap();
        let link = LinkModel::shared_memory();
        let costs = Costs::new(&network, &profile, &link);
        assert_eq!(MicroBatches::within(Duration::ZERO, &costs, 8).unwrap().count, 2);
        let unknown = MicroBatches::within(Duration::ZERO, &costs, 2).unwrap_err();
        assert!(unknown.is_input() && unknown.to_string().contains('2'), "{unknown}");
    }
}
