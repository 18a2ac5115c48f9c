//! Rows of times in JSON documents: profiles and journals of the profiler. Times are in
//! microseconds. `mad` is the median absolute deviation of the repeats; `update` is the optimiser
//! step.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::table::{MAX_TIME, invalid};
use crate::{
    BatchSpread, BatchTime, LayerProfile, LayerTime, NetworkSpread, NetworkTime, ProfileError, Spread,
};

/// JSON form of a [`LayerProfile`]: the times of one layer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayerDocument {
    name: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    structure: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    update_us: Option<Microseconds>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    update_mad_us: Option<Microseconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    update_outliers: Option<usize>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    update_unsteady: bool,
    times: Vec<BatchDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchDocument {
    batch: usize,
    forward_us: Microseconds,
    backward_us: Microseconds,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    forward_mad_us: Option<Microseconds>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    backward_mad_us: Option<Microseconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forward_outliers: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backward_outliers: Option<usize>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forward_unsteady: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    backward_unsteady: bool,
}

/// JSON form of a [`NetworkTime`]: the times of the whole network at one batch size.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkDocument {
    batch: usize,
    forward_us: Microseconds,
    backward_us: Microseconds,
    update_us: Microseconds,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    forward_mad_us: Option<Microseconds>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    backward_mad_us: Option<Microseconds>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    update_mad_us: Option<Microseconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forward_outliers: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backward_outliers: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    update_outliers: Option<usize>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forward_unsteady: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    backward_unsteady: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    update_unsteady: bool,
    /// Sum of the layers' times, each measured alone, at the same batch size. It follows from the
    /// other rows and is checked against them. `None` if it was not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sum_of_layers: Option<SumDocument>,
}

/// JSON form of the sum of the layers' times at one batch size.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SumDocument {
    #[serde(rename = "forward_us")]
    forward: Microseconds,
    #[serde(rename = "backward_us")]
    backward: Microseconds,
    #[serde(rename = "update_us")]
    update: Microseconds,
}

/// Duration, represented as a number of microseconds in JSON, with a resolution of 1 ns.
#[derive(Clone, Copy)]
struct Microseconds(Duration);

impl Serialize for Microseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_nanos() as f64 / 1e3)
    }
}

impl<'de> Deserialize<'de> for Microseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let duration = Duration::try_from_secs_f64(value / 1e6).map_err(|_| {
            D::Error::custom(format!("expected a time in microseconds, not negative, found {value}"))
        })?;
        if duration > MAX_TIME {
            let expected = "expected at most 1e12 us (11 days): check the unit";
            return Err(D::Error::custom(format!("{value:e} us, {expected}")));
        }
        Ok(Self(duration))
    }
}

/// Reads an optional time. `null`, as which some programs write a number that is not finite, is an
/// error and not an omitted field.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Microseconds>, D::Error> {
    Microseconds::deserialize(deserializer).map(Some)
}

/// Fields of a phase's spread: deviation, number of outliers, and whether the times were still
/// unstable at the end of the warm-up.
type SpreadFields = (Option<Microseconds>, Option<usize>, bool);

fn fields(spread: Option<Spread>) -> SpreadFields {
    match spread {
        Some(spread) => (Some(Microseconds(spread.deviation)), spread.outliers, spread.warm_up_unstable),
        None => (None, None, false),
    }
}

/// Returns the spread of a phase from its fields, if they are present.
fn spread(path: &str, phase: &str, fields: SpreadFields) -> Result<Option<Spread>, ProfileError> {
    let (deviation, outliers, unsteady) = fields;
    match deviation {
        Some(Microseconds(deviation)) => Ok(Some(Spread { deviation, outliers, warm_up_unstable: unsteady })),
        None if outliers.is_none() && !unsteady => Ok(None),
        None => {
            let found = if unsteady { "unsteady" } else { "outliers" };
            Err(invalid(path, format!("expected `{phase}_mad_us` beside `{phase}_{found}`")))
        }
    }
}

impl BatchDocument {
    fn new(row: &BatchTime) -> Self {
        let (forward_mad_us, forward_outliers, forward_unsteady) = fields(row.spread.map(|all| all.forward));
        let (backward_mad_us, backward_outliers, backward_unsteady) =
            fields(row.spread.map(|all| all.backward));
        Self {
            batch: row.batch,
            forward_us: Microseconds(row.forward),
            backward_us: Microseconds(row.backward),
            forward_mad_us,
            backward_mad_us,
            forward_outliers,
            backward_outliers,
            forward_unsteady,
            backward_unsteady,
        }
    }

    fn into_row(self, path: &str) -> Result<BatchTime, ProfileError> {
        let forward = (self.forward_mad_us, self.forward_outliers, self.forward_unsteady);
        let backward = (self.backward_mad_us, self.backward_outliers, self.backward_unsteady);
        let spread = match (spread(path, "forward", forward)?, spread(path, "backward", backward)?) {
            (None, None) => None,
            (Some(forward), Some(backward)) => Some(BatchSpread { forward, backward }),
            _ => {
                return Err(invalid(path, "expected both or none of `forward_mad_us` and `backward_mad_us`"));
            }
        };
        Ok(BatchTime { batch: self.batch, forward: self.forward_us.0, backward: self.backward_us.0, spread })
    }
}

