//! Random problems, deterministic by seed. Nodes are given by their indices in the problem.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::{
    AllReduceTime, Arrangement, BackwardReads, Node, NodeId, PlanProblem, StepTimes, SynchronizedBytes,
    TableCosts, TransferTimes,
};

/// Kind of graph of a random problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Graph {
    /// A chain: each node but the last has one consumer, the next one.
    Chain,
    /// Stretches of a chain, and forks whose branches join.
    Branches,
    /// Any directed acyclic graph.
    Dag,
}

/// A random problem with its costs.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomProblem {
    /// The seed that it was drawn with.
    pub seed: u64,
    /// The problem.
    pub problem: PlanProblem,
    /// Its costs: steps take a constant time in addition to their work, and all GPUs are connected
    /// to one switch.
    pub costs: TableCosts,
}

/// A random number generator, deterministic by seed.
pub(super) struct Draws(pub(super) ChaCha8Rng);

impl Draws {
    /// Creates a generator with a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Draws an integer from 0 to `count` - 1, uniformly. `count` is at least 1.
    pub(super) fn below(&mut self, count: usize) -> usize {
        ((u64::from(self.0.next_u32()) * count as u64) >> 32) as usize
    }

    /// Draws a 64-bit number, uniformly.
    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Draws a number log-uniformly between two positive numbers.
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        let part = f64::from(self.0.next_u32()) / f64::from(u32::MAX);
        low * (high / low).powf(part)
    }
}

/// Returns a random problem that [`best_by_enumeration`](super::best_by_enumeration) solves in
/// about a second: any kind of graph with up to 6 nodes on 2 or 3 GPUs, or up to 5 nodes on 4.
#[must_use]
pub fn random_problem(seed: u64) -> RandomProblem {
    let mut draws = Draws::new(seed);
    let graph = [Graph::Chain, Graph::Branches, Graph::Dag][draws.below(3)];
    let gpus = 2 + draws.below(3);
    let maximum = if gpus == 4 { 5 } else { 6 };
    random_problem_on(seed, graph, 2 + draws.below(maximum - 1), gpus)
}

/// Returns a random problem with the given numbers of nodes and GPUs, at least one of each.
#[must_use]
pub fn random_problem_on(seed: u64, graph: Graph, nodes: usize, gpus: usize) -> RandomProblem {
    let mut draws = Draws::new(seed ^ 0x9e37_79b9_7f4a_7c15);
    let (nodes, gpus) = (nodes.max(1), gpus.max(1));
    let mut problem = PlanProblem::new(gpus);
    let mut costs = TableCosts::new();
    let edges = edges(graph, nodes, &mut draws).into_iter();
    problem.edges = edges.map(|(from, to)| (NodeId(from), NodeId(to))).collect();
    let counts: Vec<usize> = match draws.below(3) {
        0 => std::iter::successors(Some(1), |count| Some(2 * count))
            .take_while(|&count| count <= gpus)
            .collect(),
        _ => (1..=gpus).collect(),
    };
    let launch_us = draws.between(2.0, 40.0);
    let mut output_bytes = Vec::new();
    for node in 0..nodes {
        let has_parameters = !draws.one_in(4);
        let gradient_bytes = if has_parameters { draws.between(1e4, 1e8) as u64 } else { 0 };
        // Few layers can use any number of GPUs.
        let may_burst = |count: usize, draws: &mut Draws| count == 1 || !draws.one_in(8);
        let own: Vec<usize> = counts.iter().copied().filter(|&count| may_burst(count, &mut draws)).collect();
        let (work_us, backward) = (draws.between(20.0, 2000.0), draws.between(1.0, 2.5));
        let update_us = if has_parameters { launch_us / 2.0 + gradient_bytes as f64 / 3e5 } else { 0.0 };
        for &count in &own {
            let forward_us = launch_us + work_us / count as f64;
            costs.set_steps(
                NodeId(node),
                count,
                StepTimes { forward_us, backward_us: backward * forward_us, update_us },
            );
        }
        problem.add_node(Node::new(format!("n{node}"), own).with_gradient_bytes(gradient_bytes));
        output_bytes.push(draws.between(1e4, 2e7));
    }
    set_communication(&mut problem, &mut costs, &output_bytes, &mut draws);
    set_program(&mut problem, &mut draws);
    set_memory(&mut problem, &mut costs, &output_bytes, seed);
    set_checkpoints(&mut problem, &mut costs, &output_bytes, seed);
    RandomProblem { seed, problem, costs }
}

