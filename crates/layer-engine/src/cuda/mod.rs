//! The engine of NVIDIA GPUs: kernels of its own, run by CUDA's driver, which is opened at run time.

mod activation;
mod attention;
mod buffer;
mod capture;
mod convolution;
mod device;
mod engine;
mod host_buffer;
mod kernel;
mod library;
mod linear;
mod loss;
mod memory;
mod module;
#[cfg(test)]
mod mutations;
mod norm;
mod optimizer;
mod plan;
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

/// The engine's name in errors.
const NAME: &str = "the CUDA engine";

/// What the driver reports of something that was tried.
fn failed(action: &str, error: DriverError) -> EngineError {
    let problem = match (error.error_name(), error.error_string()) {
        (Ok(name), Ok(meaning)) => {
            format!("{action}: {}: {}", name.to_string_lossy(), meaning.to_string_lossy())
        }
        _ => format!("{action}: {:?}", error.0),
    };
    EngineError::Library { engine: NAME, problem }
}

/// A handle of the driver's. It names an object that belongs to no thread.
#[derive(Debug, Clone, Copy)]
struct Raw<T>(T);

mod threads {
    #![allow(unsafe_code)]

    use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};

    use super::Raw;

    // SAFETY: no object of CUDA's driver belongs to a thread, and it guards these against use by several at once.
    unsafe impl Send for Raw<CUfunction> {}
    // SAFETY: a kernel is only read.
    unsafe impl Sync for Raw<CUfunction> {}
    // SAFETY: as above.
    unsafe impl Send for Raw<CUmodule> {}
    // SAFETY: a module that is loaded is only read, until its one owner unloads it.
    unsafe impl Sync for Raw<CUmodule> {}
    // SAFETY: as above.
    unsafe impl Send for Raw<CUstream> {}
    // SAFETY: any thread may put work into a stream.
    unsafe impl Sync for Raw<CUstream> {}
}
