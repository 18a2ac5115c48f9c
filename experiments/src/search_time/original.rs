//! Run times of the planner of the original system, DeepPool (Park et al., MLSys 2022).
//!
//! Its authors publish no such time that we know of. These were measured with its planner (Python,
//! `DeepPoolML/DeepPool`) on one core of another machine, on the A100 profiles published with it,
//! with an amplification limit of 2.

/// A search by the original system's planner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Original {
    model: &'static str,
    gpus: usize,
    /// Samples of the global batch. `None` if not recorded.
    pub(super) batch: Option<usize>,
    /// Run time of the search in seconds.
    pub(super) seconds: f64,
}

const ORIGINAL: [Original; 9] = [
    original("vgg16", 8, None, 0.009),
    original("vgg16", 64, None, 0.016),
    original("vgg16", 1024, None, 0.034),
    original("wrn-101-2", 8, Some(32), 0.0107),
    original("wrn-101-2", 64, Some(32), 0.0298),
    original("wrn-101-2", 1024, Some(16), 0.0161),
    original("inception-v3", 8, None, 0.112),
    original("inception-v3", 64, None, 0.465),
    original("inception-v3", 1024, None, 1.819),
];

const fn original(model: &'static str, gpus: usize, batch: Option<usize>, seconds: f64) -> Original {
    Original { model, gpus, batch, seconds }
}

impl Original {
    /// Returns the record of a network on `gpus` GPUs. `None` if it was not measured.
    pub(super) fn find(model: &str, gpus: usize) -> Option<&'static Self> {
        ORIGINAL.iter().find(|of| (of.model, of.gpus) == (model, gpus))
    }
}