/// Returns the edges of a random graph with the nodes `0..nodes`, as pairs of a producer and a
/// consumer with a larger index.
pub(super) fn edges(graph: Graph, nodes: usize, draws: &mut Draws) -> Vec<(usize, usize)> {
    let mut edges = Vec::new();
    match graph {
        Graph::Chain => edges.extend((1..nodes).map(|node| (node - 1, node))),
        Graph::Branches => {
            let mut end = 0;
            while end + 1 < nodes {
                let left = nodes - end - 1;
                let branches = if left < 3 { 1 } else { 1 + draws.below(left.min(4)) };
                if branches == 1 {
                    edges.push((end, end + 1));
                    end += 1;
                    continue;
                }
                // The join comes after all branches, of one or two nodes each.
                let (fork, mut next, mut last) = (end, end + 1, Vec::new());
                for branch in 0..branches {
                    let to_come = branches - branch;
                    if next + to_come > nodes - 1 {
                        break;
                    }
                    edges.push((fork, next));
                    let is_long = next + to_come < nodes - 1 && draws.one_in(2);
                    if is_long {
                        edges.push((next, next + 1));
                        next += 1;
                    }
                    last.push(next);
                    next += 1;
                }
                edges.extend(last.iter().map(|&node| (node, next)));
                if draws.one_in(4) {
                    edges.push((fork, next));
                }
                end = next;
            }
        }
        Graph::Dag => {
            let rarity = 1 + draws.below(3);
            for to in 1..nodes {
                edges.extend((0..to).filter(|_| draws.one_in(1 + rarity)).map(|from| (from, to)));
            }
        }
    }
    edges
}

fn set_communication(
    problem: &mut PlanProblem,
    costs: &mut TableCosts,
    output_bytes: &[f64],
    draws: &mut Draws,
) {
    let latency_us = draws.between(1.0, 30.0);
    let bytes_per_us = draws.between(3e3, 3e5);
    let gpus = problem.gpus;
    for (node, &bytes) in output_bytes.iter().enumerate() {
        for from in 1..=gpus {
            for to in 1..=gpus {
                let (few, many) = (from.min(to) as f64, from.max(to) as f64);
                let move_us = |part: f64| latency_us + bytes * part / few / bytes_per_us;
                let times = TransferTimes { nested_us: move_us(1.0 - few / many), disjoint_us: move_us(1.0) };
                costs.set_transfer(NodeId(node), from, to, times);
            }
        }
    }
    for ranks in 2..=gpus {
        // A ring.
        let rounds = 2.0 * (ranks - 1) as f64;
        let us_per_byte = rounds / ranks as f64 / bytes_per_us;
        costs.set_all_reduce(ranks, AllReduceTime { startup_us: rounds * latency_us, us_per_byte });
    }
}

/// Sets the memory of nodes: outputs, other activations, and parameters with optimizer state. There
/// is no limit.
fn set_memory(problem: &mut PlanProblem, costs: &mut TableCosts, output_bytes: &[f64], seed: u64) {
    // A separate generator, so that the other draws do not depend on it.
    let mut draws = Draws::new(seed ^ 0x2545_f491_4f6c_dd1d);
    for (index, (node, &output)) in problem.nodes.iter_mut().zip(output_bytes).enumerate() {
        node.state_bytes = 2 * node.gradient_bytes;
        costs.set_output_bytes(NodeId(index), output as u64);
        let saved = output * draws.between(0.0, 7.0);
        for &count in &node.gpu_counts {
            costs.set_saved(NodeId(index), count, (saved / count as f64) as u64);
            costs.set_memory(NodeId(index), count, (output / 10.0) as u64);
        }
    }
}

