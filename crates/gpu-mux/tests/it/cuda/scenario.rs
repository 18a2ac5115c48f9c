//! A scenario that uses every option of a device.

use std::num::NonZeroUsize;
use std::time::Duration;

use cuda::{Buffer, Context, Error, Result, TimingRuns};
use gpu_mux::cuda::{CudaDevice, DeviceOptions, Prepared};
use gpu_mux::{Driver, DriverError, JobId, Lane, Policy, Tasklet};

use super::kernels::{kernels, launch, launch_all};

/// Opens a device, uses it and closes it.
pub(crate) fn run_scenario() -> Result<()> {
    let context = super::open()?;
    let used = use_everything(&context);
    used.and(context.close())
}

fn use_everything(context: &Context) -> Result<()> {
    let layers = kernels(context, &["a_10us", "b_20us", "c_30us"])?;
    let policy = Policy { background_piece: Some(us(35)), ..Policy::artifact() };
    let options = DeviceOptions { gate: true, background_multiprocessors: Some(16) };
    let mut device = CudaDevice::new(context, policy, options)?;
    let weights = Buffer::zeros(context, 2)?;
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
