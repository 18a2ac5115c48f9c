//! Engine for NVIDIA GPUs with the kernels of this crate. The CUDA driver is opened at run time.
//!
//! A *kernel* of the engine is one pass of a layer. It consists of launches of functions in PTX,
//! which this module calls *GPU functions*. A kernel under preparation is a `KernelBuilder`, to
//! which the launches of a pass are added.

mod activation;
mod additive_attention;
mod attention;
mod chain;
mod channels;
mod choice;
mod convolution;
mod device;
mod engine;
mod experts;
mod kernel;
mod kernel_builder;
#[cfg(test)]
mod launch_sizes;
mod libraries;
mod linear;
mod loss;
mod module;
#[cfg(test)]
mod mutations;
mod norm;
mod operand;
mod optimizer;
mod pooling;
mod prepare;
mod queue;
mod rearrange;
mod recurrence;
mod sequence;
mod slices;
mod tensors;
mod timing;
mod vendor;

use crate::EngineError;
pub use chain::{ChainNorm, ElementwiseChain, Rectifier};
pub use engine::CudaEngine;
pub use kernel::CudaKernel;
pub use queue::CudaQueue;

/// Name of the engine in error messages.
const NAME: &str = "the CUDA engine";

/// Returns the conversion of an error of CUDA. `action` is the action that failed.
fn failed(action: &str) -> impl Fn(cuda::Error) -> EngineError {
    move |source| EngineError::Cuda { action: action.to_owned(), source: source.into() }
}

/// Returns the conversion of the error of an allocation of `elements` elements of 4 bytes.
fn allocation_failed(elements: usize) -> impl Fn(cuda::Error) -> EngineError {
    move |error| {
        if error.is_out_of_memory() {
            EngineError::OutOfMemory { engine: NAME, elements }
        } else {
            failed("allocate memory")(error)
        }
    }
}
