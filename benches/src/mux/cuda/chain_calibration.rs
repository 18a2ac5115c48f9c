//! Calibration: chains of kernels, to which the virtual device's parameters are fitted. A chain is
//! a number of kernels on one stream, one after another.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use ::cuda::{Event, Result, Stopwatch, Stream};

use super::kernels::{Compute, Kernels};
use super::launch_calibration::LaunchCalibration;
use crate::mux::{Calibration, Chain};
use crate::report_file::micros;
use crate::statistics::Distribution;

/// Duration of the kernel. It exceeds the launch time, so that the device does not wait for the
/// host.
const KERNEL: Duration = Duration::from_micros(20);
/// Lengths of the chains, below the number of launches that a stream queues before the host blocks.
const LENGTHS: [u32; 4] = [1, 8, 32, 128];
const RUNS: usize = 21;
const TIMED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(20);
/// Default of `CUDA_DEVICE_MAX_CONNECTIONS`.
const HARDWARE_QUEUES: u32 = 8;

/// Times chains of kernels of about 20 us, launched one by one and as graphs. The stream must
/// have no other work. `kernel_time_errors` and `sharing` of the result are `None`.
///
/// # Errors
/// If a CUDA call fails.
pub(super) fn calibrate(
    kernels: &Kernels,
    launch_calibration: &LaunchCalibration<'_>,
    stream: &Stream,
) -> Result<Calibration> {
    let kernel = launch_calibration.block(KERNEL);
    let enqueue = |stream: &Stream, length| (0..length).try_for_each(|_| kernels.compute(stream, kernel));
    let mut chains = Vec::new();
    for length in LENGTHS {
        chains.push(chain(stream, false, length, &|stream| enqueue(stream, length))?);
    }
    for length in LENGTHS {
        let graph = stream.capture(|stream| enqueue(stream, length))?.instantiate()?;
        chains.push(chain(stream, true, length, &|stream| graph.launch(stream))?);
    }
    let queues = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().and_then(|queues| queues.parse().ok());
    Ok(Calibration {
        multiprocessors: kernels.multiprocessors,
        hardware_queues: queues.unwrap_or(HARDWARE_QUEUES),
        kernel_us: alone(kernels, kernel, stream)?,
        chains,
        kernel_time_errors: None,
        sharing: None,
    })
}

/// Returns the duration of the kernel without its launch in microseconds: the difference between
/// twice the rounds and once.
fn alone(kernels: &Kernels, kernel: Compute, stream: &Stream) -> Result<f64> {
    let stopwatch = Stopwatch::new(stream)?;
    let time =
        |rounds| stopwatch.median(TIMED, |stream| kernels.compute(stream, Compute { rounds, ..kernel }));
    let (once, twice) = (time(kernel.rounds)?, time(2 * kernel.rounds)?);
    Ok(micros(twice.saturating_sub(once)))
}

fn chain(
    stream: &Stream,
    captured: bool,
    kernels: u32,
    enqueue: &dyn Fn(&Stream) -> Result<()>,
) -> Result<Chain> {
    let end = Event::untimed(stream)?;
    let (mut launches, mut totals) = (Vec::new(), Vec::new());
    // The first run is not counted, because it uploads the graph.
    for run in 0..=RUNS {
        stream.synchronize()?;
        let begin = Instant::now();
        enqueue(stream)?;
        let launch = begin.elapsed();
        stream.record(&end)?;
        while !end.is_complete()? {}
        if run > 0 {
            launches.push(launch);
            totals.push(begin.elapsed());
        }
    }
    Ok(Chain { captured, kernels, launch_us: median(launches), total_us: median(totals) })
}

/// Returns the median in microseconds.
fn median(times: Vec<Duration>) -> f64 {
    Distribution::of(times.into_iter().map(micros)).map_or(0.0, |times| times.median())
}
