//! Devices and work for tests.

use std::time::Duration;

use cuda::{Context, Kernel, Result};
use gpu_mux::cuda::{CudaDevice, DeviceOptions, Work};
use gpu_mux::{Device, Finished, JobId, Policy, TaskletId};

use super::kernels::launch;

pub(crate) fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(crate) fn id(job: JobId, number: u64) -> TaskletId {
    TaskletId { job, number }
}

pub(crate) fn device(context: &Context, options: DeviceOptions) -> Result<CudaDevice> {
    CudaDevice::new(context, Policy::default(), options)
}

/// Work of one kernel.
pub(crate) fn work(kernel: &Kernel) -> Work {
    let kernel = kernel.clone();
    Work::enqueue(move |stream| launch(&kernel, stream))
}

/// Waits until `count` tasklets have finished.
pub(crate) fn all_finished(device: &mut CudaDevice, count: usize) -> Result<Vec<Finished>> {
    let mut all = Vec::new();
    while all.len() < count {
        match device.finished()? {
            Some(finished) => all.push(finished),
            None => device.wait(None)?,
        }
    }
    assert_eq!(device.finished()?, None);
    Ok(all)
}
