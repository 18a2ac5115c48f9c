//! Tests of nodes that share parameters.

use burst_planner::{CostModel, Node, NodeId, PlanProblem, SearchOptions, ShardSize, StepTimes, frontier};

const CHUNKS: usize = 5;

/// Costs with equal steps, short transfers and long all-reduces.
struct Alike;

impl CostModel for Alike {
    fn compute(&self, _: NodeId, ranks: usize, _: ShardSize) -> Option<StepTimes> {
        (ranks == 1).then_some(StepTimes { forward_us: 10.0, backward_us: 20.0, update_us: 0.0 })
    }

    fn transfer(&self, _: NodeId, _: &[usize], _: &[usize]) -> f64 {
        0.1
    }

    fn all_reduce(&self, _: u64, _: &[usize]) -> f64 {
        1000.0
    }
}

/// Returns recurrent layers over chunks of a sequence, one chunk after another.
fn recurrent(layers: usize, gpus: usize) -> PlanProblem {
    let mut problem = PlanProblem::new(gpus);
    let mut before: Vec<NodeId> = Vec::new();
    let mut ends = Vec::new();
    for chunk in 0..CHUNKS {
        let mut chunks = Vec::new();
        for layer in 0..layers {
            let mut node = Node::new(format!("{layer}.{chunk}"), [1]).with_gradient_bytes(1 << 20);
            if chunk > 0 {
                (node.parameters_of, node.gradient_bytes) = (Some(NodeId(layer)), 0);
            }
            let node = problem.add_node(node);
            if let Some(&below) = chunks.last() {
                problem.add_edge(below, node);
            }
            if let Some(&same) = before.get(layer) {
                problem.add_edge(same, node);
            }
            chunks.push(node);
        }
        ends.extend(chunks.last().copied());
        before = chunks;
    }
    let loss = problem.add_node(Node::new("loss", [1]));
    for end in ends {
        problem.add_edge(end, loss);
    }
    problem
}

/// Each GPU has some layers, and computes a chunk while the previous GPU computes the next one.
#[test]
fn recurrent_layers_are_pipelined() {
    for gpus in [2, 4] {
        let problem = recurrent(4, gpus);
        let found = frontier(&problem, Alike, &SearchOptions::default()).unwrap();
        let fastest = &found.plans()[0];
        let a_chunk = 4 / gpus;
        // Until the last GPU starts, and all its chunks; then the loss, with the time of a layer.
        let steps = (gpus - 1 + CHUNKS) * a_chunk + 1;
        let pipelined_us = 30.0 * steps as f64;
        assert!(fastest.time.iteration_us < pipelined_us + 5.0, "{gpus}: {fastest:?}");
        for layer in 0..4 {
            let of_layer = |chunk: usize| &fastest.arrangement.ranks[chunk * 4 + layer];
            assert!((0..CHUNKS).all(|chunk| of_layer(chunk) == of_layer(0)), "{gpus}: {fastest:?}");
        }
    }
}
