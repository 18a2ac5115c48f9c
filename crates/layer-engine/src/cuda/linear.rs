//! Linear layers. The function adds launches to a `KernelBuilder`, a kernel under preparation. It
//! fails as the functions of `KernelBuilder` do.

use cuda::ProductShape;

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use super::slices::{Products, Slices};
use super::vendor;
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::MatrixProduct;

/// Adds the launches of a pass of a linear layer with `samples` rows of `inputs` features, of which
/// it computes `outputs` features. `bias` is whether it has biases.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    [samples, outputs, inputs]: [usize; 3],
    bias: bool,
    pass: Pass,
) -> Result<(), EngineError> {
    let sizes = [samples, outputs, inputs].map(size);
    let weights = builder.operand(Role::Parameters);
    let after_weights =
        |operand: Argument| if bias { operand.offset(outputs * inputs) } else { Argument::NONE };
    let (x, dy) = (builder.operand(Role::Input(0)), builder.operand(Role::OutputGradient));
    let shape = |[rows, columns, depth]: [usize; 3], a_transposed, b_transposed| ProductShape {
        rows,
        columns,
        depth,
        a_transposed,
        b_transposed,
        batch: 1,
        bias: false,
        single: false,
    };
    let element_bytes = builder.numerics().element_bytes();
    if !pass.is_backward() {
        let (sides, biases, y) =
            ([samples, outputs, inputs], after_weights(weights), builder.operand(Role::Output));
        // A library needs the biases at a multiple of 16 bytes.
        let is_aligned = !bias || outputs * inputs * element_bytes % 16 == 0;
        let shape = ProductShape { bias, ..shape(sides, false, true) };
        let vendor = |builder: &mut KernelBuilder<'_>| {
            if !is_aligned {
                return Ok(Vec::new());
            }
            vendor::products(builder, &shape, [x, weights, y, biases])
        };
        return builder.choose("product", &shape, vendor, |builder| {
            let y = Slices::new(builder, &products(y, sides))?;
            let arguments = [&sizes[..], &[size(y.terms), x, weights, y.bias(biases), y.parts]].concat();
            y.launch(builder, (FAMILY, ["linear_forward", "linear_forward_small"]), arguments)?;
            y.sum(builder, biases, [1, outputs])
        });
    }
    if pass == Pass::Backward {
        let (sides, dx) = ([samples, inputs, outputs], builder.operand(Role::InputGradient(0)));
        let shape = shape(sides, false, false);
        let vendor = |builder: &mut KernelBuilder<'_>| {
            vendor::products(builder, &shape, [dy, weights, dx, Argument::NONE])
        };
        builder.choose("input gradient", &shape, vendor, |builder| {
            let dx = Slices::new(builder, &products(dx, sides))?;
            let arguments = [&sizes[..], &[size(dx.terms), dy, weights, dx.parts]].concat();
            let kernels = ["linear_input_gradient", "linear_input_gradient_small"];
            dx.launch(builder, (FAMILY, kernels), arguments)?;
            dx.sum(builder, Argument::NONE, [1, inputs])
        })?;
    }
    let (sides, gradient) = ([outputs, inputs, samples], builder.operand(Role::ParameterGradient));
    // Gradients of parameters have single precision.
    let shape = ProductShape { single: true, ..shape(sides, true, false) };
    let vendor = |builder: &mut KernelBuilder<'_>| {
        vendor::products(builder, &shape, [dy, x, gradient, Argument::NONE])
    };
    let own = |builder: &mut KernelBuilder<'_>| {
        weight_gradient(builder, [samples, outputs, inputs], [x, dy], gradient)
    };
    builder.choose("weight gradient", &shape, vendor, own)?;
    if bias {
        bias_gradient(builder, [samples, outputs], dy, after_weights(gradient))?;
    }
    Ok(())
}

/// Returns one product of `rows x columns` elements, each a sum of `terms` terms.
fn products(to: Argument, [rows, columns, terms]: [usize; 3]) -> Products {
    let (elements, factors) = (rows * columns, (rows + columns) * terms);
    Products { to, elements, factors, sides: [rows, columns], count: 1, terms }
}

/// Adds the launches that compute the gradient of a weight of `outputs x inputs` elements from
/// `samples` rows of the inputs `x` and of the gradients of the outputs, `dy`.
pub(super) fn weight_gradient(
    builder: &mut KernelBuilder<'_>,
    [samples, outputs, inputs]: [usize; 3],
    [x, dy]: [Argument; 2],
    gradient: Argument,
) -> Result<(), EngineError> {
    let dw = Slices::new(builder, &products(gradient, [outputs, inputs, samples]))?;
    let sizes = [samples, outputs, inputs, dw.terms].map(size);
    let kernels = ["linear_weight_gradient", "linear_weight_gradient_small"];
    dw.launch(builder, (FAMILY, kernels), [&sizes[..], &[x, dy, dw.parts]].concat())?;
    dw.sum(builder, Argument::NONE, [1, inputs])
}

/// Adds the launch that computes the gradient of a bias from `samples` rows of `outputs` gradients
/// of the outputs, `dy`.
pub(super) fn bias_gradient(
    builder: &mut KernelBuilder<'_>,
    [samples, outputs]: [usize; 2],
    dy: Argument,
    gradient: Argument,
) -> Result<(), EngineError> {
    let arguments = [size(samples), size(outputs), dy, gradient];
    builder.launch((FAMILY, "linear_bias_gradient"), [outputs.div_ceil(32), 1], arguments)
}
