//! Gains for assumed curves of epochs and scaling efficiencies.

use serde::Serialize;
use time_to_accuracy::Comparison;

use super::case::LoadedCase;
use super::configuration::Worker;

/// Exponents of the growth of epochs with the batch: 0 is no growth; with 1, a larger batch saves
/// no iterations.
pub(super) const SLOPES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Scaling efficiency of 2N workers relative to that of N workers.
pub(super) const EFFICIENCIES: [f64; 4] = [1.0, 0.9, 0.8, 0.65];

/// Gain of workers of two GPUs over twice as many of one GPU, for one curve and one loss of
/// efficiency.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AssumedGain {
    pub(super) model: String,
    /// Modelled SU^2, with each layer on one GPU of its worker.
    pub(super) worker_speedup: f64,
    /// Assumed exponent of the growth of epochs with the batch.
    pub(super) slope: f64,
    /// Assumed `SE_2N / SE_N`.
    pub(super) efficiency_ratio: f64,
    pub(super) gain: f64,
    /// `SE_2N / SE_N` at which the gain equals the paper's.
    pub(super) efficiency_ratio_for_paper: Option<f64>,
}

pub(super) fn all(case: &LoadedCase, workers: &[Worker]) -> Vec<AssumedGain> {
    let worker = workers.iter().find(|worker| worker.model == case.case.model && worker.gpus == 2);
    let Some(worker) = worker else { return Vec::new() };
    let of = |slope: f64, efficiency_ratio: f64| {
        let comparison = Comparison {
            workers: 1,
            gpus_per_worker: 2,
            worker_speedup: worker.placed_speedup,
            efficiency_of_workers: 1.0,
            efficiency_of_gpus: efficiency_ratio,
            epochs_of_workers: 1.0,
            epochs_of_gpus: 2.0_f64.powf(slope),
        };
        AssumedGain {
            model: worker.model.clone(),
            worker_speedup: worker.placed_speedup,
            slope,
            efficiency_ratio,
            gain: comparison.gain(),
            efficiency_ratio_for_paper: case
                .case
                .paper_gain
                .map(|gain| comparison.efficiency_ratio_for(gain)),
        }
    };
    EFFICIENCIES.iter().flat_map(|&ratio| SLOPES.map(|slope| of(slope, ratio))).collect()
}
