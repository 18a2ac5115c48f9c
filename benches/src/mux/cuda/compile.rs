//! Compilation of the kernels by NVRTC.
#![allow(unsafe_code)]

use anyhow::{Result, bail};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts, sys};
use gpu_mux::cuda::Capabilities;

const SOURCE: &str = include_str!("kernels.cu");

/// Compiles `kernels.cu` to PTX for the GPU's compute capability, and returns the PTX.
///
/// # Errors
/// If NVRTC is not found, or if compilation fails.
pub(super) fn compile(capabilities: &Capabilities) -> Result<String> {
    // SAFETY: opens NVRTC's library if it is present, and calls no function of it. Any other first
    // call would panic.
    if !unsafe { sys::is_culib_present() } {
        bail!(
            "NVRTC was not found: searched for libnvrtc.so, libnvrtc.so.13 and libnvrtc.so.12 \
             on the loader's path; install CUDA's toolkit or the Python package nvidia-cuda-nvrtc, \
             and add its folder to LD_LIBRARY_PATH"
        );
    }
    let (major, minor) = capabilities.architecture;
    let options = CompileOptions {
        options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
        ..CompileOptions::default()
    };
    match compile_ptx_with_opts(SOURCE, options) {
        Ok(ptx) => Ok(ptx.to_src()),
        Err(error) => {
            let error = error.to_string();
            bail!("NVRTC: {}", error.split_whitespace().collect::<Vec<_>>().join(" "))
        }
    }
}