impl NetworkDocument {
    /// Converts a row to its JSON form.
    pub(crate) fn new(row: &NetworkTime) -> Self {
        let (forward_mad_us, forward_outliers, forward_unsteady) = fields(row.spread.map(|all| all.forward));
        let (backward_mad_us, backward_outliers, backward_unsteady) =
            fields(row.spread.map(|all| all.backward));
        let (update_mad_us, update_outliers, update_unsteady) = fields(row.spread.map(|all| all.update));
        Self {
            batch: row.batch,
            forward_us: Microseconds(row.time.forward),
            backward_us: Microseconds(row.time.backward),
            update_us: Microseconds(row.time.update),
            forward_mad_us,
            backward_mad_us,
            update_mad_us,
            forward_outliers,
            backward_outliers,
            update_outliers,
            forward_unsteady,
            backward_unsteady,
            update_unsteady,
            sum_of_layers: None,
        }
    }

    /// Converts to a row. `path` is the path of this object in the document.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] with that path if some deviations of the row are missing and
    /// others are not, or if the outliers or the stability of a phase are given without its
    /// deviation.
    pub(crate) fn into_row(self, path: &str) -> Result<NetworkTime, ProfileError> {
        let forward = (self.forward_mad_us, self.forward_outliers, self.forward_unsteady);
        let backward = (self.backward_mad_us, self.backward_outliers, self.backward_unsteady);
        let update = (self.update_mad_us, self.update_outliers, self.update_unsteady);
        let spreads = (
            spread(path, "forward", forward)?,
            spread(path, "backward", backward)?,
            spread(path, "update", update)?,
        );
        let spread = match spreads {
            (None, None, None) => None,
            (Some(forward), Some(backward), Some(update)) => {
                Some(NetworkSpread { forward, backward, update })
            }
            _ => {
                let problem =
                    "expected all or none of `forward_mad_us`, `backward_mad_us` and `update_mad_us`";
                return Err(invalid(path, problem));
            }
        };
        let time =
            LayerTime { forward: self.forward_us.0, backward: self.backward_us.0, update: self.update_us.0 };
        Ok(NetworkTime { batch: self.batch, time, spread })
    }
}

impl SumDocument {
    /// Converts a sum to its JSON form.
    pub(crate) fn new(sum: LayerTime) -> Self {
        Self {
            forward: Microseconds(sum.forward),
            backward: Microseconds(sum.backward),
            update: Microseconds(sum.update),
        }
    }

    /// Checks that these are the given sums, to a relative error of one millionth. `path` is the
    /// path of this object in the document.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] with the path of the first sum that differs.
    pub(crate) fn check(&self, path: &str, sum: LayerTime) -> Result<(), ProfileError> {
        let pairs = [
            ("forward_us", self.forward.0, sum.forward),
            ("backward_us", self.backward.0, sum.backward),
            ("update_us", self.update.0, sum.update),
        ];
        for (field, found, expected) in pairs {
            if found.abs_diff(expected) > expected / 1_000_000 {
                let problem = format!(
                    "expected {} us, the sum of the layers' times, found {} us",
                    expected.as_nanos() as f64 / 1e3,
                    found.as_nanos() as f64 / 1e3
                );
                return Err(invalid(format!("{path}.{field}"), problem));
            }
        }
        Ok(())
    }
}

impl LayerDocument {
    /// Converts a row to its JSON form.
    pub(crate) fn new(row: &LayerProfile) -> Self {
        let (update_mad_us, update_outliers, update_unsteady) = fields(row.update_spread);
        Self {
            name: row.name.clone(),
            kind: row.kind.clone(),
            structure: row.structure.clone(),
            update_us: row.update.map(Microseconds),
            update_mad_us,
            update_outliers,
            update_unsteady,
            times: row.times.iter().map(BatchDocument::new).collect(),
        }
    }

    /// Converts to a row. `path` is the path of this object in the document.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] with the path of the object at fault: it has the outliers or the
    /// stability of a phase without its deviation, the deviation of the optimiser step without its
    /// time, or the deviation of only one of the forward and backward passes.
    pub(crate) fn into_row(self, path: &str) -> Result<LayerProfile, ProfileError> {
        let update = (self.update_mad_us, self.update_outliers, self.update_unsteady);
        let update_spread = spread(path, "update", update)?;
        if self.update_us.is_none() && update_spread.is_some() {
            return Err(invalid(path, "expected `update_us` beside `update_mad_us`"));
        }
        let rows = self.times.into_iter().enumerate();
        let times = rows.map(|(i, row)| row.into_row(&format!("{path}.times[{i}]")));
        Ok(LayerProfile {
            name: self.name,
            kind: self.kind,
            structure: self.structure,
            update: self.update_us.map(|update| update.0),
            update_spread,
            times: times.collect::<Result<_, _>>()?,
        })
    }
}
