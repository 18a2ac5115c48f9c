//! Sums of losses and of correctly classified samples over the test samples.

use std::collections::BTreeMap;
use std::time::Instant;

use layer_graph::{LayerGraph, LayerId};

use super::report::classifies;
use super::{Evaluation, LossEvaluation};
use crate::Error;
use crate::data::Samples;
use crate::runtime::{LossMetrics, Observer, counted_share};

/// Sums over the test samples of the metrics of each loss layer.
pub(super) struct LossSums {
    /// By loss layer.
    of_losses: BTreeMap<LayerId, LossSum>,
}

/// Sums of a loss layer.
#[derive(Default)]
struct LossSum {
    /// The loss, and the number of correctly classified samples.
    sums: [f64; 2],
    /// Share of the labels of each batch that are not ignored.
    shares: Vec<f64>,
    /// Number of test samples multiplied by the share of their labels that are not ignored.
    counted: f64,
}

impl LossSums {
    /// Creates sums of zero for the losses of a network. `test` are the test samples, which are
    /// evaluated in batches of `batch` samples.
    pub(super) fn new(network: &LayerGraph, test: &Samples, batch: usize) -> Self {
        let of_loss = |loss: LayerId| {
            let (ignored, labels) = (network.layer(loss).ignored_label(), network.loss_labels(loss));
            let share = |samples: std::ops::Range<usize>| {
                let of_sample = |sample| test.labels_of(sample).get(labels.clone()).unwrap_or_default();
                ignored.map_or(1.0, |ignored| counted_share(samples.flat_map(of_sample), ignored))
            };
            let batches = (0..test.len()).step_by(batch.max(1));
            let shares = batches.map(|first| share(first..test.len().min(first + batch))).collect();
            let counted = test.len() as f64 * share(0..test.len());
            (loss, LossSum { sums: [0.0; 2], shares, counted })
        };
        Self { of_losses: network.losses().map(of_loss).collect() }
    }

    /// Returns the sums of each loss in `reported`, and zeros for the other losses, whose sums
    /// other ranks report.
    pub(super) fn reported(&self, reported: &[LayerId]) -> Vec<f32> {
        let of_loss = |(id, LossSum { sums, .. }): (&LayerId, &LossSum)| {
            sums.map(|sum| if reported.contains(id) { sum as f32 } else { 0.0 })
        };
        self.of_losses.iter().flat_map(of_loss).collect()
    }

    /// Returns the results of the given sums of all losses, which have the form of
    /// [`reported`](Self::reported).
    pub(super) fn evaluation(&self, network: &LayerGraph, sums: &[f32]) -> Evaluation {
        let of_loss = |((&id, LossSum { counted, .. }), sums): ((&LayerId, &LossSum), &[f32])| {
            let layer = network.layer(id);
            let mean = |place: usize| f64::from(sums[place]) / counted.max(f64::MIN_POSITIVE);
            LossEvaluation {
                layer: layer.name().into(),
                weight: layer.loss_weight(),
                loss: mean(0),
                accuracy: classifies(layer).then(|| mean(1)),
            }
        };
        let of_losses: Vec<LossEvaluation> =
            self.of_losses.iter().zip(sums.chunks_exact(2)).map(of_loss).collect();
        Evaluation {
            loss: of_losses.iter().map(|one| one.weight * one.loss).sum(),
            accuracy: of_losses.iter().find_map(|one| one.accuracy),
            of_losses,
        }
    }
}

impl Observer for LossSums {
    fn finished_iteration(
        &mut self,
        iteration: u64,
        metrics: &[LossMetrics],
        _at: Instant,
    ) -> Result<(), Error> {
        for metrics in metrics {
            if let Some(of_loss) = self.of_losses.get_mut(&metrics.layer) {
                // The metrics are those of a mean over the labels that are not ignored.
                let share = of_loss.shares.get(iteration as usize).copied().unwrap_or(1.0);
                let [loss, correct] = [metrics.loss, metrics.correct].map(|metric| share * f64::from(metric));
                of_loss.sums = [of_loss.sums[0] + loss, of_loss.sums[1] + correct];
            }
        }
        Ok(())
    }
}
