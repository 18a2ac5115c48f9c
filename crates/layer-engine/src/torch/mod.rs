//! Engine on libtorch, for the CPU and for NVIDIA GPUs. The computation of a pass is a closure,
//! `LaunchFunction`, that the functions of the layers return. A `Failure` holds an `EngineError`.
#![allow(
    clippy::cast_possible_wrap,
    reason = "libtorch counts in signed integers; sizes stay far below 2^63"
)]

mod activation;
mod additive_attention;
mod attention;
mod autograd;
mod batch_norm;
mod buffer;
mod capture;
mod conv;
mod dropout;
mod dtypes;
mod engine;
mod experts;
mod ffi;
mod group_norm;
mod kernel;
mod launch;
mod layer_norm;
mod linear;
mod loss;
mod moments;
mod optimizer;
mod pool;
mod prepare;
mod queue;
mod rearrange;
mod recurrence;
mod response_norm;
mod rms_norm;
mod sequence;

pub use buffer::TorchBuffer;
pub use engine::{TorchDevice, TorchEngine};
pub use kernel::TorchKernel;
pub use queue::TorchQueue;

use crate::EngineError;

/// Name of the engine in error messages.
const NAME: &str = "the libtorch engine";

/// An error of the engine that `?` converts to. `EngineError` implements `From` for no other type,
/// so that `?` is not ambiguous.
#[derive(Debug)]
struct Failure(EngineError);

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self(error)
    }
}

impl From<tch::TchError> for Failure {
    fn from(error: tch::TchError) -> Self {
        library_error(&error.to_string())
    }
}

/// Converts a message of libtorch. Only the first line is kept; a stack trace follows it.
fn library_error(problem: &str) -> Failure {
    let problem = problem.trim().strip_prefix("Internal torch error: ").unwrap_or(problem.trim());
    let problem = problem.lines().next().unwrap_or_default().into();
    Failure(EngineError::Library { engine: NAME, problem })
}
