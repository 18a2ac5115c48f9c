use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the times of a measured table were measured: the conditions under which a measurement can be repeated.
///
/// The device's name is the [table's](crate::ProfileTable::device).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurementConditions {
    /// The version of this crate that measured, such as `0.1.0`.
    pub profiler: String,
    /// The libraries that did the work, by name, with their versions.
    pub libraries: BTreeMap<String, String>,
    /// The device's clock in MHz when the measurement began, where the system tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<u32>,
    /// The number format of the arithmetic, such as `f32`.
    pub precision: String,
    /// How often each time was measured.
    pub repeats: usize,
}

impl MeasurementConditions {
    /// The version of this crate, which [`profiler`](Self::profiler) is for a table that it measures.
    pub const PROFILER: &'static str = env!("CARGO_PKG_VERSION");

    /// What did the work, and in which precision, such as `f32; layer-engine 0.1.0; vector instructions AVX2`.
    #[must_use]
    pub fn engine(&self) -> String {
        let libraries = self.libraries.iter().map(|(library, version)| format!("{library} {version}"));
        std::iter::once(self.precision.clone()).chain(libraries).collect::<Vec<_>>().join("; ")
    }

    /// Whether this version of the crate measures the same things in the same way: whether the versions are compatible in
    /// the sense of semantic versioning.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        line(&self.profiler) == line(Self::PROFILER)
    }
}

/// The part of a version that compatible versions share: `0.1` of `0.1.7`, `2` of `2.3.4`.
fn line(version: &str) -> Vec<&str> {
    let mut parts = version.split('.');
    match parts.next() {
        Some("0") => std::iter::once("0").chain(parts.next()).collect(),
        major => major.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatible_versions_share_their_first_number_that_is_not_zero() {
        assert_eq!(line("0.1.0"), line("0.1.9"));
        assert_ne!(line("0.1.0"), line("0.2.0"));
        assert_eq!(line("1.2.0"), line("1.9.3"));
        assert_ne!(line("1.0.0"), line("2.0.0"));
        assert_ne!(line("0.1.0"), line("1.1.0"));
        assert_ne!(line(""), line("0.1.0"));
    }
}
