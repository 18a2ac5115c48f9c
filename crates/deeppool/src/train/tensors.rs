//! The state of a rank as named tensors, as in checkpoints and files of weights: parameters,
//! running statistics of batch normalisation, and velocities (momentum buffers of SGD). Names are
//! PyTorch's, such as `conv1.weight`.

use std::collections::BTreeMap;

use layer_engine::{Role, Storage};
use layer_graph::{LayerGraph, LayerId, LayerTensor, TensorBox};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::Error;
use crate::program::{BufferId, Contents, RankProgram};
use crate::runtime::{Backend, RankDevice, RankState};

/// Suffix that is appended to the name of a parameter for the name of its velocity.
pub(super) const VELOCITY: &str = ".velocity";

/// Suffix of the counters that PyTorch saves with the running statistics of batch normalisation.
/// They are ignored.
const COUNTER: &str = ".num_batches_tracked";

/// Dimensions of a tensor, outermost first, and its elements in row-major order.
pub(super) type Tensor = (Vec<usize>, Vec<f32>);
/// Tensors by name.
pub(super) type Tensors = BTreeMap<String, Tensor>;

/// A state buffer: its layer, the suffix of its tensors' names, and its tensors in order.
struct StateBuffer {
    id: BufferId,
    /// Whether the buffer is rounded from another one, which has tensors of the same names.
    is_rounded: bool,
    layer: LayerId,
    suffix: &'static str,
    /// The whole layer's tensors, with the box of the elements that the rank has.
    parts: Vec<(LayerTensor, TensorBox)>,
}

impl StateBuffer {
    fn name(&self, network: &LayerGraph, part: &LayerTensor) -> String {
        format!("{}{}", network.layer(self.layer).tensor_name(part), self.suffix)
    }
}

fn state_buffers<'a>(
    network: &'a LayerGraph,
    program: &'a RankProgram,
) -> impl Iterator<Item = StateBuffer> + 'a {
    let buffers = program.buffers[..program.state_buffers].iter().enumerate();
    buffers.map(|(index, spec)| {
        let (layer, suffix, role) = match spec.contents {
            Contents::Operand(layer, Role::Statistics) => (layer, "", Role::Statistics),
            Contents::Operand(layer, _) | Contents::Master(layer) => (layer, "", Role::Parameters),
            Contents::Velocity(layer) => (layer, VELOCITY, Role::Parameters),
            // Programs have no other state.
            _ => (network.input(), "", Role::Parameters),
        };
        let parts = program.tensors(network, layer, role);
        let is_rounded = spec.storage != Storage::Scalar;
        StateBuffer { id: BufferId(index), is_rounded, layer, suffix, parts }
    })
}

/// Copies the tensors of the layers for which `is_wanted` is true from a rank's state. Elements
/// that the rank does not have, of other parts of a split layer, are zero. Parameters are the
/// master parameters if there are any.
///
/// # Errors
/// If the device fails.
pub(super) fn read<B: Backend>(
    network: &LayerGraph,
    program: &RankProgram,
    (state, device): (&RankState<B>, &mut RankDevice<B>),
    is_wanted: impl Fn(LayerId) -> bool,
) -> Result<Tensors, Error> {
    let mut tensors = Tensors::new();
    let is_read = |buffer: &StateBuffer| is_wanted(buffer.layer) && !buffer.is_rounded;
    for buffer in state_buffers(network, program).filter(is_read) {
        let elements = buffer.parts.iter().map(|(_, held)| held.elements()).sum();
        let values = state.read(device, buffer.id, elements)?;
        let mut rest = values.as_slice();
        for (tensor, held) in &buffer.parts {
            let mut whole = vec![0.0; tensor.elements()];
            for run in held.runs() {
                let (own, others) = rest.split_at(run.len());
                rest = others;
                whole[run].copy_from_slice(own);
            }
            tensors.insert(buffer.name(network, tensor), (tensor.dims.clone(), whole));
        }
    }
    Ok(tensors)
}

