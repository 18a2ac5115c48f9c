//! Fit of the virtual device to a GPU's measurements of the foreground alone.

use std::time::Duration;

use gpu_mux::{DeviceParameters, Jobs, SimulationOptions, Workload};

use super::report::MuxRow;
use super::row::times;
use crate::statistics::Distribution;

/// Values that are fitted to the foreground alone.
pub(crate) struct ForegroundFit {
    /// Duration of kernels on the GPU divided by their duration in the workload.
    pub(crate) kernel_time: f64,
    /// Standard deviation of the duration of a compute tasklet.
    pub(crate) jitter: Duration,
}

/// Range of the fitted duration of kernels.
const KERNEL_TIMES: (f64, f64) = (0.5, 2.0);
/// Number of bisections, after which the range is narrower than 1e-6.
const BISECTIONS: u32 = 21;
/// Number of iterations of a simulation without jitter. All are equal after the first few.
const EQUAL_ITERATIONS: usize = 5;
/// Jitter at which the spread of the iterations is simulated.
const PROBE: Duration = Duration::from_micros(1);
/// Number of simulated samples for the mean spread.
const SAMPLES: usize = 40;
/// Maximum number of iterations of a sample.
const MAX_SAMPLE: usize = 1_000;

/// Fits the duration of kernels to the mean of the rows' medians of the foreground alone, by
/// bisection, and then the jitter to the mean of the differences between their 99th percentiles and
/// medians. The spread of simulated iterations is proportional to the jitter.
///
/// # Errors
/// A message, if a row has an invalid time, or if the median needs kernels of less than half or
/// more than twice the duration in the workload.
pub(crate) fn fit(
    rows: &[MuxRow],
    workload: &Workload,
    parameters: DeviceParameters,
) -> Result<ForegroundFit, String> {
    let count = rows.len().max(1) as f64;
    let mean = |of: fn(&MuxRow) -> f64| rows.iter().map(of).sum::<f64>() / count;
    let median_us = mean(|row| row.foreground_alone_us);
    let spread_us = mean(|row| row.foreground_alone_p99_us - row.foreground_alone_us);
    if !median_us.is_finite() || !(0.0..=median_us).contains(&spread_us) {
        return Err(format!(
            "the foreground alone takes {median_us} us with a 99th percentile {spread_us} us above, \
             expected a time, and at most as much above"
        ));
    }
    let options =
        SimulationOptions::default().with_parameters(parameters).with_jobs(Jobs::Foreground).with_warm_up(5);
    let simulated = |kernel_time: f64, options: SimulationOptions| {
        let report = workload.clone().with_kernel_times(kernel_time).simulate(&options);
        report.map(|report| report.iterations).map_err(|error| error.to_string())
    };
    let median = |kernel_time: f64| -> Result<f64, String> {
        let iterations = simulated(kernel_time, options.with_iterations(EQUAL_ITERATIONS))?;
        Ok(distribution(&iterations)?.median())
    };
    let (mut low, mut high) = KERNEL_TIMES;
    if !(median(low)?..=median(high)?).contains(&median_us) {
        return Err(format!(
            "the foreground alone takes {median_us} us, for which kernels would take less than {low} or more \
             than {high} times as long as in the workload"
        ));
    }
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        (low, high) = if median(middle)? < median_us { (middle, high) } else { (low, middle) };
    }
    // A file of rounded values is readable and exact enough.
    let kernel_time = (f64::midpoint(low, high) * 1e4).round() / 1e4;

    // A row merges the iterations before and after its policy.
    let sample = rows.first().map_or(1, |row| row.iterations).saturating_mul(2).clamp(2, MAX_SAMPLE);
    let probe = options.with_parameters(DeviceParameters { jitter: PROBE, ..parameters });
    let iterations = simulated(kernel_time, probe.with_iterations(sample * SAMPLES))?;
    let spreads = iterations.chunks_exact(sample).map(|sample| {
        let sample = distribution(sample)?;
        Ok(sample.percentile(0.99) - sample.median())
    });
    let probed_us = spreads.sum::<Result<f64, String>>()? / SAMPLES as f64;
    let jitter_us = if probed_us > 0.0 { spread_us / probed_us } else { 0.0 };
    Ok(ForegroundFit { kernel_time, jitter: PROBE.mul_f64(jitter_us.min(median_us)) })
}

fn distribution(iterations: &[Duration]) -> Result<Distribution, String> {
    times(iterations).map_err(|error| error.to_string())
}
