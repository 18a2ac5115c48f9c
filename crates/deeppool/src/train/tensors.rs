//! Parameters and what else is trained, as tensors with names: what checkpoints and files of weights have in them.

use std::collections::BTreeMap;

use layer_engine::Role;
use layer_graph::{LayerGraph, LayerId, LayerTensor};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::Error;
use crate::program::{BufferId, Contents, RankProgram};
use crate::runtime::{Backend, RankDevice, RankState};

/// What the name of a velocity ends in, after that of its parameter.
pub(super) const VELOCITY: &str = ".velocity";

/// What PyTorch saves beside the running statistics of a batch normalisation, as integers, and nothing here needs.
const COUNTER: &str = ".num_batches_tracked";

/// A tensor's dimensions and elements.
pub(super) type Tensor = (Vec<usize>, Vec<f32>);
/// By name.
pub(super) type Tensors = BTreeMap<String, Tensor>;

/// A state buffer: its layer, what its tensors' names end in, and the tensors in it, one after another.
struct StateBuffer {
    id: BufferId,
    layer: LayerId,
    suffix: &'static str,
    parts: Vec<LayerTensor>,
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
        let (layer, suffix, parts) = match spec.contents {
            Contents::Operand(layer, Role::Statistics) => (layer, "", network.layer(layer).statistics()),
            Contents::Operand(layer, _) => (layer, "", network.layer(layer).parameters()),
            Contents::Velocity(layer) => (layer, VELOCITY, network.layer(layer).parameters()),
            // No program has other state.
            _ => (network.input(), "", Vec::new()),
        };
        StateBuffer { id: BufferId(index), layer, suffix, parts }
    })
}

/// The tensors of some layers that a rank has.
pub(super) fn read<B: Backend>(
    network: &LayerGraph,
    program: &RankProgram,
    (state, device): (&RankState<B>, &mut RankDevice<B>),
    is_wanted: impl Fn(LayerId) -> bool,
) -> Result<Tensors, Error> {
    let mut tensors = Tensors::new();
    for buffer in state_buffers(network, program).filter(|buffer| is_wanted(buffer.layer)) {
        let elements = buffer.parts.iter().map(LayerTensor::elements).sum();
        let values = state.read(device, buffer.id, elements)?;
        let mut rest = values.as_slice();
        for part in &buffer.parts {
            let (own, others) = rest.split_at(part.elements());
            rest = others;
            tensors.insert(buffer.name(network, part), (part.dims.clone(), own.to_vec()));
        }
    }
    Ok(tensors)
}

/// The name of the first tensor with a number that is not finite.
pub(super) fn first_not_finite(tensors: &Tensors) -> Option<&str> {
    let is_finite = |(_, values): &Tensor| values.iter().all(|value| value.is_finite());
    tensors.iter().find(|(_, tensor)| !is_finite(tensor)).map(|(name, _)| name.as_str())
}

/// The first tensor of a rank's state that is missing or of another shape, and how. Velocities may be missing where they are not needed.
pub(super) fn misfit(
    network: &LayerGraph,
    program: &RankProgram,
    tensors: &Tensors,
    needs_velocities: bool,
) -> Option<String> {
    state_buffers(network, program).find_map(|buffer| {
        buffer.parts.iter().find_map(|part| {
            let name = buffer.name(network, part);
            match tensors.get(&name) {
                None if !needs_velocities && buffer.suffix == VELOCITY => None,
                None => Some(format!("tensor `{name}` is missing")),
                Some((dims, _)) if *dims != part.dims => {
                    Some(format!("tensor `{name}` is {dims:?}, expected {:?}", part.dims))
                }
                Some(_) => None,
            }
        })
    })
}

/// Puts tensors into a rank's state, which all that are there fit; what is missing stays as it is.
pub(super) fn write<B: Backend>(
    network: &LayerGraph,
    program: &RankProgram,
    (state, device): (&mut RankState<B>, &mut RankDevice<B>),
    tensors: &Tensors,
) -> Result<(), Error> {
    for buffer in state_buffers(network, program) {
        let of_parts: Option<Vec<&Tensor>> =
            buffer.parts.iter().map(|part| tensors.get(&buffer.name(network, part))).collect();
        if let Some(of_parts) = of_parts.filter(|parts| !parts.is_empty()) {
            let values: Vec<f32> = of_parts.into_iter().flat_map(|(_, values)| values).copied().collect();
            state.write(device, buffer.id, &values)?;
        }
    }
    Ok(())
}

/// The tensors of a safetensors file.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<Tensors, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let tensor = |(name, view): (&str, TensorView<'_>)| {
        if view.dtype() != Dtype::F32 {
            return Err(format!("tensor `{name}` is not in single precision"));
        }
        let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Ok((name.to_owned(), (view.shape().to_vec(), values.collect())))
    };
    file.iter().filter(|(name, _)| !name.ends_with(COUNTER)).map(tensor).collect()
}

/// A safetensors file of these tensors.
///
/// # Errors
/// What is wrong with them.
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
