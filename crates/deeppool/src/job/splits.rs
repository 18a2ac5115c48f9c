//! Parts of split layers, and the times of the movements of their tensors.

use std::cell::RefCell;

use burst_planner::{NodeId, TensorLayout, Values};
use collectives::{LinkModel, Traffic};
use layer_engine::{Precision, Storage};
use layer_graph::{Layer, LayerId, TensorView};
use rustc_hash::FxHashMap;

use super::PlannerNodes;
use super::layer_memory::LayerBytes;
use super::nodes::NodeDivision;
use super::rank_lists::RankListIndices;
use crate::costs::{PartRatios, micros};
use crate::program::{ELEMENT_BYTES, tensor_boxes, view_of_scalars};

/// The largest part of a split layer.
pub(super) struct SplitPart {
    /// Number of parts.
    pub(super) parts: usize,
    pub(super) layer: Layer,
    /// Memory of the part.
    pub(super) bytes: LayerBytes,
}

/// The splits of the nodes of a job.
pub(super) struct Splits {
    /// By node and split.
    parts: Vec<Vec<SplitPart>>,
    /// View of a sample of the output, by node.
    views: Vec<TensorView>,
    /// Index of the view of each node among the different ones.
    view_indices: Vec<usize>,
    /// Storage of the outputs.
    storage: Storage,
    /// Lists of ranks of layouts.
    lists: RefCell<RankListIndices>,
    /// Traffic of movements between layouts; `None` if one is not possible.
    traffic: RefCell<FxHashMap<Movement, Option<Traffic>>>,
    /// By node: the first node whose layer and parts are of the same kinds and shapes, or the node
    /// itself if such parts may take different times.
    alike: Vec<usize>,
    /// Ratios of the times of parts to those of whole layers, by the first node that is alike, the
    /// split and the number of samples; `None` if they are not known.
    ratios: RefCell<FxHashMap<(usize, usize, usize), Option<PartRatios>>>,
}

/// Number of samples, numbers of positions and units of a sample, and both layouts: index of the
/// list of ranks, parts and values.
type Movement = (usize, [usize; 2], [(u32, usize, Values); 2]);

impl Splits {
    /// Returns the parts of all nodes; `None` if no layer may be split. `needs_gradient` is whether
    /// each layer needs a gradient, by layer index. `alike_in_time` is whether parts of the same
    /// kind and shapes take the same times, in relation to their layers.
    pub(super) fn new(
        nodes: &PlannerNodes<'_>,
        needs_gradient: &[bool],
        precision: Precision,
        alike_in_time: bool,
    ) -> Option<Self> {
        let divisions = nodes.all_divisions()?;
        let network = nodes.network();
        let of_node = |(&id, all): (&LayerId, &Vec<NodeDivision>)| {
            let part = |NodeDivision { division, part }: &NodeDivision| SplitPart {
                parts: division.parts,
                layer: part.clone(),
                bytes: LayerBytes::of(network, (id, part), needs_gradient, precision),
            };
            all.iter().map(part).collect()
        };
        let parts: Vec<Vec<SplitPart>> =
            nodes.layers().iter().zip(&divisions.of_nodes).map(of_node).collect();
        let mut first: Vec<usize> = Vec::new();
        let mut like = |node: usize| {
            if !alike_in_time {
                return node;
            }
            let layers = |node: usize| {
                let whole = network.layer(nodes.layer(NodeId(node)));
                std::iter::once(whole).chain(parts[node].iter().map(|part| &part.layer))
            };
            let shape = |node| layers(node).map(|layer| (layer.kind(), layer.input_shapes()));
            let known = first.iter().copied().find(|&other| shape(other).eq(shape(node)));
            known.unwrap_or_else(|| {
                first.push(node);
                node
            })
        };
        let alike = (0..parts.len()).map(&mut like).collect();
        let views: Vec<TensorView> = nodes.layers().iter().map(|&id| divisions.splits.view(id)).collect();
        let mut different = FxHashMap::default();
        let mut index = |view: &TensorView| {
            let next = different.len();
            *different.entry(*view).or_insert(next)
        };
        let view_indices = views.iter().map(&mut index).collect();
        let storage = if precision == Precision::Bf16 { Storage::Bf16 } else { Storage::Scalar };
        Some(Self {
            parts,
            view_indices,
            views,
            storage,
            lists: RefCell::default(),
            traffic: RefCell::default(),
            alike,
            ratios: RefCell::default(),
        })
    }

