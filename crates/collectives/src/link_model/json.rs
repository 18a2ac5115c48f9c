//! File format of link models.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::level::Algorithms;
use super::protocol::{Protocol, Variant};
use super::{Algorithm, Level, LinkModel};
use crate::{Error, Result};

/// Name and version of the format.
const SCHEMA: &str = "deeppool/link/v1";
/// Maximum startup time and latency of a level in microseconds (about 17 minutes).
const MAX_TIME_US: f64 = 1e9;
/// Bandwidths of a level in bytes per second that are plausible.
const BANDWIDTHS: RangeInclusive<f64> = 1e6..=1e15;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    schema: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    relative_error: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pipelined: bool,
    levels: Vec<LevelFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranks: Option<usize>,
    #[serde(default = "default_adapters", skip_serializing_if = "is_default_adapters")]
    adapters: usize,
    bandwidth_bytes_per_s: f64,
    #[serde(default = "default_achieved", skip_serializing_if = "is_default_achieved")]
    achieved: f64,
    startup_us: f64,
    latency_us: f64,
    #[serde(default = "default_algorithms", skip_serializing_if = "is_default_algorithms")]
    algorithms: Vec<AlgorithmName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    achieved_by_members: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    variants: Vec<VariantFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantFile {
    protocol: ProtocolName,
    algorithm: AlgorithmName,
    startup_us: f64,
    latency_us: f64,
    #[serde(default = "default_achieved", skip_serializing_if = "is_default_achieved")]
    achieved: f64,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AlgorithmName {
    Ring,
    Tree,
    Switch,
}

impl From<Algorithm> for AlgorithmName {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Ring => Self::Ring,
            Algorithm::Tree => Self::Tree,
            Algorithm::Switch => Self::Switch,
        }
    }
}

impl From<AlgorithmName> for Algorithm {
    fn from(name: AlgorithmName) -> Self {
        match name {
            AlgorithmName::Ring => Self::Ring,
            AlgorithmName::Tree => Self::Tree,
            AlgorithmName::Switch => Self::Switch,
        }
    }
}

/// Names of the protocols in NCCL.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProtocolName {
    Ll,
    Ll128,
    Simple,
}

impl From<Protocol> for ProtocolName {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::LowLatency => Self::Ll,
            Protocol::LowLatency128 => Self::Ll128,
            Protocol::Simple => Self::Simple,
        }
    }
}

impl From<ProtocolName> for Protocol {
    fn from(name: ProtocolName) -> Self {
        match name {
            ProtocolName::Ll => Self::LowLatency,
            ProtocolName::Ll128 => Self::LowLatency128,
            ProtocolName::Simple => Self::Simple,
        }
    }
}

