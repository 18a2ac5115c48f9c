//! Engine for NVIDIA GPUs with the kernels of this crate. The CUDA driver is opened at run time.
//!
//! A *kernel* of the engine is one pass of a layer. It consists of launches of functions in PTX,
//! which this module calls *GPU functions*. A kernel under preparation is a `KernelBuilder`, to
//! which the launches of a pass are added.

mod activation;
mod attention;
mod buffer;
mod capture;
mod convolution;
mod device;
mod engine;
mod host_buffer;
mod kernel;
mod kernel_builder;
mod library;
mod linear;
mod loss;
mod memory;
mod module;
#[cfg(test)]
mod mutations;
mod norm;
mod optimizer;
mod pooling;
mod prepare;
mod queue;
mod rearrange;
mod sequence;

use cudarc::driver::DriverError;

use crate::EngineError;
pub use buffer::{CudaBuffer, DeviceSlice};
pub use engine::CudaEngine;
pub use host_buffer::CudaHostBuffer;
pub use kernel::CudaKernel;
pub use queue::CudaQueue;

/// Name of the engine in error messages.
const NAME: &str = "the CUDA engine";

/// Converts an error of the CUDA driver. `action` is the action that failed.
fn driver_error(action: &str, error: DriverError) -> EngineError {
    let problem = match (error.error_name(), error.error_string()) {
        (Ok(name), Ok(meaning)) => {
            format!("{action}: {}: {}", name.to_string_lossy(), meaning.to_string_lossy())
        }
        _ => format!("{action}: {:?}", error.0),
    };
    EngineError::Library { engine: NAME, problem }
}

/// A handle of a driver object that is not bound to a thread.
#[derive(Debug, Clone, Copy)]
struct DriverHandle<T>(T);

mod send_and_sync {
    #![allow(unsafe_code)]

    use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};

    use super::DriverHandle;

    // SAFETY: objects of the CUDA driver are not bound to a thread, and the driver synchronises
    // access to them.
    unsafe impl Send for DriverHandle<CUfunction> {}
    // SAFETY: a kernel is only read.
    unsafe impl Sync for DriverHandle<CUfunction> {}
    // SAFETY: as above.
    unsafe impl Send for DriverHandle<CUmodule> {}
    // SAFETY: a loaded module is only read until its owner unloads it.
    unsafe impl Sync for DriverHandle<CUmodule> {}
    // SAFETY: as above.
    unsafe impl Send for DriverHandle<CUstream> {}
    // SAFETY: any thread can enqueue work on a stream.
    unsafe impl Sync for DriverHandle<CUstream> {}
}
