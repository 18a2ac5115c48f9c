//! Compilation of the kernels by NVRTC.

use ::cuda::{Capabilities, Nvrtc, Result};

const SOURCE: &str = include_str!("kernels.cu");

/// Compiles `kernels.cu` to PTX for the GPU's compute capability, and returns the PTX.
///
/// # Errors
/// If NVRTC is not found, or if compilation fails.
pub(super) fn compile(capabilities: &Capabilities) -> Result<String> {
    let (major, minor) = capabilities.architecture;
    Nvrtc::open()?.compile(SOURCE, &[&format!("--gpu-architecture=compute_{major}{minor}")])
}
