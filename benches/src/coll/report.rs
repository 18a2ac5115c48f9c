//! File format of `coll-bench`.

use std::path::Path;
use std::time::Duration;

use collectives::Measurement;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::coll::CollOperation;
use crate::report_file;

/// Name and version of the format.
const SCHEMA: &str = "deeppool/coll-bench/v1";
/// Maximum time of an operation in microseconds.
const MAX_TIME_US: f64 = 1e12;

/// Measured collectives, as printed by `coll-bench --json` and read by `coll-bench fit`. All times
/// are in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollReport {
    schema: String,
    /// Machine of the measurement.
    pub machine: Machine,
    /// One row for each operation, group size, size, backend and way to wait.
    pub rows: Vec<CollRow>,
}

/// Machine of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Number of cores that the ranks may use.
    pub cores: usize,
}

/// Measured time of a collective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollRow {
    /// Backend, such as `threads` or `open-mpi`.
    pub backend: String,
    /// Way in which ranks wait for each other: `spin`, `yield` or `park`. `None` if the library
    /// chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// The operation.
    pub op: CollOperation,
    /// Number of ranks of the group.
    pub ranks: usize,
    /// Size in bytes of the larger of a rank's send and receive buffer, as in nccl-tests; 0 for a
    /// barrier.
    pub bytes: u64,
    /// Median over all samples of the slowest rank's mean time for one operation, in microseconds.
    /// A sample is a series of operations without a pause. The time of a send is that of one
    /// direction of a ping-pong.
    #[serde(deserialize_with = "positive")]
    pub time_us: f64,
    /// 10th percentile over the samples of the same time, in microseconds.
    pub time_p10_us: f64,
    /// 90th percentile over the samples of the same time, in microseconds.
    pub time_p90_us: f64,
    /// Bus bandwidth as in nccl-tests: `bytes` / `time_us` times [`CollOperation::bus_factor`], in
    /// 10^9 bytes a second. `None` for a barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_bandwidth_gb_s: Option<f64>,
    /// Number of samples over all rounds.
    pub samples: usize,
    /// Number of executions of the operation over all samples.
    pub iterations: u64,
    /// Time in which each rank copies `bytes` from one of its buffers to another, all at once, in
    /// microseconds: median over the rounds, each of which measures all backends once.
    /// `None` unless the row is an all-reduce or a redistribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_us: Option<f64>,
    /// `copy_us` divided by the operation's time: median over the rounds. `None` unless the row is
    /// an all-reduce or a redistribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_bound_share: Option<f64>,
    /// Time of the same copy in the pieces of the redistribution, in microseconds. `None` unless
    /// the row is a redistribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strided_copy_us: Option<f64>,
    /// Time of backend `open-mpi` divided by this row's: median over the rounds. `None` in rows of
    /// that backend, and if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup_over_open_mpi: Option<f64>,
}

impl CollRow {
    /// Returns the collective, its size and its median time for the fit of a link model. `None` for
    /// a redistribution, whose time includes that of packing.
    #[must_use]
    pub fn measurement(&self) -> Option<Measurement> {
        let CollOperation::Collective(collective) = self.op else { return None };
        // The fit reports an invalid time.
        let time = Duration::try_from_secs_f64(self.time_us / 1e6).unwrap_or_default();
        Some(Measurement { collective, ranks: self.ranks, bytes: self.bytes, time })
    }
}

impl CollReport {
    /// Creates a report of these rows.
    #[must_use]
    pub fn new(machine: Machine, rows: Vec<CollRow>) -> Self {
        Self { schema: SCHEMA.to_owned(), machine, rows }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Bad input, with the file and the position in it, if the file cannot be read, has another
    /// schema, or has a field that is invalid or unknown.
    pub fn load(path: impl AsRef<Path>) -> anyhow::Result<Self> {
        report_file::load(path.as_ref(), SCHEMA)
    }

    /// Returns the report as indented JSON, the content of its file.
    #[must_use]
    pub fn to_json(&self) -> String {
        report_file::to_json(self)
    }
}

fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let us = f64::deserialize(from)?;
    if us > 0.0 && us <= MAX_TIME_US {
        return Ok(us);
    }
    let expected = format!("expected a time above 0, of at most {MAX_TIME_US:e} us (11 days), got {us:e}");
    Err(de::Error::custom(expected))
}
