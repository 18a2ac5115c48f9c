//! One way to use the GPUs, and its throughput.

use std::fmt;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// How GPUs are shared between a foreground job and background jobs of one GPU each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Way {
    /// The foreground by data parallelism on all GPUs, and nothing else.
    DataParallel,
    /// The same with a background job on each GPU.
    DataParallelCollocated,
    /// A burst plan, and nothing else.
    Burst,
    /// A burst plan with a background job on each GPU: beside the foreground, and by itself on GPUs that the plan leaves free. Data
    /// parallelism on any number of GPUs is a burst plan, too.
    BurstCollocated,
    /// The foreground by data parallelism on some GPUs, and a background job on each of the others.
    Partition,
    /// A background job on each GPU, and no foreground.
    Background,
}

impl Way {
    /// Whether background jobs are on the foreground's GPUs.
    #[must_use]
    pub fn is_collocated(self) -> bool {
        matches!(self, Self::DataParallelCollocated | Self::BurstCollocated)
    }

    /// Its name in reports: `dp`, `dp+col`, `bp`, `bp+col`, `partition` or `bg`.
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

impl fmt::Display for Way {
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

/// What a way to share the GPUs was simulated to give.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Point {
    /// The way.
    pub way: Way,
    /// GPUs on which the foreground has a part.
    pub gpus: usize,
    /// The plan's amplification; `None` without a foreground.
    pub amplification: Option<f64>,
    /// Mean time of a foreground iteration; `None` without a foreground.
    pub iteration: Option<Duration>,
    /// Foreground samples by second.
    pub foreground_samples_per_s: f64,
    /// Background samples by second, of all jobs together.
    pub background_samples_per_s: f64,
    /// The least and the most that the foreground may come to, in samples by second, where the costs are off by as much as they are known
    /// to be; `None` where nothing is known of that.
    pub foreground_range: Option<[f64; 2]>,
    /// The same of both jobs together.
    pub total_range: Option<[f64; 2]>,
}

/// As in reports: `mode`, `gpus`, `limit`, `iteration_us`, the two rates and their ranges.
impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Point", 8)?;
        fields.serialize_field("mode", self.way.name())?;
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
    /// Foreground and background samples by second.
    #[must_use]
    pub fn total_samples_per_s(&self) -> f64 {
        self.foreground_samples_per_s + self.background_samples_per_s
    }
}
