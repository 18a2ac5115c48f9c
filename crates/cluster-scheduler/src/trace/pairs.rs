//! Gavel's published throughputs of pairs of jobs. A *step* is the processing of one batch by one
//! GPU.

use std::io::Read;

use super::gavel::kind;
use super::sheet::Sheet;
use crate::{Error, GpuType, Table};

/// Measured throughputs of two of Gavel's jobs that share GPUs through CUDA's multi-process
/// service.
///
/// The published data are for V100 and pairs of one-GPU jobs. In about a fifth of the rows a job is
/// exactly as fast as alone, which suggests clipping.
#[derive(Debug, Clone, PartialEq)]
pub struct GavelPair {
    /// Number of GPUs on which both jobs run.
    pub gpus: usize,
    /// Kinds of the two jobs, as in [`GavelJob::kind`](super::GavelJob::kind).
    pub kinds: [String; 2],
    /// Steps per second of each job alone, summed over the GPUs.
    pub alone: [f64; 2],
    /// Steps per second of each job beside the other, summed over the GPUs; 0 if it does not run.
    pub together: [f64; 2],
}

impl GavelPair {
    /// Returns the speed of each job beside the other divided by its speed alone.
    #[must_use]
    pub fn relative_speeds(&self) -> [f64; 2] {
        [self.together[0] / self.alone[0], self.together[1] / self.alone[1]]
    }

    /// Returns whether one of the jobs is not slowed down at all, so that its value may have been
    /// clipped.
    #[must_use]
    pub fn looks_clipped(&self) -> bool {
        // Both speeds are rounded in the same way.
        self.relative_speeds().iter().any(|&part| part >= 1.0)
    }
}

/// Reads pairs from a CSV with the columns `gpus`, `model_a`, `batch_a`, `model_b`, `batch_b`,
/// `a_alone`, `b_alone`, `a_shared` and `b_shared`.
///
/// `file` is the name in errors.
///
/// # Errors
///
/// [`Error::BadTrace`] if the file is no valid CSV, lacks a column or has a value outside its
/// range.
pub fn gavel_pairs(file: &str, input: impl Read) -> Result<Vec<GavelPair>, Error> {
    let columns: [&[&str]; 9] = [
        &["gpus"],
        &["model_a"],
        &["batch_a"],
        &["model_b"],
        &["batch_b"],
        &["a_alone"],
        &["b_alone"],
        &["a_shared"],
        &["b_shared"],
    ];
    let mut sheet = Sheet::open(file, input, &columns)?;
    let mut pairs = Vec::new();
    while sheet.next()? {
        let alone = |column| {
            let is_good = |speed: &f64| *speed > 0.0 && *speed < 1e9;
            sheet.number(column, "steps a second, more than 0", is_good)
        };
        let shared = |column| {
            let is_good = |speed: &f64| (0.0..1e9).contains(speed);
            sheet.number(column, "steps a second from 0 on", is_good)
        };
        pairs.push(GavelPair {
            gpus: sheet
                .number(0, "a number of GPUs from 1 on", |&gpus: &usize| (1..1 << 20).contains(&gpus))?,
            kinds: [kind(&sheet, 1, 2)?, kind(&sheet, 3, 4)?],
            alone: [alone(5)?, alone(6)?],
            together: [shared(7)?, shared(8)?],
        });
    }
    Ok(pairs)
}

/// Adds the relative speeds of one-GPU pairs [to a table](Table::set_pair_speeds) for a type of
/// GPU, and returns the number of pairs that were added. Pairs of kinds that the table does not
/// have, or that do not run together, are skipped.
pub fn add_pairs(table: &mut Table, gpu_type: GpuType, pairs: &[GavelPair]) -> usize {
    let mut added = 0;
    for pair in pairs.iter().filter(|pair| pair.gpus == 1) {
        let [one, other] = &pair.kinds;
        let (Ok(one), Ok(other)) = (table.find(one), table.find(other)) else { continue };
        added += usize::from(table.set_pair_speeds(gpu_type, [one, other], pair.relative_speeds()).is_ok());
    }
    added
}