impl LinkModel {
    /// Reads a JSON document of the format `deeppool/link/v1`:
    ///
    /// ```
    /// # use collectives::LinkModel;
    /// let cluster = LinkModel::from_json(r#"{
    ///   "schema": "deeppool/link/v1", "name": "my-cluster", "relative_error": 0.1,
    ///   "levels": [
    ///     {"ranks": 8, "bandwidth_bytes_per_s": 300e9, "achieved": 0.775,
    ///      "startup_us": 10, "latency_us": 1.5},
    ///     {"ranks": 64, "adapters": 4, "bandwidth_bytes_per_s": 25e9,
    ///      "startup_us": 10, "latency_us": 2.5, "algorithms": ["ring", "tree"]}
    ///   ]
    /// }"#)?;
    /// assert_eq!(cluster.max_ranks(), Some(64));
    /// # Ok::<(), collectives::Error>(())
    /// ```
    ///
    /// Levels are listed from the innermost to the outermost:
    ///
    /// - `ranks`: number of ranks that the level connects, including those of the inner levels.
    ///   Optional on the last level: any number.
    /// - `adapters`: number of adapters of each member, for example of each host on the second
    ///   level ([`with_adapters`](Self::with_adapters)). Default 1, and always 1 on the first
    ///   level.
    /// - `bandwidth_bytes_per_s`: bandwidth of an adapter in one direction; with `achieved`, 1e6 to
    ///   1e15.
    /// - `achieved`: fraction of the bandwidth that operations achieve. Default 1.
    /// - `startup_us`: time paid once an operation.
    /// - `latency_us`: time paid once a step.
    /// - `algorithms`: algorithms from which an all-reduce chooses: `ring`, `tree` or `switch`.
    ///   Default: ring and tree. With variants: all of their algorithms.
    /// - `achieved_by_members`: fractions of the bandwidth that groups of 2, 3, ... members
    ///   achieve. The last one is that of all larger groups. Default: 1.
    /// - `variants`: algorithms with protocols of NCCL, of which an operation uses the fastest one.
    ///   Each has a `protocol` (`ll`, `ll128` or `simple`), an `algorithm`, `startup_us`,
    ///   `latency_us` and `achieved`, the fraction of the bandwidth. An all-reduce takes
    ///   `startup_us`, plus `latency_us` for each of the `k - 1` hops through a ring of `k` members
    ///   or of the `2 ceil(log2 k)` hops up and down a tree, plus the transfer. Other collectives
    ///   use rings and no switch. Messages and all-to-alls pay one hop, and a redistribution the
    ///   level's latency for every further message. Barriers use the level's startup time and
    ///   latency. An operation on several levels at once uses one protocol on all of them.
    ///   Default: none, that is the level's startup time, latency and algorithms.
    ///
    /// Fields of the model:
    ///
    /// - `pipelined`: whether operations use several levels at once
    ///   ([`pipelined`](Self::pipelined)). Default false.
    /// - `relative_error`: maximum relative error of the modelled times, if known.
    ///
    /// # Errors
    /// [`Error::BadLinkDocument`] with the position in the document.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::parse(text).map_err(|reason| Error::BadLinkDocument { reason })
    }

    /// Returns the JSON document that [`from_json`](Self::from_json) reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let level = |level: &Level| LevelFile {
            ranks: level.ranks,
            adapters: level.adapters,
            bandwidth_bytes_per_s: level.bandwidth_bytes_per_s,
            achieved: 1.0,
            startup_us: micros(level.startup),
            latency_us: micros(level.latency),
            algorithms: match level.algorithms {
                Algorithms::Both => default_algorithms(),
                Algorithms::Only(algorithm) => vec![algorithm.into()],
            },
            achieved_by_members: level.by_members.clone(),
            variants: level.variants.iter().map(VariantFile::from).collect(),
        };
        let file = LinkFile {
            schema: SCHEMA.into(),
            name: self.name.clone(),
            relative_error: self.error,
            pipelined: self.pipelined,
            levels: self.levels.iter().map(level).collect(),
        };
        // Serialization fails only for maps with other keys than strings and for failing writers.
        serde_json::to_string_pretty(&file).unwrap_or_default()
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let link = Self::parse_any(text)?;
        // Plans refer to link models by name, so a name must be unique.
        let built_in = Self::named(&link.name).map(|built_in| Self::parse_any(&built_in.to_json()));
        if built_in.is_ok_and(|built_in| built_in.as_ref() != Ok(&link)) {
            let name = &link.name;
            return Err(format!(
                "name: there is a built-in `{name}` with other figures: give it another name"
            ));
        }
        Ok(link)
    }

    fn parse_any(text: &str) -> std::result::Result<Self, String> {
        // A byte order mark, with which some editors begin a file, is no part of the JSON text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut json = serde_json::Deserializer::from_str(text);
        let file: LinkFile = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let (place, reason) = (error.path().to_string(), error.into_inner());
            if place == "." { reason.to_string() } else { format!("{place}: {reason}") }
        })?;
        json.end().map_err(|error| error.to_string())?;
        if file.schema != SCHEMA {
            return Err(format!("schema: expected {SCHEMA:?}, got {:?}", file.schema));
        }
        if file.name.trim().is_empty() {
            return Err("name: expected a name, got none".into());
        }
        if file.levels.is_empty() {
            return Err("levels: at least one is needed".into());
        }
        if let Some(error) = file.relative_error.filter(|error| !error.is_finite() || *error < 0.0) {
            return Err(format!("relative_error: expected a part such as 0.1, got {error}"));
        }
        let mut levels: Vec<Level> = Vec::new();
        for (index, level) in file.levels.iter().enumerate() {
            let inside = levels.last().map_or(Some(1), |level| level.ranks);
            let of_level = level.to_level(inside, index + 1 == file.levels.len());
            if index == 0 && level.adapters > 1 {
                return Err("levels[0].adapters: a rank uses one at a time: give its bandwidth".into());
            }
            levels.push(of_level.map_err(|(field, reason)| format!("levels[{index}].{field}: {reason}"))?);
        }
        Ok(Self { name: file.name, levels, pipelined: file.pipelined, error: file.relative_error })
    }
}

