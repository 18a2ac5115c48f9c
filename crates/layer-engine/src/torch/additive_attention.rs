//! Additive attention. The backward pass is that of [`autograd`].

use tch::Tensor;

use super::Failure;
use super::autograd;
use super::dtypes::DTypes;
use super::launch::{LaunchFunction, LayerOperands};

/// Returns the forward pass. libtorch stores the sums of all queries and keys, `samples x positions
/// x key positions x units`.
pub(super) fn forward(operands: LayerOperands, dtypes: DTypes) -> LaunchFunction {
    autograd::forward(operands, move |leaves| outputs(leaves, dtypes))
}

/// Computes the outputs. `leaves` are the queries, keys and values, and the parameters: the vector,
/// and its factor and the bias if it is normalised.
fn outputs(leaves: &[Tensor], dtypes: DTypes) -> Result<Tensor, Failure> {
    let (queries, keys) = (leaves[0].f_unsqueeze(2)?, leaves[1].f_unsqueeze(1)?);
    let (mut sums, mut vector) = (queries.f_add(&keys)?, leaves[3].shallow_clone());
    if let [factor, bias] = &leaves[4..] {
        sums = sums.f_add(bias)?;
        vector = vector.f_div(&vector.f_norm()?)?.f_mul(factor)?;
    }
    let weights = sums.f_tanh()?.f_matmul(&vector)?.f_softmax(-1, None)?;
    dtypes.widen(&dtypes.narrow(&weights)?.f_matmul(&dtypes.narrow(&leaves[2])?)?)
}
