//! Conditions under which a table was measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Conditions under which a table was measured, as needed to repeat the measurement. The device is
/// in [`ProfileTable::device`](crate::ProfileTable::device).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurementConditions {
    /// Version of this crate that made the measurement, such as `0.1.0`.
    pub profiler: String,
    /// Versions of the libraries that did the work, by name of the library.
    #[serde(deserialize_with = "crate::unique_fields::unique_fields")]
    pub libraries: BTreeMap<String, String>,
    /// Clock rate of the device in MHz at the start of the measurement. `None` if the system does
    /// not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<u32>,
    /// Number format of the arithmetic, such as `f32`.
    pub precision: String,
    /// Number of repeats of each measurement, after the warm-up.
    pub repeats: usize,
}

impl MeasurementConditions {
    /// Version of this crate: the value of [`profiler`](Self::profiler) in tables that it measures.
    pub const PROFILER: &'static str = env!("CARGO_PKG_VERSION");

    /// Returns the precision and the libraries with their versions, such as
    /// `f32; layer-engine 0.1.0; vector instructions AVX2`.
    #[must_use]
    pub fn engine(&self) -> String {
        let libraries = self.libraries.iter().map(|(library, version)| format!("{library} {version}"));
        std::iter::once(self.precision.clone()).chain(libraries).collect::<Vec<_>>().join("; ")
    }

    /// Returns whether the measurement is comparable with those of this version of the crate:
    /// whether the two versions are compatible by semantic versioning.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        compatible_prefix(&self.profiler) == compatible_prefix(Self::PROFILER)
    }
}

/// Returns the part of a version that compatible versions share: `0.1` of `0.1.7`, `2` of `2.3.4`.
fn compatible_prefix(version: &str) -> Vec<&str> {
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
    fn compatible_versions_share_their_first_nonzero_number() {
        assert_eq!(compatible_prefix("0.1.0"), compatible_prefix("0.1.9"));
        assert_ne!(compatible_prefix("0.1.0"), compatible_prefix("0.2.0"));
        assert_eq!(compatible_prefix("1.2.0"), compatible_prefix("1.9.3"));
        assert_ne!(compatible_prefix("1.0.0"), compatible_prefix("2.0.0"));
        assert_ne!(compatible_prefix("0.1.0"), compatible_prefix("1.1.0"));
        assert_ne!(compatible_prefix(""), compatible_prefix("0.1.0"));
    }
}
