//! Fit of a link model to measured times of operations.

use std::time::Duration;

use super::least_squares::non_negative;
use super::{CollectiveKind, Level, LinkModel, Steps};
use crate::{Error, Result};

/// Measured time of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// Measured operation.
    pub collective: CollectiveKind,
    /// Number of ranks in the group.
    pub ranks: usize,
    /// Size of the message in bytes, counted as documented for the [`CollectiveKind`].
    pub bytes: u64,
    /// Time from start to completion of one operation. Not zero.
    pub time: Duration,
}

/// A [`LinkModel`] fitted to measurements, with its errors.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// Fitted model. Its relative error is [`max_error`](Fit::max_error).
    pub link: LinkModel,
    /// Relative error of each measurement, in their order: modelled time / measured time - 1.
    pub relative_errors: Vec<f64>,
}

impl Fit {
    /// Median of the absolute relative errors: 0.1 is 10%. Zero without measurements.
    #[must_use]
    pub fn median_error(&self) -> f64 {
        let magnitudes = self.sorted_magnitudes();
        let at = |place: usize| magnitudes.get(place).copied().unwrap_or(0.0);
        f64::midpoint(at(magnitudes.len().saturating_sub(1) / 2), at(magnitudes.len() / 2))
    }

    /// Maximum of the absolute relative errors: 0.1 is 10%. Zero without measurements.
    #[must_use]
    pub fn max_error(&self) -> f64 {
        self.sorted_magnitudes().last().copied().unwrap_or(0.0)
    }

    fn sorted_magnitudes(&self) -> Vec<f64> {
        let mut magnitudes: Vec<f64> = self.relative_errors.iter().map(|error| error.abs()).collect();
        magnitudes.sort_by(f64::total_cmp);
        magnitudes
    }
}

/// Number of least-squares iterations. Weights and algorithms settle in a few of them, or alternate
/// between nearly equal solutions.
const ITERATIONS: usize = 30;

impl LinkModel {
    /// Fits startup time, latency and bandwidth of a link model of one level, called `name`.
    ///
    /// The fit minimizes the sum of the squared logarithms of modelled / measured time, over
    /// non-negative parameters: half of the time is as wrong as twice the time.
    ///
    /// Startup time and latency are distinguished by operations with different numbers of steps,
    /// that is by groups of different sizes. Both are distinguished from the bandwidth by different
    /// numbers of bytes. The algorithm of an operation depends on the parameters, and so do the
    /// weights that turn errors into logarithms: a linear least-squares problem is solved 30 times,
    /// each time with the algorithms and weights of the previous solution. The best solution is
    /// returned. O(measurements).
    ///
    /// # Errors
    /// [`Error::UnfitMeasurements`] if there are fewer than three measurements, if they are too
    /// similar, or if one of them took no time.
    pub fn fit(name: &str, measurements: &[Measurement]) -> Result<Fit> {
        let mut level = first_guess(measurements)?;
        let mut weights = vec![1.0; measurements.len()];
        let mut best: Option<(f64, Fit)> = None;
        for _ in 0..ITERATIONS {
            level = solve(&level, measurements, &weights)?;
            let link = LinkModel::of(name, level.clone());
            let relative_errors: Vec<f64> = measurements.iter().map(|m| relative_error(&link, m)).collect();
            weights = relative_errors.iter().map(|&error| weight(error)).collect();
            let logarithms = relative_errors.iter().zip(&weights).map(|(error, weight)| error * weight);
            let squares = logarithms.map(|logarithm| logarithm * logarithm).sum::<f64>();
            if best.as_ref().is_none_or(|(min_squares, _)| squares < *min_squares) {
                best = Some((squares, Fit { link, relative_errors }));
            }
        }
        let (_, fit) = best.ok_or_else(|| unfit("there are none"))?;
        let error = fit.max_error();
        Ok(Fit { link: fit.link.with_relative_error(error), ..fit })
    }
}

/// Factor from a relative error to the logarithm of `1 + error`.
fn weight(error: f64) -> f64 {
    // The first iteration may model a time of zero, whose logarithm is infinite.
    let error = error.max(-0.999);
    if error.abs() < 1e-9 { 1.0 } else { error.ln_1p() / error }
}

/// Checks the measurements and returns parameters of the right magnitude, which select the first
/// algorithms.
fn first_guess(measurements: &[Measurement]) -> Result<Level> {
    if measurements.len() < 3 {
        let reason = format!(
            "at least 3 are needed, for two group sizes and two message sizes, and there are {}",
            measurements.len()
        );
        return Err(unfit(&reason));
    }
    let times = measurements.iter().map(|m| m.time);
    let shortest = times.min().unwrap_or_default();
    if shortest.is_zero() {
        return Err(unfit("one took no time"));
    }
    let (first, others) = (&measurements[0], &measurements[1..]);
    if others.iter().all(|other| other.bytes == first.bytes) {
        return Err(unfit(&format!("all are of {} bytes: measure a second size", first.bytes)));
    }
    if others.iter().all(|other| (other.collective, other.ranks) == (first.collective, first.ranks)) {
        let (collective, ranks) = (first.collective, first.ranks);
        return Err(unfit(&format!(
            "all are of {collective} among {ranks} ranks: measure a second group size"
        )));
    }
    let rates = measurements.iter().map(|m| m.bytes as f64 / m.time.as_secs_f64());
    let bandwidth_bytes_per_s = rates.fold(f64::MIN_POSITIVE, f64::max);
    Ok(Level::new(shortest / 4, shortest / 4, bandwidth_bytes_per_s))
}

fn steps(level: &Level, measurement: &Measurement) -> Result<Steps> {
    let Measurement { collective, ranks, bytes, .. } = *measurement;
    level.steps(collective, level.members(ranks), bytes).ok_or_else(|| {
        unfit(&format!("one is of {collective} among fewer than two ranks, which costs nothing"))
    })
}

/// Solves for the parameters, with the algorithms that `level` selects.
fn solve(level: &Level, measurements: &[Measurement], weights: &[f64]) -> Result<Level> {
    let rows = measurements.iter().zip(weights).map(|(m, weight)| {
        let steps = steps(level, m)?;
        Ok(([1.0, steps.count, steps.bytes].map(|part| weight * part / m.time.as_secs_f64()), *weight))
    });
    let [startup, latency, time_per_byte] =
        non_negative(&rows.collect::<Result<Vec<_>>>()?).ok_or_else(|| {
            unfit(
                "startup, latency and bandwidth cannot be distinguished: measure more group sizes and \
                 message sizes",
            )
        })?;
    let is_time = |seconds| Duration::try_from_secs_f64(seconds).map_err(|error| unfit(&error.to_string()));
    let bandwidth_bytes_per_s = 1.0 / time_per_byte;
    if !bandwidth_bytes_per_s.is_finite() {
        return Err(unfit("times do not grow with the bytes: measure larger sizes"));
    }
    Ok(Level::new(is_time(startup)?, is_time(latency)?, bandwidth_bytes_per_s))
}

fn relative_error(link: &LinkModel, m: &Measurement) -> f64 {
    link.cost(m.collective, m.ranks, m.bytes).as_secs_f64() / m.time.as_secs_f64() - 1.0
}

fn unfit(reason: &str) -> Error {
    Error::UnfitMeasurements { reason: reason.to_owned() }
}