impl LevelFile {
    /// Returns the level around one that connects `inside` ranks, or the invalid field and the
    /// reason.
    fn to_level(
        &self,
        inside: Option<usize>,
        is_last: bool,
    ) -> std::result::Result<Level, (&'static str, String)> {
        match (self.ranks, inside) {
            (Some(0), _) => return Err(("ranks", "a level connects at least 1 rank, got 0".into())),
            (None, _) if !is_last => {
                return Err(("ranks", "only the last level may leave it out".into()));
            }
            (Some(ranks), Some(inside)) if ranks % inside != 0 => {
                let reason =
                    format!("expected a multiple of the {inside} ranks of the level inside, got {ranks}");
                return Err(("ranks", reason));
            }
            _ => {}
        }
        let bandwidth_bytes_per_s = self.bandwidth_bytes_per_s * self.achieved;
        check_achieved("achieved", self.achieved)?;
        for &achieved in &self.achieved_by_members {
            check_achieved("achieved_by_members", achieved)?;
        }
        if !(bandwidth_bytes_per_s > 0.0 && bandwidth_bytes_per_s.is_finite()) {
            let reason = format!("expected bytes a second above 0, got {}", self.bandwidth_bytes_per_s);
            return Err(("bandwidth_bytes_per_s", reason));
        }
        if !BANDWIDTHS.contains(&bandwidth_bytes_per_s) {
            let unit = match bandwidth_bytes_per_s {
                few if few < 1e3 => "gigabytes?",
                few if few < 1e6 => "megabytes?",
                _ => "bits, or a factor too many?",
            };
            let reason = format!("{:e} bytes/s: {unit} Expected 1e6 to 1e15", self.bandwidth_bytes_per_s);
            return Err(("bandwidth_bytes_per_s", reason));
        }
        if self.adapters == 0 {
            return Err(("adapters", "expected at least 1, got 0".into()));
        }
        let time = |field: &'static str, us: f64| Ok(Duration::from_secs_f64(check_us(field, us)? / 1e6));
        let algorithms = match self.algorithms[..] {
            [first, ..] if self.algorithms.iter().all(|name| *name == first) => {
                Algorithms::Only(first.into())
            }
            [_, ..] if self.algorithms.iter().all(|&name| Algorithm::from(name) != Algorithm::Switch) => {
                Algorithms::Both
            }
            _ => {
                let reason = "expected \"ring\", \"tree\", both of them, or \"switch\" alone";
                return Err(("algorithms", reason.into()));
            }
        };
        Ok(Level {
            ranks: self.ranks,
            startup: time("startup_us", self.startup_us)?,
            latency: time("latency_us", self.latency_us)?,
            bandwidth_bytes_per_s,
            adapters: self.adapters,
            algorithms,
            variants: self
                .variants
                .iter()
                .map(VariantFile::to_variant)
                .collect::<std::result::Result<_, _>>()?,
            by_members: self.achieved_by_members.clone(),
        })
    }
}

impl From<&Variant> for VariantFile {
    fn from(variant: &Variant) -> Self {
        Self {
            protocol: variant.protocol.into(),
            algorithm: variant.algorithm.into(),
            startup_us: variant.startup_s * 1e6,
            latency_us: variant.latency_s * 1e6,
            achieved: variant.achieved,
        }
    }
}

impl VariantFile {
    /// Returns the variant, or the invalid field of the level and the reason.
    fn to_variant(&self) -> std::result::Result<Variant, (&'static str, String)> {
        check_achieved("variants", self.achieved)?;
        Ok(Variant {
            protocol: self.protocol.into(),
            algorithm: self.algorithm.into(),
            startup_s: check_us("variants", self.startup_us)? / 1e6,
            latency_s: check_us("variants", self.latency_us)? / 1e6,
            achieved: self.achieved,
        })
    }
}

fn check_achieved(field: &'static str, achieved: f64) -> std::result::Result<(), (&'static str, String)> {
    if achieved > 0.0 && achieved <= 1.0 {
        return Ok(());
    }
    Err((field, format!("expected a part above 0 and at most 1, got {achieved}")))
}

fn check_us(field: &'static str, us: f64) -> std::result::Result<f64, (&'static str, String)> {
    if (0.0..=MAX_TIME_US).contains(&us) {
        return Ok(us);
    }
    Err((field, format!("expected microseconds from 0 to {MAX_TIME_US:e}, got {us}")))
}

/// Reads an optional number. `null`, as which some programs write a number that is not finite, is
/// an error and not an omitted field.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<f64>, D::Error> {
    f64::deserialize(deserializer).map(Some)
}

fn default_adapters() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is given by serde")]
fn is_default_adapters(adapters: &usize) -> bool {
    *adapters == 1
}

fn default_achieved() -> f64 {
    1.0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    clippy::float_cmp,
    reason = "the signature is given by serde; the value is exact"
)]
fn is_default_achieved(achieved: &f64) -> bool {
    *achieved == 1.0
}

fn default_algorithms() -> Vec<AlgorithmName> {
    vec![AlgorithmName::Ring, AlgorithmName::Tree]
}

fn is_default_algorithms(algorithms: &[AlgorithmName]) -> bool {
    algorithms.len() > 1
}
