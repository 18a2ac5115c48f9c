//! Gavel's published traces and throughputs. A *kind* of job is a model with its batch size. A
//! *step* is the processing of one batch by one GPU, so that an iteration of a job on n GPUs counts
//! as n steps.

use std::io::Read;

use super::sheet::Sheet;
use crate::Error;

/// Job of Gavel's traces (Narayanan et al., OSDI 2020).
#[derive(Debug, Clone, PartialEq)]
pub struct GavelJob {
    /// Arrival time in seconds from the start of the trace.
    pub arrival: f64,
    /// Kind of the job: its model, with the batch size if it has one, such as `ResNet-18 batch 64`.
    pub kind: String,
    /// Number of GPUs on which the job runs.
    pub gpus: usize,
    /// Number of steps after which the job is done, summed over its GPUs.
    pub steps: u64,
}

/// Throughput of a kind of Gavel's jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct GavelSpeed {
    /// Type of GPU: `k80`, `p100` or `v100`, with the suffix `_unconsolidated` for GPUs spread over
    /// servers.
    pub gpu_type: String,
    /// The kind, as in [`GavelJob::kind`].
    pub kind: String,
    /// Number of GPUs on which it was measured.
    pub gpus: usize,
    /// Steps per second, summed over these GPUs; 0 if it did not run.
    pub steps_per_s: f64,
}

/// Reads jobs from a CSV with the columns `arrival_s`, `model` or `job_type`, `batch` or
/// `batch_size`, `gpus` or `scale_factor`, and `steps` or `total_steps`.
///
/// `file` is the name in errors.
///
/// # Errors
///
/// [`Error::BadTrace`] if the file is no valid CSV, lacks a column or has a value outside its
/// range.
pub fn gavel_jobs(file: &str, input: impl Read) -> Result<Vec<GavelJob>, Error> {
    let columns: [&[&str]; 5] = [
        &["arrival_s"],
        &["model", "job_type"],
        &["batch", "batch_size"],
        &["gpus", "scale_factor"],
        &["steps", "total_steps"],
    ];
    let mut sheet = Sheet::open(file, input, &columns)?;
    let mut jobs = Vec::new();
    while sheet.next()? {
        jobs.push(GavelJob {
            arrival: sheet.number(0, "seconds from 0 on", |at: &f64| (0.0..1e9).contains(at))?,
            kind: kind(&sheet, 1, 2)?,
            gpus: sheet
                .number(3, "a number of GPUs from 1 on", |&gpus: &usize| (1..1 << 20).contains(&gpus))?,
            steps: sheet
                .number(4, "a number of steps from 1 on", |&steps: &u64| (1..1 << 52).contains(&steps))?,
        });
    }
    Ok(jobs)
}

/// Reads throughputs from a CSV with the columns `gpu_type`, `model`, `batch`, `gpus` and
/// `steps_per_s`.
///
/// `file` is the name in errors.
///
/// # Errors
///
/// [`Error::BadTrace`] if the file is no valid CSV, lacks a column or has a value outside its
/// range.
pub fn gavel_speeds(file: &str, input: impl Read) -> Result<Vec<GavelSpeed>, Error> {
    let columns: [&[&str]; 5] = [&["gpu_type"], &["model"], &["batch"], &["gpus"], &["steps_per_s"]];
    let mut sheet = Sheet::open(file, input, &columns)?;
    let mut speeds = Vec::new();
    while sheet.next()? {
        speeds.push(GavelSpeed {
            gpu_type: sheet.text(0)?.to_owned(),
            kind: kind(&sheet, 1, 2)?,
            gpus: sheet
                .number(3, "a number of GPUs from 1 on", |&gpus: &usize| (1..1 << 20).contains(&gpus))?,
            steps_per_s: sheet
                .number(4, "steps a second from 0 on", |speed: &f64| (0.0..1e9).contains(speed))?,
        });
    }
    Ok(speeds)
}

/// Returns the name of a kind of job, composed of a model and a batch size. `model` and `batch` are
/// the indices of their columns among those requested from the sheet. An empty batch size is
/// omitted.
///
/// # Errors
/// [`Error::BadTrace`] if the current line ends before one of the columns.
pub(super) fn kind<R: Read>(sheet: &Sheet<R>, model: usize, batch: usize) -> Result<String, Error> {
    let (model, batch) = (sheet.text(model)?, sheet.text(batch)?);
    Ok(if batch.is_empty() { model.to_owned() } else { format!("{model} batch {batch}") })
}
