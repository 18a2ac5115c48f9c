use std::io::Read;

use super::gavel::kind;
use super::sheet::Sheet;
use crate::{Error, GpuType, Table};

/// Two of Gavel's jobs on the same GPUs at the same time, by CUDA's multi-process service.
///
/// What is published is on V100, of pairs of jobs on one GPU each. In about a fifth of the rows a job is exactly as fast as alone, which looks clipped.
#[derive(Debug, Clone, PartialEq)]
pub struct GavelPair {
    /// On how many GPUs.
    pub gpus: usize,
    /// As in [`GavelJob::kind`](super::GavelJob::kind).
    pub kinds: [String; 2],
    /// Steps a second of each alone.
    pub alone: [f64; 2],
    /// Steps a second of each beside the other; 0 where it does not run so.
    pub together: [f64; 2],
}

impl GavelPair {
    /// The part of its speed alone that each has.
    #[must_use]
    pub fn parts(&self) -> [f64; 2] {
        [self.together[0] / self.alone[0], self.together[1] / self.alone[1]]
    }

    /// Whether one of them is not slowed down at all, so that its figure may have been clipped.
    #[must_use]
    pub fn looks_clipped(&self) -> bool {
        // Both speeds were rounded alike.
        self.parts().iter().any(|&part| part >= 1.0)
    }
}

/// Pairs from a CSV with the columns `gpus`, `model_a`, `batch_a`, `model_b`, `batch_b`, `a_alone`, `b_alone`, `a_shared` and `b_shared`.
///
/// `file` is what errors call it.
///
/// # Errors
///
/// [`Error::BadTrace`], with line and column.
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

/// Sets what becomes of pairs on one GPU [in a table](Table::set_together) for a type of GPU, and says how many there are: pairs of kinds that the table does not
/// have, or that do not run together, are left out.
pub fn add_pairs(table: &mut Table, gpu_type: GpuType, pairs: &[GavelPair]) -> usize {
    let mut added = 0;
    for pair in pairs.iter().filter(|pair| pair.gpus == 1) {
        let [one, other] = &pair.kinds;
        let (Ok(one), Ok(other)) = (table.find(one), table.find(other)) else { continue };
        added += usize::from(table.set_together(gpu_type, [one, other], pair.parts()).is_ok());
    }
    added
}
