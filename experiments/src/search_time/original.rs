//! Run times of the original's planner.
//!
//! Its authors publish no such time that we know of. These were measured with its planner (Python,
//! `DeepPoolML/DeepPool`) on one core of another machine, on the A100 profiles published with it,
//! with a limit of 2.

/// A search by the original's planner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Original {
    model: &'static str,
    gpus: usize,
    /// Samples of the global batch, if they were recorded.
    pub(super) batch: Option<usize>,
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
    /// Returns the record of a network on `gpus` GPUs.
    pub(super) fn find(model: &str, gpus: usize) -> Option<&'static Self> {
        ORIGINAL.iter().find(|of| (of.model, of.gpus) == (model, gpus))
    }
}
