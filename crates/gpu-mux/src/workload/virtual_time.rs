//! Check of a simulation's cost before it starts.

use std::time::Duration;

use super::Iteration;
use crate::Error;

/// Maximum virtual time of a simulation in seconds: ten years. The devices count nanoseconds in 64
/// bits, which is 584 years.
const MAX_SECONDS: f64 = 10.0 * 365.0 * 86_400.0;
/// Number of background iterations in one of the foreground up to which any number of kernels is
/// simulated.
const USUAL_RATIO: f64 = 1e3;
/// Maximum number of background kernels of a simulation beyond that ratio.
const MAX_KERNELS: f64 = 5e6;

/// Checks that a simulation of `iterations` foreground iterations ends within ten years of virtual
/// time, and that the background does not run millions of kernels meanwhile because a time or a
/// bandwidth is in the wrong unit. The cost of a simulation is proportional to their number.
///
/// `foreground` is the duration of a foreground iteration, `background` the job that runs beside it
/// on each of `devices` simulated devices.
///
/// # Errors
/// [`Error::OutOfRange`] if the simulation takes longer or runs more kernels.
pub fn check_virtual_time(
    foreground: Duration,
    iterations: u64,
    background: Option<&Iteration>,
    devices: usize,
) -> Result<(), Error> {
    let seconds = foreground.as_secs_f64() * iterations as f64;
    if seconds > MAX_SECONDS {
        return Err(Error::OutOfRange {
            name: "the virtual time of the simulation",
            value: format!("{seconds:.3e} s"),
            expected: "at most ten years: check the units of the bandwidths and times",
        });
    }
    let Some(background) = background else { return Ok(()) };
    let ratio = foreground.as_secs_f64() / background.compute_time().as_secs_f64();
    let kernels = ratio * (iterations as f64) * (background.kernels().count() * devices) as f64;
    if ratio > USUAL_RATIO && kernels > MAX_KERNELS {
        return Err(Error::OutOfRange {
            name: "the number of background iterations in one of the foreground",
            value: format!("{ratio:.3e}"),
            expected: "at most 1000, or 5 million background kernels in all: check the units of the \
                       bandwidths and times, or simulate without background",
        });
    }
    Ok(())
}
