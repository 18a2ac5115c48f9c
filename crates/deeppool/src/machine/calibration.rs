//! Calibration of predictions by earlier training runs on the same machine.

use std::time::Duration;

use collectives::LinkModel;
use layer_profile::ProfileTable;
use serde::{Deserialize, Serialize};

use super::observed::{ObservedCollective, ObservedTimes, median};
use crate::Error;
use crate::costs::Costs;
use crate::document::{document, parse};
use crate::program::{Op, Program};
use crate::timeline::Timeline;

/// Valid ratios of measured to predicted time.
const RATIOS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// Training runs on one machine, each with its prediction before and its measurement.
///
/// Two factors are the medians over all runs of the measured by the predicted time: that of layers,
/// and that of the transfers of collectives. They scale the layer times and the links of later
/// predictions. The error of a prediction from earlier runs is that on a run to which nothing was
/// fitted.
///
/// A JSON document has the format `deeppool/calibration/v1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    schema: Schema,
    runs: Vec<CalibrationRun>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Schema {
    #[serde(rename = "deeppool/calibration/v1")]
    V1,
}

/// A training run of a [`Calibration`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationRun {
    /// Name of the network.
    pub model: String,
    /// Global batch, in samples.
    pub batch: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Iteration time in microseconds, as predicted without any run.
    pub uncalibrated_us: f64,
    /// Iteration time in microseconds, as predicted from the earlier runs.
    pub predicted_us: f64,
    /// Median of the measured iteration times, in microseconds.
    pub measured_us: f64,
    /// Ratios of the measured to the uncalibrated times.
    pub ratios: CostRatios,
}

/// Ratios of times to others: 2 is twice the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostRatios {
    /// Ratio of the times of layers.
    pub layers: f64,
    /// Ratio of the times of transfers. `None` without transfers.
    pub transfers: Option<f64>,
}

/// Sizes of errors of iteration times that were predicted from earlier runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrationErrors {
    /// Number of predicted runs.
    pub runs: usize,
    /// Median of the errors' sizes: 0.1 is 10%.
    pub median: f64,
    /// Median of the sizes without calibration, of the same runs.
    pub uncalibrated_median: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { schema: Schema::V1, runs: Vec::new() }
    }
}

impl Calibration {
    /// Reads a JSON document of the format `deeppool/calibration/v1`.
    ///
    /// # Errors
    /// [`Error::Document`] with the path of a field that is missing, unknown or impossible.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let calibration: Self = parse(text)?;
        for (index, run) in calibration.runs.iter().enumerate() {
            run.check(index)?;
        }
        Ok(calibration)
    }

    /// Returns the JSON document, with runs in the order in which they were added.
    ///
    /// # Errors
    /// [`Error::Document`] if it cannot be written.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self).map_err(|error| document(".", error.to_string()))
    }

    /// Returns the runs in the order in which they were added.
    #[must_use]
    pub fn runs(&self) -> &[CalibrationRun] {
        &self.runs
    }

    /// Adds a run.
    ///
    /// # Errors
    /// [`Error::Document`] if a time is not positive and finite, or a ratio is not from 1e-6 to
    /// 1e6.
    pub fn add(&mut self, run: CalibrationRun) -> Result<(), Error> {
        run.check(self.runs.len())?;
        self.runs.push(run);
        Ok(())
    }

    /// Returns the medians of the runs' ratios; 1 without runs.
    #[must_use]
    pub fn factors(&self) -> CostRatios {
        let layers = median_ratio(self.runs.iter().map(|run| run.ratios.layers).collect());
        let transfers = median_ratio(self.runs.iter().filter_map(|run| run.ratios.transfers).collect());
        CostRatios { layers: layers.unwrap_or(1.0), transfers: Some(transfers.unwrap_or(1.0)) }
    }

    /// Scales layer times and links by the [factors](Self::factors).
    ///
    /// # Errors
    /// [`Error::Profile`] or [`Error::Collectives`] if a product is out of range.
    pub fn scaled(
        &self,
        profile: &ProfileTable,
        link: LinkModel,
    ) -> Result<(ProfileTable, LinkModel), Error> {
        let factors = self.factors();
        let link = link.with_bandwidth_scaled(1.0 / factors.transfers.unwrap_or(1.0))?;
        Ok((profile.scaled(factors.layers)?, link))
    }

    /// Returns the errors of the predictions from earlier runs, that is of all runs but the first.
    /// `None` if there are none.
    #[must_use]
    pub fn errors(&self) -> Option<CalibrationErrors> {
        let predicted = self.runs.get(1..)?;
        let sizes = |of: fn(&CalibrationRun) -> f64| {
            median_ratio(predicted.iter().map(|run| (of(run) / run.measured_us - 1.0).abs()).collect())
        };
        Some(CalibrationErrors {
            runs: predicted.len(),
            median: sizes(|run| run.predicted_us)?,
            uncalibrated_median: sizes(|run| run.uncalibrated_us)?,
        })
    }
}

