//! Random splits of the nodes of a problem.

use super::problems::{Draws, random_order, some_ranks};
use crate::costs::CostBounds;
use crate::{
    Arrangement, CostModel, NodeId, NodeMemory, NodeSplit, PlanProblem, ShardSize, SplitCosts, StepTimes,
    SynchronizedBytes, TableCosts, TensorLayout, Values,
};

/// Values of the input, its gradient and the output of the splits of layers: copies of the layer,
/// its output features, features of the input and the output, its input features, positions of
/// which all parts have all parameters, and positions with a loss or own parameters.
const KINDS: [[Values; 3]; 6] = [
    [Values::Copies; 3],
    [Values::Copies, Values::Addends, Values::Ranges],
    [Values::Ranges; 3],
    [Values::Ranges, Values::Ranges, Values::Addends],
    [Values::Positions; 3],
    [Values::Positions, Values::Positions, Values::Addends],
];

/// Index of the kinds whose parts have all parameters: copies, and positions.
const WITH_ALL_PARAMETERS: [usize; 2] = [0, 4];

/// Gives each node up to four random splits, with up to as many parts as there are GPUs. Nothing
/// happens with one GPU. Nodes that share parameters have splits of the same parts.
pub fn add_random_splits(problem: &mut PlanProblem, seed: u64) {
    let mut draws = Draws::new(seed ^ 0xbb67_ae85_84ca_a73b);
    if problem.gpus < 2 {
        return;
    }
    for index in 0..problem.nodes.len() {
        let owner = problem.nodes[index].parameters_of.map(|owner| owner.0);
        let parts: Vec<usize> = match owner {
            Some(owner) => problem.nodes[owner].splits.iter().map(|split| split.parts).collect(),
            None => (0..draws.below(5)).map(|_| 2 + draws.below(problem.gpus - 1)).collect(),
        };
        let of_node = &problem.nodes[index];
        let splits = parts.into_iter().map(|parts| {
            let kind = draws.below(KINDS.len());
            let [input, input_gradient, output] = KINDS[kind];
            let share = if WITH_ALL_PARAMETERS.contains(&kind) { 1 } else { parts as u64 };
            let synchronized = of_node.synchronized.map(|bytes| SynchronizedBytes {
                forward: bytes.forward.div_ceil(share),
                backward: bytes.backward.div_ceil(share),
            });
            NodeSplit {
                gradient_bytes: of_node.gradient_bytes.div_ceil(share),
                state_bytes: of_node.state_bytes.div_ceil(share),
                synchronized,
                sums_parts: kind == 4 || (kind == 5 && draws.below(2) == 0),
                ..NodeSplit::new(parts, input, input_gradient, output)
            }
        });
        problem.nodes[index].splits = splits.collect();
    }
}

/// Returns a random arrangement with splits. Half of the nodes are on the ranks of the node before
/// them in the order of the problem, if that is possible.
#[must_use]
pub fn random_split_arrangement(problem: &PlanProblem, seed: u64) -> Arrangement {
    let mut draws = Draws::new(seed);
    let mut arrangement = Arrangement::new(Vec::new(), Vec::new());
    for node in &problem.nodes {
        let split = draws.below(node.splits.len() + 1).checked_sub(1);
        let parts = |split: Option<usize>| split.map_or(1, |split| node.splits[split].parts);
        let before = arrangement.ranks.last().filter(|ranks| ranks.len() % parts(split) == 0);
        let ranks = match before {
            Some(ranks) if draws.below(2) == 0 => ranks.clone(),
            _ => {
                let ranges = 1 + draws.below(problem.gpus / parts(split));
                some_ranks(problem.gpus, ranges * parts(split), &mut draws)
            }
        };
        let owner = node.parameters_of.map(|owner| owner.0);
        let shared = owner.filter(|&owner| arrangement.splits[owner].is_some());
        let (ranks, split) = match (owner, shared) {
            (_, Some(owner)) => (arrangement.ranks[owner].clone(), arrangement.splits[owner]),
            (Some(_), None) => (ranks, None),
            (None, None) => (ranks, split),
        };
        arrangement.ranks.push(ranks);
        arrangement.splits.push(split);
    }
    arrangement.order = random_order(problem, &mut draws);
    arrangement
}

/// Costs from tables, with those of splits derived from them: part of a step is divided among the
/// parts of a split, and transfers take a latency and a time for each byte.
#[derive(Debug, Clone, Copy)]
pub struct SplitTables<'a> {
    /// The problem.
    pub problem: &'a PlanProblem,
    /// Costs without splits.
    pub tables: &'a TableCosts,
}

/// Part of a step that is divided among the parts of a split.
const DIVIDED: f64 = 0.8;

impl CostModel for SplitTables<'_> {
    fn compute(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> Option<StepTimes> {
        self.tables.compute(node, ranks, shard_size)
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        self.tables.transfer(producer, from, to)
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.tables.all_reduce(bytes, ranks)
    }

    fn memory(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> NodeMemory {
        self.tables.memory(node, ranks, shard_size)
    }

    fn splits(&self) -> Option<&dyn SplitCosts> {
        Some(self)
    }

    fn bounds(&self) -> Option<&dyn CostBounds> {
        Some(self.tables)
    }
}

impl SplitCosts for SplitTables<'_> {
    fn compute(&self, node: NodeId, split: usize, ranks: usize, shard_size: ShardSize) -> Option<StepTimes> {
        let of_node = &self.problem.nodes[node.0];
        let split = &of_node.splits[split];
        let whole = self.tables.compute(node, ranks / split.parts, shard_size)?;
        let is_copy = split.input == Values::Copies && split.output == Values::Copies;
        let share = if is_copy { 1.0 } else { 1.0 - DIVIDED + DIVIDED / split.parts as f64 };
        let bytes = |bytes: u64| bytes.max(1) as f64;
        let updated = bytes(split.gradient_bytes) / bytes(of_node.gradient_bytes);
        Some(StepTimes {
            forward_us: share * whole.forward_us,
            backward_us: share * whole.backward_us,
            update_us: updated.min(1.0) * whole.update_us,
        })
    }

    fn memory(&self, node: NodeId, split: usize, ranks: usize, shard_size: ShardSize) -> NodeMemory {
        let parts = self.problem.nodes[node.0].splits[split].parts;
        self.tables.memory(node, ranks / parts, shard_size)
    }

    fn transfer(&self, producer: NodeId, from: TensorLayout<'_>, to: TensorLayout<'_>) -> f64 {
        let bytes = |layout: TensorLayout<'_>| {
            let TensorLayout { ranks, parts, values } = layout;
            self.output_bytes(producer, ranks.len(), parts, values, ShardSize::Larger) as f64
        };
        let is_sum = from.values == Values::Addends && !from.is_all_reduced_to(&to);
        let received = bytes(to) * if is_sum { from.parts as f64 } else { 1.0 };
        let two = [0, 1];
        let us_per_byte = self.tables.all_reduce(1_000_000, &two) - self.tables.all_reduce(0, &two);
        self.tables.all_reduce(0, &two) + us_per_byte / 1e6 * received.max(bytes(from))
    }

    fn output_bytes(
        &self,
        producer: NodeId,
        ranks: usize,
        parts: usize,
        values: Values,
        shard_size: ShardSize,
    ) -> u64 {
        let is_divided = matches!(values, Values::Ranges | Values::Positions);
        let share = if is_divided { parts as u64 } else { 1 };
        self.tables.memory(producer, ranks / parts, shard_size).output_bytes.div_ceil(share)
    }
}
