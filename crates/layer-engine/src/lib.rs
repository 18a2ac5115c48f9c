#![doc = include_str!("../README.md")]

// Test modules that unit tests share with `tests/` refer to the crate by its name.
#[cfg(all(test, feature = "cuda"))]
extern crate self as layer_engine;

mod candidates;
#[cfg(feature = "cpu")]
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod description;
mod engine;
mod error;
mod image_layout;
mod init;
mod kernel;
pub mod random;
mod signature;
mod storage;
#[cfg(feature = "torch")]
mod torch;

#[cfg(feature = "cuda")]
pub use self::cuda::{ChainNorm, CudaEngine, CudaKernel, CudaQueue, ElementwiseChain, Rectifier};
pub use candidates::{CandidateTime, KernelChoice, KernelPart};
#[cfg(feature = "cpu")]
pub use cpu::{CpuEngine, CpuKernel, Real, ThreadPool};
pub use description::DeviceDescription;
pub use engine::{Engine, Stopwatch};
pub use error::EngineError;
pub use image_layout::ImageLayout;
pub use init::{initial_parameters, initial_statistics};
pub use kernel::{KernelSpec, LaunchContext, Pass, Precision, Sgd, Shard};
pub use signature::{Role, Signature};
pub use storage::Storage;
#[cfg(feature = "torch")]
pub use torch::{TorchBuffer, TorchDevice, TorchEngine, TorchKernel, TorchQueue};
