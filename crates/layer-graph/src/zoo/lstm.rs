//! A long short-term memory (Hochreiter and Schmidhuber, 1997) over sequences that are cut into chunks of steps, as an opaque layer a chunk.
//!
//! The layer of chunk t needs the layer below at chunk t, and itself at chunk t - 1, so that two layers on two GPUs work at the same time on
//! different chunks. All chunks of a layer share its parameters. The output of a chunk is its hidden states, `steps x output`; that is
//! also what the next chunk of the same layer is taken to need, in place of the last hidden state and the cells: it matters only
//! for a plan that moves a layer from one GPU to another between two chunks.
//!
//! What a chunk costs is counted as cuDNN computes it: the products with the inputs of all steps at once, then for each step the product
//! with the hidden state, the cells, and the projection, if there is one. Recurrent weights are taken to stay on the chip from one step of a
//! chunk to the next. Dropout on the inputs and residual sums are left to the same kernels, which have next to no work beside the products.

use crate::{GraphError, LayerGraph, LayerId, LayerTensor, Opaque, OpaquePass, Shape};

const ELEMENT_BYTES: usize = 4;

/// The sizes of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lstm {
    /// Features of the inputs, all together.
    pub(super) inputs: usize,
    pub(super) cells: usize,
    /// Features of a projection of the cells' outputs, where there is one (Sak, Senior and Beaufays, 2014).
    pub(super) projection: Option<usize>,
    /// Vectors of biases: PyTorch's layers have two, TensorFlow's one.
    pub(super) biases: usize,
}

impl Lstm {
    /// Features of the output.
    fn output(&self) -> usize {
        self.projection.unwrap_or(self.cells)
    }

    /// As PyTorch names and lays them out.
    fn parameters(&self) -> Vec<LayerTensor> {
        let gates = 4 * self.cells;
        let mut parameters = vec![
            LayerTensor::new("weight_ih", [gates, self.inputs]),
            LayerTensor::new("weight_hh", [gates, self.output()]),
        ];
        parameters
            .extend(self.projection.map(|features| LayerTensor::new("weight_hr", [features, self.cells])));
        let names = ["bias_ih", "bias_hh"].into_iter().take(self.biases);
        parameters.extend(names.map(|name| LayerTensor::new(name, [gates])));
        parameters
    }

    /// The layer at a chunk of so many steps.
    fn chunk(&self, steps: usize) -> Opaque {
        let Self { inputs, cells, projection, .. } = *self;
        let (gates, output, projected) = (4 * cells, self.output(), projection.unwrap_or(0));
        let products = 2 * (gates * (inputs + output) + cells * projected);
        // Five activations, three products and a sum for each cell, and three sums for each of its gates.
        let by_cell = 9 * cells + 3 * gates;
        let kernels_a_step = if projection.is_some() { 3 } else { 2 };
        // Gates twice, written and read; cells and hidden states before and after; with a projection also what it projects.
        let projects = if projection.is_some() { 2 * cells } else { 0 };
        let moved = inputs + 4 * gates + 2 * cells + 2 * output + projects;
        let kept = gates + cells + projects / 2;
        let steps_u32 = u32::try_from(steps).unwrap_or(u32::MAX);
        let pass = |flops: usize, elements: usize, kernels: u32| OpaquePass {
            flops: (steps * flops) as u64,
            bytes: (steps * elements * ELEMENT_BYTES) as u64,
            kernels,
        };
        let forward_kernels = steps_u32.saturating_mul(kernels_a_step).saturating_add(1);
        // The gradients of the inputs, of the biases and of each matrix are computed for all steps at once.
        let backward_kernels = forward_kernels.saturating_add(kernels_a_step + 1);
        Opaque::new("lstm", Shape::sequence(steps, output))
            .parameters(self.parameters())
            .forward(pass(products + by_cell, moved, forward_kernels))
            .backward(pass(2 * (products + by_cell), 2 * moved, backward_kernels))
            .saved_bytes((steps * kept * ELEMENT_BYTES) as u64)
    }

    /// Adds the layer at the next chunk, after those that there are.
    pub(super) fn add(
        &self,
        net: &mut LayerGraph,
        name: String,
        steps: usize,
        inputs: &[LayerId],
        chunks: &mut Vec<LayerId>,
    ) -> Result<LayerId, GraphError> {
        let of_layer = chunks.first().zip(chunks.last());
        let all: Vec<LayerId> = inputs.iter().chain(of_layer.map(|(_, last)| last)).copied().collect();
        let added = match of_layer {
            None => net.add(name, self.chunk(steps), all)?,
            Some((&first, _)) => net.add_tied(name, self.chunk(steps), all, first)?,
        };
        chunks.push(added);
        Ok(added)
    }
}

/// Into how many chunks of so many steps a sequence is cut.
pub(super) fn chunks(network: &str, positions: usize, steps: usize) -> Result<usize, GraphError> {
    if steps > 0 && positions % steps == 0 {
        return Ok(positions / steps);
    }
    let problem = format!("{positions} positions cannot be cut into chunks of {steps}: give a divisor");
    Err(GraphError::Shape { layer: network.into(), problem })
}

/// An operation that reads and writes each of these elements of a sample once, in one kernel, and as many again backward.
pub(super) fn elementwise(op: &str, output: Shape, flops: usize, elements: usize) -> Opaque {
    let pass = |factor: usize| OpaquePass {
        flops: (factor * flops) as u64,
        bytes: (factor * elements * ELEMENT_BYTES) as u64,
        kernels: 1,
    };
    Opaque::new(op, output).forward(pass(1)).backward(pass(1))
}
