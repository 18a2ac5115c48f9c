//! Operands of a launch, and access to them by role. `Role` defines the content of each buffer.

use layer_graph::Layer;
use tch::Tensor;

use super::Failure;
use super::buffer::{Memory, TorchBuffer};
use super::library_error;
use super::moments::Moments;
use crate::{LaunchContext, Role, Shard, Signature};

/// Computation of a kernel, which enqueues its work in the current stream.
pub(super) type LaunchFunction = Box<dyn FnMut(&mut Launch<'_, '_>) -> Result<(), Failure> + Send>;

/// Operands of one launch. Their number and lengths have been checked.
pub(super) struct Launch<'a, 'b> {
    /// Buffers that are read, in the order of the kernel's `Signature` or `KernelSpec`.
    pub(super) reads: &'a [&'a TorchBuffer],
    /// Buffers that are written or updated in place, in the same order.
    pub(super) writes: &'a mut [&'b mut TorchBuffer],
    /// Seed, iteration and learning rate.
    pub(super) context: &'a LaunchContext,
}

/// Operands of a layer's pass, and their shapes for libtorch. Methods fail if the pass does not
/// have the operand that they return or write, or if libtorch fails.
#[derive(Debug, Clone)]
pub(super) struct LayerOperands {
    /// Roles of the operands of the pass.
    pub(super) signature: Signature,
    /// Dimensions of each input, with the number of samples first.
    pub(super) inputs: Vec<Vec<i64>>,
    /// Dimensions of the output, with the number of samples first.
    pub(super) output: Vec<i64>,
    /// Dimensions of each parameter.
    parameters: Vec<Vec<i64>>,
}

impl LayerOperands {
    /// Creates the operands of the pass of `layer` that `signature` describes, for the samples of
    /// `shard`.
    pub(super) fn new(layer: &Layer, signature: Signature, shard: Shard) -> Self {
        let batch = |dims: &[usize]| std::iter::once(shard.samples as i64).chain(sizes(dims)).collect();
        Self {
            signature,
            inputs: layer.input_shapes().iter().map(|shape| batch(shape.dims())).collect(),
            output: batch(layer.output_shape().dims()),
            parameters: layer.parameters().iter().map(|parameter| sizes(&parameter.dims).collect()).collect(),
        }
    }

    /// Returns the buffer of a role that the pass reads.
    pub(super) fn source<'a>(&self, launch: &Launch<'a, '_>, role: Role) -> Result<&'a TorchBuffer, Failure> {
        let index = self.signature.reads.iter().position(|&read| read == role);
        index.and_then(|index| launch.reads.get(index).copied()).ok_or_else(|| absent(role))
    }

