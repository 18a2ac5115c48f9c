//! Convolutions. Methods return the computation of a pass.

use layer_graph::{Conv2d, ConvTranspose2d};
use tch::Tensor;

use super::Failure;
use super::dtypes::DTypes;
use super::ffi::{ConvGeometry, convolution_backward};
use super::launch::{Launch, LaunchFunction, LayerOperands};
use super::library_error;
use crate::Role;

/// A convolution with its operands, before the pass is chosen.
pub(super) struct ConvKernel {
    /// Operands of the pass that is prepared.
    pub(super) operands: LayerOperands,
    /// Stride, padding, dilation and groups.
    pub(super) geometry: ConvGeometry,
    /// Dimensions of the weight.
    pub(super) weight: Vec<i64>,
    /// Data types and device.
    pub(super) dtypes: DTypes,
}

impl ConvKernel {
    /// Returns the geometry of a convolution in libtorch's integers.
    pub(super) fn geometry(conv: &Conv2d) -> ConvGeometry {
        let pair = |pair: [usize; 2]| pair.map(|size| size as i64);
        ConvGeometry {
            stride: pair(conv.stride),
            padding: pair(conv.padding),
            dilation: pair(conv.dilation),
            output_padding: None,
            groups: conv.groups as i64,
        }
    }

    /// Returns the geometry of a transposed convolution in libtorch's integers.
    pub(super) fn transposed_geometry(conv: &ConvTranspose2d) -> ConvGeometry {
        let output_padding = Some(conv.output_padding.map(|size| size as i64));
        ConvGeometry { output_padding, ..Self::geometry(&conv.transposed(1)) }
    }

    /// Returns the forward pass.
    pub(super) fn forward(self) -> LaunchFunction {
        Box::new(move |launch| {
            let parameters = self.operands.parameters(launch)?;
            let ConvGeometry { stride, padding, dilation, output_padding, groups } = self.geometry;
            let (weight, bias) = (self.dtypes.narrow(&parameters[0])?, parameters.get(1));
            // In 16 bits, the bias is added afterwards in single precision.
            let fused = bias.filter(|_| !self.dtypes.converts());
            let input = self.dtypes.narrow(&self.operands.input(launch)?)?;
            let output = input.f_convolution(
                &weight,
                fused,
                stride,
                padding,
                dilation,
                output_padding.is_some(),
                output_padding.unwrap_or_default(),
                groups,
            )?;
            let mut output = self.dtypes.widen(&output)?;
            if let (Some(bias), None) = (bias, fused) {
                output = output.f_add_(&bias.f_view([-1, 1, 1])?)?;
            }
            self.operands.put(launch, Role::Output, &output)
        })
    }

    /// Returns the backward pass. It computes the input gradient only if the pass has that operand.
    pub(super) fn backward(self) -> LaunchFunction {
        Box::new(move |launch| self.gradients(launch))
    }

    fn gradients(&self, launch: &mut Launch<'_, '_>) -> Result<(), Failure> {
        let missing = || library_error("libtorch returned no gradient of a convolution");
        let wants_input = self.operands.writes(Role::InputGradient(0));
        let output_gradient = self.operands.output_gradient(launch)?;
        let input = self.dtypes.narrow(&self.operands.input(launch)?)?;
        let weight = if wants_input {
            let mut parameters = self.operands.parameters(launch)?;
            self.dtypes.narrow(&parameters.swap_remove(0))?
        } else {
            // Only the dimensions of the weight matter if its values are not needed.
            Tensor::f_zeros([1], (input.kind(), input.device()))?.f_expand(&self.weight[..], false)?
        };
        let has_bias = self.operands.parameter_count() > 1;
        let wanted = [wants_input, true, has_bias && !self.dtypes.converts()];
        let narrow = self.dtypes.narrow(&output_gradient)?;
        let [input, weight, bias] = convolution_backward(&narrow, &input, &weight, self.geometry, wanted)?;
        let mut gradients = vec![self.dtypes.widen(&weight.ok_or_else(missing)?)?];
        if has_bias {
            gradients.push(match bias {
                Some(bias) => bias,
                None => output_gradient.f_sum_dim_intlist([0i64, 2, 3].as_slice(), false, None)?,
            });
        }
        self.operands.put_parameter_gradients(launch, &gradients)?;
        if wants_input {
            let gradient = self.dtypes.widen(&input.ok_or_else(missing)?)?;
            self.operands.put(launch, Role::InputGradient(0), &gradient)?;
        }
        Ok(())
    }
}
