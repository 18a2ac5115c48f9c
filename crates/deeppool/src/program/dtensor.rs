//! Placements of tensors as PyTorch's `DTensor` names them: `deeppool/dtensor/v1`.
//!
//! A layer has a *mesh*: its ranks as rows of the ranks with the same samples. A tensor has one
//! placement for each dimension of the mesh.

use layer_graph::{Layer, LayerGraph, LayerId, NetworkSplits, TensorBox, TensorView, Values};
use serde::Serialize;

use super::Placement;
use crate::Error;

const SCHEMA: &str = "deeppool/dtensor/v1";

#[derive(Serialize)]
struct DtensorDocument<'a> {
    schema: &'static str,
    model: &'a str,
    world: usize,
    layers: Vec<LayerDocument<'a>>,
}

#[derive(Serialize)]
struct LayerDocument<'a> {
    name: &'a str,
    mesh: MeshDocument,
    parameters: Vec<TensorDocument>,
    /// In the order of the producers; their tensors have a batch dimension in front.
    inputs: Vec<TensorDocument>,
    output: TensorDocument,
}

#[derive(Serialize)]
struct MeshDocument {
    /// Names of the dimensions: `samples`, and the label of the split if the layer has one.
    dim_names: Vec<&'static str>,
    /// Sizes of the dimensions.
    shape: Vec<usize>,
    /// The ranks in row-major order.
    ranks: Vec<usize>,
}

#[derive(Serialize)]
struct TensorDocument {
    /// Name of a parameter, or of the layer that produces an input or output.
    name: String,
    /// Dimensions of the whole tensor. An input or output has the global batch in front.
    shape: Vec<usize>,
    /// Expressions of `torch.distributed.tensor`, by dimension of the mesh.
    placements: Vec<String>,
}

impl Placement {
    /// Returns the placements of the parameters, inputs and outputs of all layers as JSON of the
    /// format `deeppool/dtensor/v1`, as `torch.distributed.tensor` names them. `batch` is the
    /// number of samples of the global batch, the first dimension of inputs and outputs.
    ///
    /// A layer has a mesh of one dimension, `samples`, or of two, `samples` and its split. An
    /// output of a layer that is split by inputs is `Partial()`, and so is its bias, which the
    /// first part has and of which the other parts hold zero. A tensor of several blocks of units,
    /// as the queries, keys and values of an attention by heads, is `_StridedShard(dim, factor)`
    /// with the number of blocks as factor: part *i* of *n* has the chunks *i*, *i* + *n*, ... of
    /// *n* x blocks equal chunks.
    ///
    /// # Errors
    /// [`Error::Placement`] if the samples, units or positions of a layer are divided into parts of
    /// different sizes, for which a `DTensor` has other sizes. [`Error::Graph`] if a layer cannot
    /// be split.
    pub fn to_dtensor_json(&self, network: &LayerGraph, batch: usize) -> Result<String, Error> {
        let splits = NetworkSplits::new(network);
        let ids = network.computing_layers();
        let layers = ids.map(|(id, layer)| self.dtensors(network, &splits, (id, layer), batch));
        let layers = layers.collect::<Result<Vec<_>, Error>>()?;
        let document = DtensorDocument { schema: SCHEMA, model: network.name(), world: self.world(), layers };
        serde_json::to_string_pretty(&document).map_err(|error| Error::Placement(error.to_string()))
    }

    /// Returns the placements of the tensors of a layer.
    fn dtensors<'a>(
        &self,
        network: &LayerGraph,
        splits: &NetworkSplits<'_>,
        (id, layer): (LayerId, &'a Layer),
        batch: usize,
    ) -> Result<LayerDocument<'a>, Error> {
        let (division, ranks) = (self.division(id), self.ranks(id));
        let ranges = self.sample_ranges(id);
        let uneven = |what: &str, count: usize, parts: usize| {
            let name = layer.name();
            Error::Placement(format!(
                "layer `{name}` has {count} {what} in {parts} parts of different sizes, which a DTensor \
                 divides into other sizes"
            ))
        };
        if batch % ranges != 0 {
            return Err(uneven("samples", batch, ranges));
        }
        let mut mesh =
            MeshDocument { dim_names: vec!["samples"], shape: vec![ranges], ranks: ranks.to_vec() };
        if !division.is_whole() {
            mesh.dim_names.push(division.split.label());
            mesh.shape.push(division.parts);
        }
        let values = splits.values(id, division.split);
        let activation = |producer: LayerId, values: Values| {
            let whole = network.layer(producer);
            let dims = whole.output_shape().dims();
            let mut view = splits.view(producer);
            if network.is_input(producer) && values == Values::Positions {
                // Tokens have one dimension, the positions.
                view.positions = splits.max_parts(id, division.split);
            }
            let mut placements = vec![shard(0, 1)];
            if !division.is_whole() {
                let (what, count) = match values {
                    Values::Ranges => ("units", view.units),
                    Values::Positions => ("positions", view.positions),
                    Values::Copies | Values::Addends => ("parts", division.parts),
                };
                if count % division.parts != 0 {
                    return Err(uneven(what, count, division.parts));
                }
                placements.push(match values {
                    Values::Copies => replicate(),
                    Values::Addends => partial(),
                    Values::Ranges => shard_of(dims, view, 1),
                    Values::Positions => shard(1, 1),
                });
            }
            let shape = std::iter::once(batch).chain(dims.iter().copied()).collect();
            Ok(TensorDocument { name: whole.name().into(), shape, placements })
        };
        let parts = |index: usize| Ok::<_, Error>(splits.part(id, division, index)?.parameters);
        let (first, last) = (parts(0)?, parts(division.parts - 1)?);
        let parameters = layer.parameters().into_iter().enumerate().map(|(index, tensor)| {
            let mut placements = vec![replicate()];
            if !division.is_whole() {
                placements.push(match (&first[index], last.get(index)) {
                    // The bias of a layer that is split by inputs.
                    (_, None) => partial(),
                    (of_first, Some(of_last)) if of_first == of_last => replicate(),
                    (TensorBox { dims, .. }, _) => {
                        let view = TensorView { positions: 1, outer: dims[0], units: dims[1], inner: 1 };
                        shard_of(&tensor.dims, view, 0)
                    }
                });
            }
            TensorDocument { name: layer.tensor_name(&tensor), shape: tensor.dims, placements }
        });
        let parameters = parameters.collect();
        let producers = network.producers(id).into_iter();
        let inputs = producers.map(|producer| activation(producer, values.input));
        Ok(LayerDocument {
            name: layer.name(),
            mesh,
            parameters,
            inputs: inputs.collect::<Result<_, _>>()?,
            output: activation(id, values.output)?,
        })
    }
}

/// Returns the placement of a tensor of the given dimensions, of which each part has a range of the
/// units of a view. `offset` is added to the dimension.
fn shard_of(dims: &[usize], view: TensorView, offset: usize) -> String {
    // Layers whose tensors have no such dimension cannot be split: `NetworkSplits` has checked it.
    view.divided_dim(dims)
        .map_or_else(replicate, |dim| shard(dim + offset, view.outer / dims[..dim].iter().product::<usize>()))
}

/// Returns the placement of a dimension whose parts have a range of each of the blocks.
fn shard(dim: usize, blocks: usize) -> String {
    match blocks {
        1 => format!("Shard({dim})"),
        _ => format!("_StridedShard({dim}, split_factor={blocks})"),
    }
}

fn replicate() -> String {
    "Replicate()".into()
}

fn partial() -> String {
    "Partial()".into()
}