    /// Returns the buffer of a role that the pass writes.
    pub(super) fn target<'l>(
        &self,
        launch: &'l mut Launch<'_, '_>,
        role: Role,
    ) -> Result<&'l mut TorchBuffer, Failure> {
        let index = self.signature.writes.iter().position(|&written| written == role);
        let buffer = index.and_then(|index| launch.writes.get_mut(index));
        buffer.map(|buffer| &mut **buffer).ok_or_else(|| absent(role))
    }

    /// Returns the first input, in its shape.
    pub(super) fn input(&self, launch: &Launch<'_, '_>) -> Result<Tensor, Failure> {
        self.input_at(launch, 0)
    }

    /// Returns the input with this index, in its shape.
    pub(super) fn input_at(&self, launch: &Launch<'_, '_>, slot: usize) -> Result<Tensor, Failure> {
        Ok(self.source(launch, Role::Input(slot))?.flat()?.f_view(&self.inputs[slot][..])?)
    }

    /// Returns the first two inputs, each in its shape.
    pub(super) fn two_inputs(&self, launch: &Launch<'_, '_>) -> Result<[Tensor; 2], Failure> {
        Ok([self.input_at(launch, 0)?, self.input_at(launch, 1)?])
    }

    /// Returns the output that the pass reads, in its shape.
    pub(super) fn output(&self, launch: &Launch<'_, '_>) -> Result<Tensor, Failure> {
        Ok(self.source(launch, Role::Output)?.flat()?.f_view(&self.output[..])?)
    }

    /// Returns the gradient of the output, in its shape.
    pub(super) fn output_gradient(&self, launch: &Launch<'_, '_>) -> Result<Tensor, Failure> {
        Ok(self.source(launch, Role::OutputGradient)?.flat()?.f_view(&self.output[..])?)
    }

    /// Returns the parameter tensors, each as a view of its part of the flat buffer.
    pub(super) fn parameters(&self, launch: &Launch<'_, '_>) -> Result<Vec<Tensor>, Failure> {
        self.split_parameters(&self.source(launch, Role::Parameters)?.flat()?)
    }

    /// Returns the `N` tensors that the forward pass saved. Fails if no forward pass saved this
    /// number.
    pub(super) fn saved<'a, const N: usize>(
        &self,
        launch: &Launch<'a, '_>,
    ) -> Result<&'a [Tensor; N], Failure> {
        let unsaved = || library_error("the backward pass was launched before its forward pass");
        match self.source(launch, Role::Saved)?.memory() {
            Memory::Saved(tensors) => tensors.as_slice().try_into().map_err(|_| unsaved()),
            _ => Err(unsaved()),
        }
    }

    /// Returns the last tensor that the forward pass saved, and the `count` ones before it. Fails
    /// if no forward pass saved this number.
    pub(super) fn saved_after<'a>(
        &self,
        launch: &Launch<'a, '_>,
        count: usize,
    ) -> Result<(&'a Tensor, &'a [Tensor]), Failure> {
        let unsaved = || library_error("the backward pass was launched before its forward pass");
        match self.source(launch, Role::Saved)?.memory() {
            Memory::Saved(tensors) => {
                tensors.split_last().filter(|(_, others)| others.len() == count).ok_or_else(unsaved)
            }
            _ => Err(unsaved()),
        }
    }

    /// Replaces the content of the operand with a role that the pass writes by `result`.
    pub(super) fn put(
        &self,
        launch: &mut Launch<'_, '_>,
        role: Role,
        result: &Tensor,
    ) -> Result<(), Failure> {
        self.target(launch, role)?.put(result)
    }

    /// Replaces the content of the operand with a role by the sums of a batch normalisation.
    pub(super) fn put_moments(
        &self,
        launch: &mut Launch<'_, '_>,
        role: Role,
        moments: Moments,
    ) -> Result<(), Failure> {
        self.target(launch, role)?.put_moments(moments);
        Ok(())
    }

    /// Saves tensors for the backward pass. Does nothing if the pass does not write a saved
    /// operand, as in evaluation.
    pub(super) fn save(&self, launch: &mut Launch<'_, '_>, tensors: Vec<Tensor>) -> Result<(), Failure> {
        if self.signature.writes.contains(&Role::Saved) {
            self.target(launch, Role::Saved)?.save(tensors);
        }
        Ok(())
    }

    /// Writes the gradients of the parameter tensors, in their order, to the flat buffer.
    pub(super) fn put_parameter_gradients(
        &self,
        launch: &mut Launch<'_, '_>,
        gradients: &[Tensor],
    ) -> Result<(), Failure> {
        let target = self.target(launch, Role::ParameterGradient)?;
        if let [only] = gradients {
            return target.put(only);
        }
        for (part, gradient) in self.split_parameters(&target.flat()?)?.iter_mut().zip(gradients) {
            part.f_copy_(gradient)?;
        }
        Ok(())
    }

    /// Returns the parts of the parameters' gradient, one for each parameter tensor, to be written
    /// in place.
    pub(super) fn parameter_gradients(&self, launch: &mut Launch<'_, '_>) -> Result<Vec<Tensor>, Failure> {
        let flat = self.target(launch, Role::ParameterGradient)?.flat()?;
        self.split_parameters(&flat)
    }

    fn split_parameters(&self, flat: &Tensor) -> Result<Vec<Tensor>, Failure> {
        let mut start = 0;
        let mut parts = Vec::with_capacity(self.parameters.len());
        for dims in &self.parameters {
            let length = dims.iter().product();
            parts.push(flat.f_narrow(0, start, length)?.f_view(&dims[..])?);
            start += length;
        }
        Ok(parts)
    }

    /// Returns the number of parameter tensors of the layer, such as 2 for weight and bias.
    pub(super) fn parameter_count(&self) -> usize {
        self.parameters.len()
    }

    /// Returns whether the pass writes an operand of this role.
    pub(super) fn writes(&self, role: Role) -> bool {
        self.signature.writes.contains(&role)
    }
}

/// Converts dimensions to libtorch's signed integers.
pub(super) fn sizes(dims: &[usize]) -> impl Iterator<Item = i64> {
    dims.iter().map(|&dim| dim as i64)
}

fn absent(role: Role) -> Failure {
    library_error(&format!("the pass has no operand {role:?}"))
}
