//! Positions of steps in a micro-batch.

use super::MemoryModel;

/// A point of time in a micro-batch.
pub(crate) type Position = u32;

/// Positions of the steps of a micro-batch.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// By node: its place in the order of the forward pass.
    pub(super) place: Vec<u32>,
    /// By node: the position of its repeated forward step, if it has one.
    pub(super) repeated: Vec<Option<Position>>,
    /// By node: the position of its backward step.
    pub(super) backward: Vec<Position>,
    /// By node: the first of three positions at which its output's gradient is collected: sums by
    /// layout, moves, and the sum of all.
    pub(super) collected: Vec<Position>,
    /// By node that owns parameters: the position at which gradients of several users or
    /// micro-batches are added up.
    pub(super) summed: Vec<Position>,
    /// The position of the optimizer, the last one.
    pub(super) end: Position,
}

impl Positions {
    /// Position at which the inputs of the node at a place arrive. The node's step is at the next
    /// one.
    pub(super) fn arrival(place: u32) -> Position {
        2 * place
    }

    /// Position of the forward step of a node.
    pub(super) fn forward(&self, node: usize) -> Position {
        Self::arrival(self.place[node]) + 1
    }

    /// Computes the positions. O(nodes + edges).
    pub(super) fn new(model: &MemoryModel<'_>) -> Self {
        let nodes = model.order.len();
        let mut positions = Self {
            place: vec![0; nodes],
            repeated: vec![None; nodes],
            backward: vec![0; nodes],
            collected: vec![0; nodes],
            summed: vec![0; nodes],
            end: 0,
        };
        for (place, &node) in model.order.iter().enumerate() {
            positions.place[node as usize] = place as u32;
        }
        let structure = model.structure;
        let mut missing: Vec<usize> = structure.consumers.iter().map(Vec::len).collect();
        let mut next = Self::arrival(nodes as u32);
        for place in (0..nodes).rev() {
            for node in model.recomputation.before_backward(model.order, place) {
                positions.repeated[node] = Some(next);
                next += 1;
            }
            let node = model.order[place] as usize;
            positions.backward[node] = next;
            if !structure.needs_gradient[node] {
                continue;
            }
            next += 1;
            for &producer in &structure.producers[node] {
                missing[producer] -= 1;
                if missing[producer] == 0 {
                    positions.collected[producer] = next;
                    let consumers = &structure.consumers[producer];
                    let is_here = consumers.len() == 1
                        && model.tensors.output_gradients[producer] == model.tensors.input_gradients[node];
                    next += if is_here { 0 } else { 3 };
                }
            }
            positions.summed[node] = positions.backward[node];
            let is_sum = structure.users[node].len() > 1 || model.problem.micro_batches.get() > 1;
            if is_sum && !structure.users[node].is_empty() {
                positions.summed[node] = next;
                next += 1;
            }
        }
        positions.end = next;
        positions
    }
}
