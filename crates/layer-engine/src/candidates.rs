//! Choice among *candidates*: the sequences of launches that compute the same part of a kernel, by
//! the vendor's libraries or by the functions of this crate.

use std::time::Duration;

/// Rule by which an engine for GPUs chooses how it computes convolutions and matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KernelChoice {
    /// The fastest candidate on the device: those of the libraries that are there, and the kernels
    /// of this crate. Each shape is timed once.
    #[default]
    Fastest,
    /// The first candidate of the vendor's library, without timing; the kernels of this crate where
    /// the library has none.
    Vendor,
    /// The kernels of this crate.
    Own,
}

/// One candidate as it was chosen from, for the record of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CandidateTime {
    /// Name, such as `cuDNN engine 1` or `own`.
    pub name: String,
    /// Time on the device, or `None` if the candidate was not timed or failed.
    pub time: Option<Duration>,
}

/// A part of a kernel with the candidate that computes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelPart {
    /// Content of the part, such as `weight gradient`.
    pub part: &'static str,
    /// Name of the chosen candidate.
    pub chosen: String,
    /// Reason of the choice, such as `fastest of 4`.
    pub reason: String,
    /// All candidates.
    pub candidates: Vec<CandidateTime>,
}