impl CalibrationRun {
    fn check(&self, index: usize) -> Result<(), Error> {
        let problem = |field: &str, expected: &str, found: f64| {
            Err(document(format!("runs[{index}].{field}"), format!("expected {expected}, found {found}")))
        };
        let times = [
            ("uncalibrated_us", self.uncalibrated_us),
            ("predicted_us", self.predicted_us),
            ("measured_us", self.measured_us),
        ];
        if let Some((field, time)) = times.into_iter().find(|(_, time)| !(*time > 0.0 && time.is_finite())) {
            return problem(field, "a time above 0", time);
        }
        let ratios = [("layers", Some(self.ratios.layers)), ("transfers", self.ratios.transfers)];
        for (field, ratio) in ratios {
            if let Some(ratio) = ratio.filter(|ratio| !RATIOS.contains(ratio)) {
                return problem(&format!("ratios.{field}"), "a ratio from 1e-6 to 1e6", ratio);
            }
        }
        Ok(())
    }
}

impl CostRatios {
    /// Returns the ratios of the times in a measured timeline of a program to those of `costs`: of
    /// the compute steps of the rank that computes longest, and of all transfers. Measured ones are
    /// medians over the iterations. All ranks of a layer are assumed to compute at once. Where
    /// ranks are cores of one machine, a transfer does not take the time in which a rank computes.
    /// `None` if no step takes time.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub fn measured(
        program: &Program,
        costs: &Costs<'_>,
        measured: &Timeline,
    ) -> Result<Option<Self>, Error> {
        let observed = ObservedTimes::new(program, measured);
        let of_ranks = program.ranks.iter().zip(costs.step_times(program)?).map(|(rank, times)| {
            let steps = rank.steps.iter().zip(times);
            let computes = steps.filter(|(step, _)| !matches!(step.op, Op::Collective(_)));
            computes.map(|(_, time)| time).sum::<Duration>()
        });
        let layers = ratio(median(observed.longest_computing()), of_ranks.max().unwrap_or_default());
        let transfers = observed.collectives().into_iter();
        let takes = match costs.profile().contended() {
            Some(_) => |of: &ObservedCollective| of.transfer,
            None => |of: &ObservedCollective| of.elapsed,
        };
        let transfers = transfers.map(|times| median(times.iter().map(takes).collect()));
        let expected = program.collectives.iter().map(|collective| costs.collective_time(collective)).sum();
        let transfers = ratio(transfers.sum(), expected);
        Ok(layers.map(|layers| Self { layers, transfers }))
    }
}

fn ratio(measured: Duration, expected: Duration) -> Option<f64> {
    let ratio = measured.as_secs_f64() / expected.as_secs_f64();
    RATIOS.contains(&ratio).then_some(ratio)
}

/// Returns the median: the mean of the two middle values of an even number. `None` of none.
fn median_ratio(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}
