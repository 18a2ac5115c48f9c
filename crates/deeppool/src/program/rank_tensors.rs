//! The elements that a rank holds of the parameters and statistics of a layer, and the buffers that
//! a redistribution writes on a rank.

use layer_engine::Role;
use layer_graph::{LayerGraph, LayerId, LayerTensor, TensorBox};

use super::{BufferId, CollectiveOp, RankProgram, Step};
use crate::Error;

impl RankProgram {
    /// Returns the parameters of a layer, or its statistics if `role` is [`Role::Statistics`], of
    /// which the rank has elements: the tensors of the whole layer, each with the box of these
    /// elements, in the order of the rank's buffer.
    pub(crate) fn tensors(
        &self,
        network: &LayerGraph,
        id: LayerId,
        role: Role,
    ) -> Vec<(LayerTensor, TensorBox)> {
        let layer = network.layer(id);
        let is_statistics = role == Role::Statistics;
        let tensors = if is_statistics { layer.statistics() } else { layer.parameters() };
        if let Some(part) = self.parts.get(&id) {
            let boxes = if is_statistics { &part.statistics } else { &part.parameters };
            return tensors.into_iter().zip(boxes.iter().cloned()).collect();
        }
        let whole = |tensor: LayerTensor| (tensor.clone(), TensorBox::whole(tensor.dims));
        tensors.into_iter().map(whole).collect()
    }
}

/// Buffers of a rank that a redistribution writes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RedistributionWrites {
    /// The values that the rank has afterwards; `None` if it has none.
    pub(crate) target: Option<BufferId>,
    /// Memory for the values that the rank sends, and for those that it receives; `None` if they
    /// are consecutive in their buffers.
    pub(crate) packed: [Option<BufferId>; 2],
}

impl RedistributionWrites {
    /// Returns the buffers that a collective step of a rank writes; none if `op` is no
    /// redistribution.
    ///
    /// # Errors
    /// [`Error::Collectives`] if the redistributed array is too large.
    pub(crate) fn of_step(op: &CollectiveOp, step: &Step, rank: usize) -> Result<Self, Error> {
        let CollectiveOp::Redistribute { redistribution, item_elements, .. } = op else {
            return Ok(Self::default());
        };
        let is_packed = redistribution.packed_len(rank, *item_elements)?.map(|len| len > 0);
        let packed_count = is_packed.iter().filter(|&&is_packed| is_packed).count();
        let mut writes = step.writes.iter().copied();
        let has_target = step.writes.len() > packed_count;
        let target = if has_target { writes.next() } else { None };
        Ok(Self { target, packed: is_packed.map(|is_packed| is_packed.then(|| writes.next()).flatten()) })
    }
}