/// Makes some of the possible nodes checkpoints, in a third of the problems.
fn set_checkpoints(problem: &mut PlanProblem, costs: &mut TableCosts, output_bytes: &[f64], seed: u64) {
    let mut draws = Draws::new(seed ^ 0x6a09_e667_f3bc_c908);
    if !draws.one_in(3) {
        return;
    }
    for (index, node) in problem.nodes.iter_mut().enumerate() {
        let (input, own) = (draws.one_in(2), draws.one_in(2));
        let (output, saved) = [(own, own), (own, false), (false, own)][index % 3];
        node.backward_reads = BackwardReads { input, output, saved };
        node.is_kept = draws.one_in(6);
        let saved = output_bytes[index] * draws.between(0.01, 1.0);
        for &count in &node.gpu_counts {
            costs.set_saved(NodeId(index), count, (saved as u64).div_ceil(count as u64));
        }
    }
    let possible = problem.possible_checkpoints().unwrap_or_default();
    problem.checkpoints = possible.into_iter().filter(|_| !draws.one_in(3)).collect();
}

/// Sets gradient options, mostly the defaults.
fn set_program(problem: &mut PlanProblem, draws: &mut Draws) {
    problem.gradients.bucket_bytes = [0, 1 << 20, 25 << 20][draws.below(3)];
    problem.gradients.overlap = !draws.one_in(6);
    problem.gradients.clip_norm = draws.one_in(6);
    problem.gradients.metrics_bytes = if draws.one_in(2) { 8 } else { 0 };
    let (first, last) = (draws.below(problem.nodes.len()), draws.below(problem.nodes.len()));
    if draws.one_in(5) && first < last && problem.nodes[first].gradient_bytes > 0 {
        problem.nodes[last].parameters_of = Some(NodeId(first));
        problem.nodes[last].gradient_bytes = 0;
    }
    if draws.one_in(5) {
        let bytes = SynchronizedBytes { forward: 4096, backward: 8192 * draws.below(2) as u64 };
        problem.nodes[first].synchronized = Some(bytes);
    }
}

/// Returns a random arrangement: each node on random ranks, with one of its GPU counts. Half of the
/// lists of ranks are ascending, the others in random order.
#[must_use]
pub fn random_arrangement(problem: &PlanProblem, seed: u64) -> Arrangement {
    let mut draws = Draws::new(seed);
    let ranks = problem.nodes.iter().map(|node| {
        let counts: Vec<usize> =
            node.gpu_counts.iter().copied().filter(|&count| count <= problem.gpus).collect();
        let count = if counts.is_empty() { 1 } else { counts[draws.below(counts.len())] };
        some_ranks(problem.gpus, count, &mut draws)
    });
    let ranks = ranks.collect();
    Arrangement::new(ranks, random_order(problem, &mut draws))
}

/// Draws `count` different ranks below `gpus`, in ascending order in half of all cases and
/// otherwise in random order.
pub(super) fn some_ranks(gpus: usize, count: usize, draws: &mut Draws) -> Vec<usize> {
    let mut ranks: Vec<usize> = (0..gpus).collect();
    for place in (1..gpus).rev() {
        ranks.swap(place, draws.below(place + 1));
    }
    ranks.truncate(count);
    if draws.one_in(2) {
        ranks.sort_unstable();
    }
    ranks
}

/// Draws an order of all nodes: each next one uniformly among those whose producers and owner of
/// parameters are in the order.
pub(super) fn random_order(problem: &PlanProblem, draws: &mut Draws) -> Vec<usize> {
    let mut order = Vec::new();
    loop {
        let next = next_in_order(problem, &order);
        if next.is_empty() {
            return order;
        }
        order.push(next[draws.below(next.len())]);
    }
}

/// Returns the nodes that can follow the beginning `order` of an order: those whose producers and
/// owner of parameters are in it.
pub(super) fn next_in_order(problem: &PlanProblem, order: &[usize]) -> Vec<usize> {
    let is_ready = |&node: &usize| {
        let mut before = problem.edges.iter().filter(|edge| edge.1 == NodeId(node)).map(|edge| edge.0.0);
        !order.contains(&node)
            && before.all(|earlier| order.contains(&earlier))
            && problem.nodes[node].parameters_of.is_none_or(|NodeId(owner)| order.contains(&owner))
    };
    (0..problem.nodes.len()).filter(is_ready).collect()
}
