//! Metrics of loss layers, and the weights of samples of losses that ignore a label.

use layer_graph::{Layer, LayerId};

/// Metrics of a loss layer, summed over the global batch.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LossMetrics {
    /// The loss layer.
    pub layer: LayerId,
    /// Factor of the loss in the sum of losses.
    pub weight: f64,
    /// The loss, without its factor.
    pub loss: f32,
    /// Number of correctly classified samples.
    pub correct: f32,
}

impl LossMetrics {
    /// Creates the metrics of a loss layer: the loss and the number of correct samples.
    pub(super) fn new(id: LayerId, layer: &Layer, [loss, correct]: [f32; 2]) -> Self {
        Self { layer: id, weight: layer.loss_weight(), loss, correct }
    }

    /// Returns the sum of losses, each multiplied by its factor.
    #[must_use]
    pub fn weighted_sum<'m>(all: impl IntoIterator<Item = &'m Self>) -> f64 {
        all.into_iter().map(|one| one.weight * f64::from(one.loss)).sum()
    }
}

/// Returns the share of labels that are not ignored.
pub(crate) fn counted_share<'l, T: Copy + Into<f64> + 'l>(
    labels: impl IntoIterator<Item = &'l T>,
    ignored: i32,
) -> f64 {
    let (mut counted, mut all) = (0_usize, 0_usize);
    for &label in labels {
        all += 1;
        counted += usize::from(label.into() as i32 != ignored);
    }
    counted as f64 / all.max(1) as f64
}

/// Returns the [weight](layer_graph::Layer::label_elements) of the samples of a batch with the
/// given labels: 0 if all are ignored.
pub(crate) fn sample_weight<'l, T: Copy + Into<f64> + 'l>(
    labels: impl IntoIterator<Item = &'l T>,
    ignored: i32,
) -> f64 {
    let share = counted_share(labels, ignored);
    if share > 0.0 { 1.0 / share } else { 0.0 }
}
