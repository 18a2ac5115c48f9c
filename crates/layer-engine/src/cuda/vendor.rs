//! Candidates of the vendor's libraries for parts of kernels. A function returns no candidates if
//! its library cannot be used or has no algorithm for the shape.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use cuda::{Attention, AttentionShape, Convolution, ConvolutionShape, ProductShape, Target};

use super::device::{MAX_ALGORITHMS, OPERAND_COPIES, WORKSPACE_BYTES};
use super::failed;
use super::kernel::{Argument, LIBRARY_OPERANDS, Launch, LibraryCall, LibraryLaunch};
use super::kernel_builder::{Candidate, KernelBuilder};
use crate::EngineError;

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
            candidate(name, LibraryCall::Product(product), &operands)
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
    Ok(of_different_engines(found, Convolution::engine)
        .into_iter()
        .map(|convolution| {
            let name = convolution.name();
            candidate(name, LibraryCall::Convolution(convolution), &[x, weights, y])
        })
        .collect())
}

/// Returns candidates for a pass of attention with operands in 16 bits.
/// `operands` are the input, the output and the statistics, and the gradients of output and input
/// if it is a backward pass.
///
/// # Errors
/// [`EngineError::Cuda`] if the library fails.
pub(super) fn attentions(
    builder: &KernelBuilder<'_>,
    shape: &AttentionShape,
    operands: &[Argument],
) -> Result<Vec<Candidate>, EngineError> {
    let device = builder.device();
    let Ok(library) = device.libraries.convolutions() else { return Ok(Vec::new()) };
    let search = || {
        let limit = WORKSPACE_BYTES + OPERAND_COPIES * shape.operand_bytes()?;
        library.attentions(shape, device.determinism, limit)
    };
    let found = search().map_err(failed("search algorithms of attention"))?;
    Ok(of_different_engines(found, Attention::engine)
        .into_iter()
        .map(|attention| {
            let name = attention.name();
            candidate(name, LibraryCall::Attention(attention), operands)
        })
        .collect())
}

/// Returns at most [`MAX_ALGORITHMS`] of the plans: the first of each engine, and then further
/// configurations of these engines. Both keep their order.
fn of_different_engines<P>(plans: Vec<P>, engine: impl Fn(&P) -> i64) -> Vec<P> {
    let mut engines = BTreeSet::new();
    let (mut chosen, others): (Vec<P>, Vec<P>) =
        plans.into_iter().partition(|plan| engines.insert(engine(plan)));
    chosen.extend(others);
    chosen.truncate(MAX_ALGORITHMS);
    chosen
}

fn candidate(name: String, call: LibraryCall, given: &[Argument]) -> Candidate {
    let mut operands = [Argument::NONE; LIBRARY_OPERANDS];
    operands[..given.len()].copy_from_slice(given);
    let launch = LibraryLaunch { call, name: name.as_str().into(), operands };
    Candidate { name, launches: vec![Launch::Library(Box::new(launch))] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_a_configuration_before_one_has_two() {
        let plans = vec![(62, 1), (62, 2), (62, 3), (7, 1), (62, 4), (7, 2), (0, 1), (62, 5)];
        let chosen = of_different_engines(plans, |plan| plan.0);
        assert_eq!(chosen, [(62, 1), (7, 1), (0, 1), (62, 2), (62, 3), (62, 4)]);
    }
}
