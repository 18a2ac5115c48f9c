//! The parts of split layers in a program document.

use layer_graph::{LayerKind, LayerPart, LayerTensor, Shape, TensorBox};
use serde::Serialize;

/// Fields of a split layer.
#[derive(Serialize)]
pub(super) struct DivisionDocument<'a> {
    split: &'static str,
    /// The parts in their order.
    parts: Vec<PartDocument<'a>>,
}

/// A part of a layer: a layer of another shape.
#[derive(Serialize)]
struct PartDocument<'a> {
    /// The ranks that run the part, in the order of their samples.
    ranks: Vec<usize>,
    op: &'a LayerKind,
    inputs: Vec<&'a [usize]>,
    output: &'a [usize],
    /// Only for a layer that draws random numbers by element.
    #[serde(skip_serializing_if = "Option::is_none")]
    random_box: Option<BoxDocument>,
    /// Only for a loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_positions: Option<usize>,
    parameters: Vec<TensorDocument>,
    statistics: Vec<TensorDocument>,
}

/// A tensor of a part.
#[derive(Serialize)]
struct TensorDocument {
    shape: Vec<usize>,
    #[serde(flatten)]
    region: BoxDocument,
}

/// A box of a row-major view of a whole tensor.
#[derive(Serialize)]
struct BoxDocument {
    dims: Vec<usize>,
    ranges: Vec<[usize; 2]>,
}

impl<'a> DivisionDocument<'a> {
    /// Returns the fields of a layer of which these ranks run these parts, in the order of the
    /// parts for each range of samples; `None` if there are no parts.
    pub(super) fn new(of_ranks: impl Iterator<Item = (usize, &'a LayerPart)>) -> Option<Self> {
        let mut division: Option<Self> = None;
        for (rank, part) in of_ranks {
            let split = part.division.split.label();
            let Self { parts, .. } = division.get_or_insert_with(|| Self { split, parts: Vec::new() });
            match parts.get_mut(part.index) {
                Some(known) if known.ranks.contains(&rank) => {}
                Some(known) => known.ranks.push(rank),
                None => parts.push(PartDocument::new(rank, part)),
            }
        }
        division
    }
}

impl<'a> PartDocument<'a> {
    fn new(rank: usize, part: &'a LayerPart) -> Self {
        let layer = &part.layer;
        let draws = layer.kind().draws_by_element();
        Self {
            ranks: vec![rank],
            op: layer.kind(),
            inputs: layer.input_shapes().iter().map(Shape::dims).collect(),
            output: layer.output_shape().dims(),
            random_box: draws.then(|| BoxDocument::new(&layer.random_box())),
            mean_positions: layer.kind().is_loss().then(|| layer.mean_positions()),
            parameters: tensors(layer.parameters(), &part.parameters),
            statistics: tensors(layer.statistics(), &part.statistics),
        }
    }
}

impl BoxDocument {
    fn new(of: &TensorBox) -> Self {
        Self {
            dims: of.dims.clone(),
            ranges: of.ranges.iter().map(|range| [range.start, range.end]).collect(),
        }
    }
}

fn tensors(tensors: Vec<LayerTensor>, boxes: &[TensorBox]) -> Vec<TensorDocument> {
    let each = tensors.into_iter().zip(boxes);
    each.map(|(tensor, region)| TensorDocument { shape: tensor.dims, region: BoxDocument::new(region) })
        .collect()
}
