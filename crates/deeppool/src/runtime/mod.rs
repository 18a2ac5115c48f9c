//! Execution of programs. Each rank runs its program, loaded onto a device as a [`LoadedProgram`],
//! as a [`gpu_mux::PolledJob`], so that background jobs can use the time in which the rank waits
//! for others.

mod arena;
mod backend;
mod buckets;
mod driver;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
mod identity;
mod image_order;
mod iteration_ends;
mod iterations;
mod kernels;
mod loaded;
mod loss_metrics;
mod memory;
mod pending;
mod until_all;

pub use arena::Arena;
pub use backend::{Backend, CommunicationQueue, ComputeQueue, Cpu, CpuThreads, RankDevice};
pub use driver::{BackgroundStatus, JobsMut, RankDriver, TrainingBackend};
#[cfg(feature = "cuda")]
pub use gpu::{Gpu, GpuDriver, GpuEngine, cuda_engine, fastest_image_order};
pub use image_order::ImageOrder;
pub use iterations::{BatchSource, Iterations, Observer, TimeSpan};
pub use kernels::{kernel_groups, kernel_precision, kernel_spec};
pub use loaded::LoadedProgram;
pub use loss_metrics::LossMetrics;
pub(crate) use loss_metrics::{counted_share, sample_weight};
pub use memory::RankState;
