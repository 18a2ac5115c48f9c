//! Work on an NVIDIA GPU through the CUDA driver (feature `cuda`).
//!
//! A [`Driver`](crate::Driver) drives a [`CudaDevice`]. Work is captured from streams and
//! [cut](::cuda::CapturedGraph::cut) or [merged](::cuda::MergedGraph), or enqueued kernel by
//! kernel. [`Context::capabilities`](::cuda::Context::capabilities) returns what the driver and the
//! device support. A technique that they lack is an error that names it; it is never skipped
//! silently.
//!
//! ```no_run
//! use cuda::{Context, LaunchShape, Module, TimingRuns};
//! use gpu_mux::cuda::{CudaDevice, DeviceOptions};
//! use gpu_mux::{Driver, JobId, Lane, Policy, Tasklet};
//! use std::num::NonZeroUsize;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::open(0)?;
//! let module = Module::load(&context, &std::fs::read_to_string("kernels.ptx")?)?;
//! let (layer, train) = (module.kernel("layer")?, module.kernel("train")?);
//! let shape = LaunchShape::linear(132, 256);
//! // To be timed, both are executed: nothing reads what these kernels have written before.
//! let runs = TimingRuns::without_side_effects(NonZeroUsize::MIN.saturating_add(4));
//!
//! let policy = Policy::default();
//! let mut device = CudaDevice::new(&context, policy, DeviceOptions::default())?;
//! // SAFETY: these kernels have no arguments.
//! let layer = device.prepare_foreground(Lane::Compute, runs, move |stream| unsafe {
//!     layer.launch(stream, shape, &[])
//! })?;
//! let round = device.prepare_background(JobId::BACKGROUND, runs, move |stream| {
//!     (0..100).try_for_each(|_| unsafe { train.launch(stream, shape, &[]) })
//! })?;
//!
//! let mut driver = Driver::new(policy, device);
//! for (number, piece) in round.pieces.iter().enumerate() {
//!     let tasklet = Tasklet::new(JobId::BACKGROUND, number as u64).estimated(piece.estimate);
//!     driver.offer(tasklet, piece.work.clone())?;
//! }
//! for number in 0..10 {
//!     let tasklet = Tasklet::new(JobId::FOREGROUND, number).estimated(layer.estimate);
//!     driver.offer(tasklet, layer.work.clone())?;
//! }
//! let mut left = 10 + round.pieces.len();
//! while left > 0 {
//!     match driver.poll()? {
//!         Some(finished) => {
//!             println!("{} took {:?}", finished.tasklet, finished.took);
//!             left -= 1;
//!         }
//!         None => driver.wait(None)?,
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! In this module, *CUDA errors* in the documentation of a function means that it returns
//! [`Error::Call`](::cuda::Error::Call) if a call of the CUDA driver fails.

mod device;
mod host_clock;

pub use device::{CudaDevice, DeviceOptions, EnqueueFn, Prepared, PreparedBackground, Work};
pub use host_clock::HostClock;
