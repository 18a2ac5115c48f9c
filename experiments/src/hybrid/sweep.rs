//! Gains for curves and efficiencies that are assumed.

use serde::Serialize;
use time_to_accuracy::Comparison;

use super::case::Loaded;
use super::question::Worker;

/// Epochs grow with the batch by these powers of it: 0 is no growth at all, 1 that a larger batch is of no use.
pub(super) const SLOPES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// What part of the efficiency of N workers twice as many have.
pub(super) const EFFICIENCIES: [f64; 4] = [1.0, 0.9, 0.8, 0.65];

/// Workers of two GPUs against twice as many of one, for one curve and one loss of efficiency.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Sweep {
    pub(super) model: String,
    /// SU^2, modelled: each layer on one GPU of its worker.
    pub(super) worker_speedup: f64,
    /// Epochs grow as the batch to this power: assumed.
    pub(super) slope: f64,
    /// `SE_2N / SE_N`: assumed.
    pub(super) efficiency_ratio: f64,
    pub(super) gain: f64,
    /// `SE_2N / SE_N` at which the gain were the paper's.
    pub(super) efficiency_ratio_for_paper: Option<f64>,
}

pub(super) fn all(case: &Loaded, workers: &[Worker]) -> Vec<Sweep> {
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
        Sweep {
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
