//! Candidates of the vendor's libraries for parts of kernels. A function returns no candidates if
//! its library cannot be used or has no algorithm for the shape.

use std::sync::PoisonError;

use cuda::{ConvolutionShape, ProductShape, Target};

use super::device::{OPERAND_COPIES, WORKSPACE_BYTES};
use super::failed;
use super::kernel::{Argument, Launch, LibraryCall, LibraryLaunch};
use super::kernel_builder::{Candidate, KernelBuilder};
use crate::EngineError;

/// Maximum number of algorithms of a library that are candidates of a part.
const MAX_ALGORITHMS: usize = 6;

/// Returns candidates for a product of matrices. `operands` are its factors, its result and its
/// bias.
///
/// # Errors
/// [`EngineError::Cuda`] if the library fails.
pub(super) fn products(
    builder: &KernelBuilder<'_>,
    shape: &ProductShape,
    operands: [Argument; 4],
) -> Result<Vec<Candidate>, EngineError> {
    let device = builder.device();
    let Ok(library) = device.libraries.products() else { return Ok(Vec::new()) };
    let numerics = builder.numerics();
    let found = library
        .products(&device.context, shape, numerics, WORKSPACE_BYTES, MAX_ALGORITHMS)
        .map_err(failed("search algorithms of a product"))?;
    Ok(found
        .into_iter()
        .map(|product| {
            let name = product.name();
            candidate(name, LibraryCall::Product(product), operands)
        })
        .collect())
}

/// Returns candidates for a convolution. `operands` are the input, the weights and the output, or
/// their gradients.
///
/// # Errors
/// [`EngineError::Cuda`] if the library fails.
pub(super) fn convolutions(
    builder: &KernelBuilder<'_>,
    shape: &ConvolutionShape,
    [x, weights, y]: [Argument; 3],
) -> Result<Vec<Candidate>, EngineError> {
    let device = builder.device();
    let Ok(library) = device.libraries.convolutions() else { return Ok(Vec::new()) };
    let handle = library.handle.lock().unwrap_or_else(PoisonError::into_inner);
    let target = Target::Device(&handle);
    let numerics = builder.numerics();
    let search = || {
        let limit = WORKSPACE_BYTES + OPERAND_COPIES * shape.operand_bytes(numerics)?;
        library.library.convolutions(target, shape, numerics, device.determinism, limit)
    };
    let found = search().map_err(failed("search algorithms of a convolution"))?;
    let found = found.into_iter().take(MAX_ALGORITHMS);
    Ok(found
        .map(|convolution| {
            let name = convolution.name();
            candidate(name, LibraryCall::Convolution(convolution), [x, weights, y, Argument::NONE])
        })
        .collect())
}

fn candidate(name: String, call: LibraryCall, operands: [Argument; 4]) -> Candidate {
    let launch = LibraryLaunch { call, name: name.as_str().into(), operands };
    Candidate { name, launches: vec![Launch::Library(Box::new(launch))] }
}
