//! The file that `coll-bench` writes.

use std::path::Path;
use std::time::Duration;

use collectives::{CollectiveKind, Measurement};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::report_file;

/// The format's name and version.
const SCHEMA: &str = "deeppool/coll-bench/v1";

/// Measured collectives, as `coll-bench --json` prints them and `coll-bench fit` reads them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollReport {
    schema: String,
    /// Where it was measured.
    pub machine: Machine,
    /// One for each operation, group size, size, backend and way of waiting.
    pub rows: Vec<CollRow>,
}

/// What the ranks ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores that the ranks may use.
    pub cores: usize,
}

/// How long an operation took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollRow {
    /// Such as `threads` or `open-mpi`.
    pub backend: String,
    /// How its ranks waited: `spin`, `yield` or `park`; nothing where the library decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// The operation.
    pub op: CollectiveKind,
    /// Ranks in the group.
    pub ranks: usize,
    /// See [`CollectiveKind`]; a send is one way of a ping-pong.
    pub bytes: u64,
    /// The median over all samples of the slowest rank's mean time, in microseconds.
    #[serde(deserialize_with = "positive")]
    pub time_us: f64,
    /// The tenth percentile over the samples.
    pub time_p10_us: f64,
    /// The ninetieth percentile over the samples.
    pub time_p90_us: f64,
    /// `bytes` by `time_us` times [`CollectiveKind::bus_factor`], in 10^9 bytes a second; nothing for a barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_bandwidth_gb_s: Option<f64>,
    /// Samples taken, over all rounds.
    pub samples: usize,
    /// Operations timed, over all samples.
    pub iterations: u64,
    /// For an all-reduce: how long it takes all ranks at once to copy `bytes` each from one buffer to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_us: Option<f64>,
    /// That time by the operation's: the median over the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_bound_share: Option<f64>,
    /// The time of backend `open-mpi` by this row's: the median over the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup_over_open_mpi: Option<f64>,
}

impl CollRow {
    /// What a link is fitted to.
    #[must_use]
    pub fn measurement(&self) -> Measurement {
        // A time that is not valid is reported by the fit.
        let time = Duration::try_from_secs_f64(self.time_us / 1e6).unwrap_or_default();
        Measurement { collective: self.op, ranks: self.ranks, bytes: self.bytes, time }
    }
}

impl CollReport {
    /// A report of these rows.
    #[must_use]
    pub fn new(machine: Machine, rows: Vec<CollRow>) -> Self {
        Self { schema: SCHEMA.to_owned(), machine, rows }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When there is none or it holds something else: it names the file and the place in it.
    pub fn load(path: impl AsRef<Path>) -> anyhow::Result<Self> {
        report_file::load(path.as_ref(), SCHEMA)
    }

    /// The file's content.
    #[must_use]
    pub fn to_json(&self) -> String {
        report_file::to_json(self)
    }
}

fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let us = f64::deserialize(from)?;
    if us > 0.0 { Ok(us) } else { Err(de::Error::custom(format!("expected a time above 0, got {us}"))) }
}
