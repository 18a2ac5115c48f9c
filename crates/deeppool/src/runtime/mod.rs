//! Executes a program for real: one [`LoadedProgram`] a rank, driven as a [`gpu_mux::PolledJob`] so that a background job
//! can use the time in which the rank waits for others.

mod backend;
mod bucket;
mod driver;
#[cfg(feature = "cuda")]
mod gpu;
mod iterations;
mod loaded;
mod memory;
mod pending;

pub use backend::{Backend, CommunicationQueue, ComputeQueue, Cpu, CpuThreads, RankDevice};
pub use driver::{BackgroundStatus, JobsMut, RankDriver};
#[cfg(feature = "cuda")]
pub use gpu::{Gpu, GpuDriver, GpuEngine};
pub use iterations::{BatchSource, Iterations, Observer, Ran};
pub use loaded::LoadedProgram;
pub(crate) use loaded::kernel_spec;
pub use memory::RankState;
