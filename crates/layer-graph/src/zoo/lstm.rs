//! Long short-term memory layers (Hochreiter and Schmidhuber, 1997) over sequences that are split
//! into chunks of steps, with one opaque layer for each chunk. A *step* is one position of a
//! sequence; a *chunk* is a number of consecutive steps.
//!
//! The layer at chunk `t` depends on the layer below at chunk `t` and on itself at chunk `t - 1`,
//! so that two layers on two GPUs work on different chunks at the same time. All chunks of a layer
//! share its parameters. The output of a chunk is its hidden states, `steps x output`. The next
//! chunk of the same layer is modelled as reading that output instead of the last hidden state and
//! the cells; this matters only if a plan moves a layer to another GPU between two chunks.
//!
//! Costs follow cuDNN: the input products of all steps at once, then for each step the recurrent
//! product, the cells and the projection, if there is one. Recurrent weights are assumed to stay on
//! the chip during a chunk. Dropout on the inputs and residual sums are assumed to be fused into
//! these kernels, since their work is negligible beside the products.

use crate::{GraphError, LayerGraph, LayerId, LayerTensor, Opaque, OpaquePass, Shape};

const ELEMENT_BYTES: usize = 4;

/// Sizes of an LSTM layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lstm {
    /// Number of input features of one step, summed over all inputs.
    pub(super) inputs: usize,
    /// Number of memory cells: features of the cell state, and of the output if there is no
    /// projection.
    pub(super) cells: usize,
    /// Number of features of the output projection (Sak, Senior and Beaufays, 2014); `None` for a
    /// layer without one.
    pub(super) projection: Option<usize>,
    /// Number of bias vectors for the gates: 2 in PyTorch, 1 in TensorFlow.
    pub(super) biases: usize,
}

impl Lstm {
    /// Returns the number of output features.
    fn output(&self) -> usize {
        self.projection.unwrap_or(self.cells)
    }

    /// Returns the parameters with PyTorch's names and layout.
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

    /// Returns the layer for a chunk of `steps` steps.
    fn chunk(&self, steps: usize) -> Opaque {
        let Self { inputs, cells, projection, .. } = *self;
        let (gates, output, projected) = (4 * cells, self.output(), projection.unwrap_or(0));
        let products = 2 * (gates * (inputs + output) + cells * projected);
        // For each cell 5 activations, 3 products and 1 sum; for each gate 3 sums.
        let by_cell = 9 * cells + 3 * gates;
        let kernels_a_step = if projection.is_some() { 3 } else { 2 };
        // Gates are written and read; cells and hidden states are read and written; a projection
        // adds its input.
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
        // Gradients of the inputs, of the biases and of each matrix are computed for all steps at
        // once.
        let backward_kernels = forward_kernels.saturating_add(kernels_a_step + 1);
        Opaque::new("lstm", Shape::sequence(steps, output))
            .parameters(self.parameters())
            .forward(pass(products + by_cell, moved, forward_kernels))
            .backward(pass(2 * (products + by_cell), 2 * moved, backward_kernels))
            .saved_bytes((steps * kept * ELEMENT_BYTES) as u64)
    }

    /// Adds the layer for the next chunk, of `steps` steps, and returns it. `inputs` are its inputs
    /// from other layers. `chunks` holds the layers of the chunks before it, to which it is
    /// appended; the first of them owns the parameters.
    ///
    /// # Errors
    /// That of the graph if the layer cannot be added, such as for a name in use.
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

/// Returns the number of chunks of `steps` steps in a sequence of `positions` steps. `network` is
/// the name of the network in the error.
///
/// # Errors
/// [`GraphError::Shape`] if `steps` does not divide `positions`.
pub(super) fn chunks(network: &str, positions: usize, steps: usize) -> Result<usize, GraphError> {
    if steps > 0 && positions % steps == 0 {
        return Ok(positions / steps);
    }
    let problem = format!("{positions} positions cannot be cut into chunks of {steps}: give a divisor");
    Err(GraphError::Shape { layer: network.into(), problem })
}

/// Returns an opaque operation of one kernel with `flops` floating-point operations for one sample,
/// which reads or writes `elements` elements of single precision. Its backward pass costs the same.
pub(super) fn elementwise(op: &str, output: Shape, flops: usize, elements: usize) -> Opaque {
    let pass = |factor: usize| OpaquePass {
        flops: (factor * flops) as u64,
        bytes: (factor * elements * ELEMENT_BYTES) as u64,
        kernels: 1,
    };
    Opaque::new(op, output).forward(pass(1)).backward(pass(1))
}
