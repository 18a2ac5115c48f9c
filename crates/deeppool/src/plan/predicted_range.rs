//! Range of a predicted iteration time.

use layer_graph::LayerGraph;
use layer_profile::ModelAccuracy;
use serde::{Deserialize, Serialize};

/// Range of a predicted iteration time, from the errors that the device model has on iterations
/// that it was not fitted to. Nine tenths of those iterations lie in such a range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PredictedRange {
    /// Shortest iteration time, microseconds.
    pub min_us: f64,
    /// Longest iteration time, microseconds.
    pub max_us: f64,
    /// Whether the model was checked on iterations of this family of networks, with as many samples
    /// on a GPU.
    pub checked: bool,
}

impl PredictedRange {
    /// Returns the range of an iteration in which the GPUs have from `samples[0]` to `samples[1]`
    /// samples. `None` if the accuracy of the model is not known.
    #[must_use]
    pub fn new(
        accuracy: Option<&ModelAccuracy>,
        network: &LayerGraph,
        samples: [usize; 2],
        iteration_us: f64,
    ) -> Option<Self> {
        let accuracy = accuracy?;
        let [fewest, most] = samples.map(|samples| accuracy.range(network, samples));
        let (range, most) = (fewest?, most?);
        Some(Self {
            min_us: iteration_us / (1.0 + range.error),
            max_us: iteration_us * (1.0 + range.error),
            checked: range.is_checked && most.is_checked,
        })
    }
}

/// `8.21 to 12.3 ms`, with a note if the model was not checked on such an iteration.
impl std::fmt::Display for PredictedRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let note = if self.checked { "" } else { "; not checked on iterations like this one" };
        write!(
            f,
            "{:.2} to {:.2} ms, by the model's errors on nine tenths of what it was not fitted to{note}",
            self.min_us / 1e3,
            self.max_us / 1e3,
        )
    }
}
