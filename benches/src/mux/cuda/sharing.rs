//! Measurement of the interference between kernels, for comparison with the virtual device.

use std::time::Duration;

use ::cuda::{Context, Event, Priority, Stream};
use anyhow::Result;
use gpu_mux::Kernel;

use super::kernels::{Compute, Kernels};
use super::launch_calibration::LaunchCalibration;
use crate::mux::Sharing;
use crate::report_file::micros;

const RUNS: usize = 11;
/// Fraction of the memory bandwidth that each of the two kernels uses.
const DEMAND: f64 = 0.7;
const BLOCK: Duration = Duration::from_micros(25);
/// Duration of the later kernel.
const SHORT: Duration = Duration::from_micros(25);
/// Duration of each kernel before it.
const LONG: Duration = Duration::from_millis(1);

/// Measures the interference. The GPU must have no other work.
///
/// # Errors
/// If a CUDA call fails.
pub(super) fn measure(
    context: &Context,
    kernels: &Kernels,
    launch_calibration: &mut LaunchCalibration<'_>,
) -> Result<Sharing> {
    let (equal, urgent) =
        (Stream::new(context, Priority::Background)?, Stream::new(context, Priority::Foreground)?);
    let background = Stream::new(context, Priority::Background)?;
    let half = launch_calibration.compute(&Kernel::new(LONG, 0.5, DEMAND)?)?;
    let (long, short) = (
        launch_calibration.compute(&Kernel::new(LONG, 1.0, 0.0)?)?,
        launch_calibration.compute(&Kernel::new(SHORT, 1.0, 0.0)?)?,
    );
    let beside =
        |stream: &Stream, later, before, count| beside(kernels, stream, later, &background, before, count);
    let delay = |stream: &Stream| -> Result<f64> {
        let alone = beside(stream, short, long, 0)?;
        Ok(micros(beside(stream, short, long, 2)?.saturating_sub(alone)))
    };
    Ok(Sharing {
        memory_demand: DEMAND,
        memory_slowdown: beside(&equal, half, half, 3)?.as_secs_f64()
            / beside(&equal, half, half, 0)?.as_secs_f64(),
        block_us: micros(BLOCK),
        delay_us: delay(&equal)?,
        delay_with_priority_us: delay(&urgent)?,
    })
}

/// Returns the median duration of `later`, launched directly after `count` launches of `before` on
/// another stream.
fn beside(
    kernels: &Kernels,
    stream: &Stream,
    later: Compute,
    background: &Stream,
    before: Compute,
    count: usize,
) -> Result<Duration> {
    let (start, end) = (Event::timed(stream)?, Event::timed(stream)?);
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        (0..count).try_for_each(|_| kernels.compute(background, before))?;
        stream.record(&start)?;
        kernels.compute(stream, later)?;
        stream.record(&end)?;
        stream.synchronize()?;
        background.synchronize()?;
        times.push(end.since(&start)?);
    }
    times.sort_unstable();
    Ok(times[RUNS / 2].max(Duration::from_nanos(1)))
}
