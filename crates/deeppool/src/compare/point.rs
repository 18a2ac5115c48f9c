//! One way to use the GPUs, and its throughput.

use std::fmt;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// A way to share GPUs between a foreground job and background jobs of one GPU each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SharingMode {
    /// Data parallelism on all GPUs, without background jobs.
    DataParallel,
    /// Data parallelism on all GPUs, with a background job on each GPU.
    DataParallelCollocated,
    /// A burst plan, without background jobs.
    Burst,
    /// A burst plan with a background job on each GPU, also on GPUs that the plan does not use.
    /// Data parallelism on any number of GPUs is also a burst plan.
    BurstCollocated,
    /// Data parallelism on some GPUs, and a background job on each of the others.
    Partition,
    /// A background job on each GPU, and no foreground.
    Background,
}

impl SharingMode {
    /// Returns whether background jobs share GPUs with the foreground.
    #[must_use]
    pub fn is_collocated(self) -> bool {
        matches!(self, Self::DataParallelCollocated | Self::BurstCollocated)
    }

    /// Returns the name in reports: `dp`, `dp+col`, `bp`, `bp+col`, `partition` or `bg`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DataParallel => "dp",
            Self::DataParallelCollocated => "dp+col",
            Self::Burst => "bp",
            Self::BurstCollocated => "bp+col",
            Self::Partition => "partition",
            Self::Background => "bg",
        }
    }
}

impl fmt::Display for SharingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DataParallel => "DP",
            Self::DataParallelCollocated => "DP+Col",
            Self::Burst => "BP",
            Self::BurstCollocated => "BP+Col",
            Self::Partition => "partition",
            Self::Background => "BG only",
        })
    }
}

/// The simulated throughput of one plan in one way to share the GPUs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Point {
    /// The way to share the GPUs.
    pub mode: SharingMode,
    /// Number of GPUs that the foreground uses for any layer; 0 without a foreground.
    pub gpus: usize,
    /// Amplification of the foreground's plan; `None` without a foreground.
    pub amplification: Option<f64>,
    /// Mean time of a foreground iteration in this mode; `None` without a foreground.
    pub iteration: Option<Duration>,
    /// Foreground samples per second; 0 without a foreground.
    pub foreground_samples_per_s: f64,
    /// Background samples per second, of all jobs together; 0 without background jobs.
    pub background_samples_per_s: f64,
    /// Minimum and maximum of the foreground samples per second within the known relative errors of
    /// layer times and collectives; `None` if no errors are known, or without a foreground.
    pub foreground_range: Option<[f64; 2]>,
    /// Minimum and maximum of the total samples per second within the known relative errors of
    /// layer times and collectives; `None` if no errors are known.
    pub total_range: Option<[f64; 2]>,
}

/// Fields as in reports: `mode`, `gpus`, `limit` (the amplification), `iteration_us`, the two
/// rates, and the ranges of foreground and total samples per second.
impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Point", 8)?;
        fields.serialize_field("mode", self.mode.name())?;
        fields.serialize_field("gpus", &self.gpus)?;
        fields.serialize_field("limit", &self.amplification)?;
        let iteration_us = self.iteration.map(|iteration| 1e6 * iteration.as_secs_f64());
        fields.serialize_field("iteration_us", &iteration_us)?;
        fields.serialize_field("foreground_samples_per_s", &self.foreground_samples_per_s)?;
        fields.serialize_field("background_samples_per_s", &self.background_samples_per_s)?;
        fields.serialize_field("foreground_range_samples_per_s", &self.foreground_range)?;
        fields.serialize_field("total_range_samples_per_s", &self.total_range)?;
        fields.end()
    }
}

impl Point {
    /// Returns the sum of foreground and background samples per second.
    #[must_use]
    pub fn total_samples_per_s(&self) -> f64 {
        self.foreground_samples_per_s + self.background_samples_per_s
    }
}
