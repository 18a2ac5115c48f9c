//! Gains of workers of two GPUs for assumed curves of epochs and assumed scaling efficiencies.
//!
//! A *curve* gives the epochs to the target accuracy by global batch. The *scaling efficiency* of N
//! workers is their throughput divided by N times that of one.
//! The gain is the time to the target accuracy of 2N workers of one GPU, divided by that of N
//! workers of two GPUs. `SE_N` is the scaling efficiency of N workers.

use serde::Serialize;
use time_to_accuracy::Comparison;

use super::case::LoadedCase;
use super::configuration::Worker;

/// Assumed slopes s: the epochs to the target grow as the global batch to the power of s. With 0
/// they do not grow; with 1, a larger batch saves no iterations.
pub(super) const SLOPES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Assumed scaling efficiencies of 2N workers relative to that of N workers, `SE_2N / SE_N`.
pub(super) const EFFICIENCIES: [f64; 4] = [1.0, 0.9, 0.8, 0.65];

/// Gain for one network, one slope and one relative efficiency.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AssumedGain {
    /// Name of the network.
    pub(super) model: String,
    /// Modelled speed-up of a worker of two GPUs over one GPU, with each layer on one GPU of the
    /// worker.
    pub(super) worker_speedup: f64,
    /// Assumed exponent of the growth of the epochs to the target with the global batch.
    pub(super) slope: f64,
    /// Assumed `SE_2N / SE_N`.
    pub(super) efficiency_ratio: f64,
    /// Gain; above 1, workers of two GPUs reach the target first.
    pub(super) gain: f64,
    /// `SE_2N / SE_N` at which the gain at this slope equals the published one. `None` if none is
    /// published.
    pub(super) efficiency_ratio_for_paper: Option<f64>,
}

/// Computes the gains of a network for all relative efficiencies and, within each, all slopes.
/// Empty if `workers` has no worker of two GPUs for the network.
pub(super) fn gains(case: &LoadedCase, workers: &[Worker]) -> Vec<AssumedGain> {
    let worker = workers.iter().find(|worker| worker.model == case.case.model && worker.gpus == 2);
    let Some(worker) = worker else { return Vec::new() };
    let of = |slope: f64, efficiency_ratio: f64| {
        let comparison = Comparison {
            workers: 1,
            gpus_per_worker: 2,
            worker_speedup: worker.placed_speedup,
            hybrid_efficiency: 1.0,
            data_parallel_efficiency: efficiency_ratio,
            hybrid_epochs: 1.0,
            data_parallel_epochs: 2.0_f64.powf(slope),
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