/// Returns the name of the first tensor, by name, with an element that is infinite or NaN; `None`
/// if all elements are finite.
pub(super) fn first_not_finite(tensors: &Tensors) -> Option<&str> {
    let is_finite = |(_, values): &Tensor| values.iter().all(|value| value.is_finite());
    tensors.iter().find(|(_, tensor)| !is_finite(tensor)).map(|(name, _)| name.as_str())
}

/// Returns a message about the first tensor of a rank's state that is missing in `tensors` or has
/// another shape there; `None` if all fit. Velocities may be missing unless `needs_velocities`.
pub(super) fn first_mismatch(
    network: &LayerGraph,
    program: &RankProgram,
    tensors: &Tensors,
    needs_velocities: bool,
) -> Option<String> {
    state_buffers(network, program).find_map(|buffer| {
        buffer.parts.iter().find_map(|(tensor, _)| {
            let name = buffer.name(network, tensor);
            match tensors.get(&name) {
                None if !needs_velocities && buffer.suffix == VELOCITY => None,
                None => Some(format!("tensor `{name}` is missing")),
                Some((dims, _)) if !have_same_order(dims, &tensor.dims) => {
                    Some(format!("tensor `{name}` is {dims:?}, expected {:?}", tensor.dims))
                }
                Some(_) => None,
            }
        })
    })
}

/// Returns whether tensors of these dimensions have the same elements in the same order. Dimensions
/// of 1 may differ: PyTorch stores the factors of channels as `channels x 1 x 1`.
pub(super) fn have_same_order(a: &[usize], b: &[usize]) -> bool {
    let is_long = |dim: &&usize| **dim != 1;
    a.iter().filter(is_long).eq(b.iter().filter(is_long))
}

/// Copies `tensors` of the right shapes to a rank's state, parameters also to their master
/// parameters; of split layers, the elements that the rank has. State without a tensor is
/// unchanged, and tensors of other layers are ignored.
///
/// # Errors
/// If the device fails.
pub(super) fn write<B: Backend>(
    network: &LayerGraph,
    program: &RankProgram,
    (state, device): (&mut RankState<B>, &mut RankDevice<B>),
    tensors: &Tensors,
) -> Result<(), Error> {
    for buffer in state_buffers(network, program) {
        let mut values = Vec::new();
        let is_complete = buffer.parts.iter().all(|(tensor, held)| {
            let Some((_, whole)) = tensors.get(&buffer.name(network, tensor)) else { return false };
            held.runs().into_iter().for_each(|run| values.extend_from_slice(&whole[run]));
            true
        });
        if is_complete && !values.is_empty() {
            state.write(device, buffer.id, &values)?;
        }
    }
    Ok(())
}

/// Reads the tensors from the content of a safetensors file. PyTorch's counters of batches
/// (`num_batches_tracked`) are ignored.
///
/// # Errors
/// A message if it is not a safetensors file, or with the first tensor by name that is not in
/// single precision.
pub(super) fn parse(bytes: &[u8]) -> Result<Tensors, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let tensor = |(name, view): (&str, TensorView<'_>)| {
        if view.dtype() != Dtype::F32 {
            return Err(format!("tensor `{name}` is not in single precision"));
        }
        let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Ok((name.to_owned(), (view.shape().to_vec(), values.collect())))
    };
    // Sorted, so that the error names the first tensor by name.
    let mut tensors: Vec<_> = file.iter().filter(|(name, _)| !name.ends_with(COUNTER)).collect();
    tensors.sort_unstable_by_key(|&(name, _)| name);
    tensors.into_iter().map(tensor).collect()
}

/// Returns the content of a safetensors file with the given tensors, and names and values as its
/// metadata.
///
/// # Errors
/// A message if a tensor cannot be stored.
pub(super) fn serialize(
    tensors: &Tensors,
    metadata: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<u8>, String> {
    let bytes = |(_, (_, values)): (&String, &Tensor)| -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    };
    let bytes: Vec<Vec<u8>> = tensors.iter().map(bytes).collect();
    let views: Result<Vec<_>, _> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, (dims, _)), bytes)| Ok((name, TensorView::new(Dtype::F32, dims.clone(), bytes)?)))
        .collect();
    let metadata = metadata.into_iter().collect();
    views.and_then(|views| safetensors::serialize(views, Some(metadata))).map_err(|error| error.to_string())
}
