//! Operations that are placed together.

use super::DevicePlacement;
use super::problem::{Operation, PlacementEdge, PlacementProblem};
use crate::{NodeId, Result};

/// A problem in which several operations are joined to one: see [`PlacementProblem::joined`].
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// The smaller problem. An operation has the name of the first one that it stands for.
    pub problem: PlacementProblem,
    /// By operation of the smaller problem: the operations of the larger problem that it stands
    /// for, in topological order.
    pub parts: Vec<Vec<NodeId>>,
}

impl PlacementProblem {
    /// Joins operations with the one whose output they read, such as a normalization and an
    /// activation with the convolution before them. An operation is joined if `joins` returns true
    /// for it, it reads one output only, and no other operation reads that output. The joined
    /// operations have the sum of their durations and memory. O(operations + edges).
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn joined(&self, mut joins: impl FnMut(NodeId) -> bool) -> Result<Joined> {
        let structure = self.structure()?;
        let mut parts: Vec<Vec<NodeId>> = Vec::new();
        let mut part_of = vec![0; self.operations.len()];
        for &operation in &structure.order {
            let only = match structure.producers[operation][..] {
                [only] if structure.consumers[only.operation].len() == 1 => Some(only.operation),
                _ => None,
            };
            let part = only.filter(|_| joins(NodeId(operation))).map_or(parts.len(), |only| part_of[only]);
            if part == parts.len() {
                parts.push(Vec::new());
            }
            parts[part].push(NodeId(operation));
            part_of[operation] = part;
        }
        let mut problem = Self { operations: Vec::new(), edges: Vec::new(), ..*self };
        for part in &parts {
            let whole = part.iter().map(|&NodeId(operation)| &self.operations[operation]);
            let mut all = Operation::new(self.operations[part[0].0].name.clone(), 0.0, 0.0);
            for one in whole {
                all.forward_us += one.forward_us;
                all.backward_us += one.backward_us;
                all.memory_bytes = all.memory_bytes.saturating_add(one.memory_bytes);
            }
            problem.add(all);
        }
        let mut edges: Vec<PlacementEdge> = self.edges.clone();
        for edge in &mut edges {
            (edge.from, edge.to) = (NodeId(part_of[edge.from.0]), NodeId(part_of[edge.to.0]));
        }
        edges.retain(|edge| edge.from != edge.to);
        problem.edges = edges;
        Ok(Joined { problem, parts })
    }
}

impl Joined {
    /// Returns the placement of the larger problem for one of the smaller problem. Its lower bound
    /// holds for placements that keep joined operations together.
    #[must_use]
    pub fn expanded(&self, placement: &DevicePlacement) -> DevicePlacement {
        let operations = self.parts.iter().map(Vec::len).sum();
        let mut devices = vec![0; operations];
        for (part, &device) in self.parts.iter().zip(&placement.devices) {
            for operation in part {
                devices[operation.0] = device;
            }
        }
        let order =
            placement.order.iter().flat_map(|&part| self.parts[part].iter().map(|operation| operation.0));
        DevicePlacement { devices, order: order.collect(), ..placement.clone() }
    }
}
