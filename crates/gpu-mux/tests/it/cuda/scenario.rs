//! A scenario that uses every function of the driver once.

use std::num::NonZeroUsize;
use std::time::Duration;

use gpu_mux::cuda::{
    CapturedGraph, Context, CudaDevice, CudaLibrary, DeviceBuffer, DeviceOptions, Error, Event, MergeLimits,
    MergedGraph, Prepared, Priority, Result, Stream, TimingRuns,
};
use gpu_mux::{Driver, DriverError, JobId, Lane, Policy, Tasklet};

use super::kernels::{kernels, launch, launch_all};

/// Opens a device, uses it and closes it.
pub(crate) fn run_scenario(library: &CudaLibrary) -> Result<()> {
    let context = Context::open(library, 0)?;
    let used = use_everything(&context);
    used.and(context.close())
}

fn use_everything(context: &Context) -> Result<()> {
    context.device_name()?;
    context.synchronize()?;
    let stream = Stream::new(context, Priority::Background)?;
    let buffer = DeviceBuffer::new(context, 8)?;
    buffer.upload(&stream, &[1; 8])?;
    buffer.fill(&stream, 7)?;
    let mut back = [0; 8];
    buffer.download(&stream, &mut back)?;
    assert_eq!(back, [7, 0, 0, 0, 7, 0, 0, 0]);
    drop(buffer);

    // A forked graph, and one merged with it.
    let layers = kernels(context, &["a_10us", "b_20us", "c_30us"])?;
    let side = Stream::new(context, Priority::Background)?;
    let (fork, join) = (Event::untimed(&stream)?, Event::untimed(&side)?);
    let graph = stream.capture(|stream| {
        stream.record(&fork)?;
        side.wait_for(&fork)?;
        launch(&layers[0], stream)?;
        launch(&layers[1], &side)?;
        side.record(&join)?;
        stream.wait_for(&join)?;
        launch(&layers[2], stream)
    })?;
    let short = stream.capture(|stream| launch(&layers[0], stream))?;
    let graphs = [(graph, us(60)), (short, us(10))];
    let merged = MergedGraph::merge_consecutive(&graphs, MergeLimits::default())?;
    merged[0].executable.launch(&stream)?;
    CapturedGraph::chain([&graphs[0].0])?.set_priority(Priority::Foreground)?;
    stream.synchronize()?;
    assert!(stream.is_idle()?);

    let policy = Policy { background_piece: Some(us(35)), ..Policy::artifact() };
    let options = DeviceOptions { gate: true, background_multiprocessors: Some(16) };
    let mut device = CudaDevice::new(context, policy, options)?;
    let weights = DeviceBuffer::new(context, 8)?;
    let restored = [&weights];
    let once = TimingRuns::restoring(NonZeroUsize::MIN, &restored);
    let compute = {
        let layers = layers.clone();
        device.prepare_foreground(Lane::Compute, once, move |stream| launch_all(&layers[..2], stream))?
    };
    let receive = {
        let layers = layers.clone();
        device.prepare_foreground(Lane::Communication, once, move |stream| launch(&layers[2], stream))?
    };
    let background =
        device.prepare_background(JobId::BACKGROUND, once, move |stream| launch_all(&layers, stream))?;
    assert_eq!(background.pieces.len(), 2);
    share(Driver::new(policy, device), &compute, &receive, &background.pieces)
}

/// Runs two iterations of a foreground beside a round of background.
fn share(
    mut driver: Driver<CudaDevice>,
    compute: &Prepared,
    receive: &Prepared,
    pieces: &[Prepared],
) -> Result<()> {
    for iteration in 0..2 {
        let received = Tasklet::new(JobId::FOREGROUND, 2 * iteration).receiving().estimated(receive.estimate);
        let layer =
            Tasklet::new(JobId::FOREGROUND, 2 * iteration + 1).after(received.id).estimated(compute.estimate);
        driver.offer(received, receive.work.clone()).map_err(cause)?;
        driver.offer(layer, compute.work.clone()).map_err(cause)?;
    }
    for (number, piece) in pieces.iter().enumerate() {
        let piece_tasklet = Tasklet::new(JobId::BACKGROUND, number as u64).estimated(piece.estimate);
        driver.offer(piece_tasklet, piece.work.clone()).map_err(cause)?;
    }
    let mut left = 4 + pieces.len();
    while left > 0 {
        match driver.poll().map_err(cause)? {
            Some(_) => {
                assert!(driver.device_mut().last_end()?.is_some());
                left -= 1;
            }
            None => driver.wait(None).map_err(cause)?,
        }
        if let Some((_, error)) = driver.background_failures().first() {
            return Err(error.clone());
        }
    }
    Ok(())
}

fn cause(error: DriverError<Error>) -> Error {
    match error {
        DriverError::Device(error) => error,
        refused @ DriverError::Refused(_) => panic!("{refused}"),
    }
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