    /// Returns the index of the view of a node's output among the different ones of the network.
    pub(super) fn view_index(&self, node: NodeId) -> usize {
        self.view_indices[node.0]
    }

    /// Returns the largest part of a node with a split.
    pub(super) fn part(&self, node: NodeId, split: usize) -> Option<&SplitPart> {
        self.parts.get(node.0)?.get(split)
    }

    /// Returns the ratios of the times of the largest part of a node with a split to those of the
    /// whole layer, which `ask` computes for the part if they are new. `None` if they are not
    /// known.
    pub(super) fn ratios(
        &self,
        (node, split): (NodeId, usize),
        samples: usize,
        ask: impl FnOnce(&Layer) -> Option<PartRatios>,
    ) -> Option<PartRatios> {
        let part = self.part(node, split)?;
        let key = (self.alike[node.0], split, samples);
        *self.ratios.borrow_mut().entry(key).or_insert_with(|| ask(&part.layer))
    }

    /// Returns the view of a sample of a node's output.
    pub(super) fn view(&self, node: NodeId) -> TensorView {
        self.views[node.0]
    }

    /// Returns the time in which a tensor moves between layouts, microseconds.
    pub(super) fn transfer(
        &self,
        samples: usize,
        view: TensorView,
        [from, to]: [TensorLayout<'_>; 2],
        link: &LinkModel,
    ) -> f64 {
        let sides = [from, to].map(|side| (side.parts, layer_values(side.values)));
        let view = view_of_scalars(view, self.storage, sides);
        let mut lists = self.lists.borrow_mut();
        let layouts = [from, to].map(|side| (lists.index(side.ranks), side.parts, side.values));
        let mut known = self.traffic.borrow_mut();
        // If parts have the same number of units, these belong to the item, as the dimensions do
        // that no layout divides.
        let merged = |dim: usize, divided: Values| {
            let parts = |side: TensorLayout<'_>| if side.values == divided { side.parts } else { 1 };
            let parts = parts(from) * parts(to) / gcd(parts(from), parts(to));
            if dim % parts == 0 { parts } else { dim }
        };
        let positions = merged(view.positions, Values::Positions);
        let units = merged(view.units, Values::Ranges);
        let traffic = known.entry((samples, [positions, units], layouts)).or_insert_with(|| {
            let terms = if from.values == Values::Addends { from.parts } else { 1 };
            let boxed = TensorView { positions, outer: positions, units, inner: 1 };
            let boxes = |side: TensorLayout<'_>| {
                tensor_boxes((samples, terms, boxed), (side.ranks, side.parts), layer_values(side.values))
            };
            link.traffic_between(&boxes(from).ok()?, &boxes(to).ok()?).ok()
        });
        let merged = (view.outer / positions) * (view.units / units);
        let item_bytes = (merged * self.storage.scalars(view.inner)) as u64 * ELEMENT_BYTES;
        traffic.as_ref().map_or(0.0, |traffic| micros(link.traffic_time(traffic, item_bytes)))
    }
}

/// Returns the greatest common divisor of two positive numbers.
fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

/// Returns the values of the parts of a tensor in the planner, which does not know layers.
pub(super) fn planner_values(values: layer_graph::Values) -> Values {
    match values {
        layer_graph::Values::Copies => Values::Copies,
        layer_graph::Values::Ranges => Values::Ranges,
        layer_graph::Values::Addends => Values::Addends,
        layer_graph::Values::Positions => Values::Positions,
    }
}

/// Returns the values that the planner's stand for.
pub(super) fn layer_values(values: Values) -> layer_graph::Values {
    match values {
        Values::Copies => layer_graph::Values::Copies,
        Values::Ranges => layer_graph::Values::Ranges,
        Values::Addends => layer_graph::Values::Addends,
        Values::Positions => layer_graph::Values::Positions,
    }
}
