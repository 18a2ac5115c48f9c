//! Tests that no arrangement is faster than the bound, for realistic proportions of steps, updates
//! and collectives.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::Bound;
use crate::costs::{CostBounds, CostModel, ShardSize, StepTimes};
use crate::evaluator::{Evaluator, PlanTime};
use crate::proof::Work;
use crate::{Arrangement, Node, NodeId, PlanProblem, ProofBudget, Stop};

/// A switch, and layers with a constant time plus a time per sample, on uneven shards of a batch.
struct Costs {
    batch: usize,
    layers: Vec<Layer>,
    latency_us: f64,
    bytes_per_us: f64,
}

struct Layer {
    launch_us: f64,
    sample_us: f64,
    update_us: f64,
    sample_bytes: f64,
}

impl Costs {
    /// Returns the first sample of each rank, and the number of samples.
    fn borders(&self, ranks: usize) -> Vec<usize> {
        let larger = self.batch % ranks;
        (0..=ranks).map(|rank| rank * (self.batch / ranks) + rank.min(larger)).collect()
    }

    fn message(&self, producer: NodeId, samples: usize) -> f64 {
        self.latency_us + samples as f64 * self.layers[producer.0].sample_bytes / self.bytes_per_us
    }
}

impl CostModel for Costs {
    fn ranks_with_larger_shard(&self, ranks: usize) -> usize {
        if self.batch % ranks == 0 { ranks } else { self.batch % ranks }
    }

    fn compute(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> Option<StepTimes> {
        let samples = match shard_size {
            ShardSize::Larger => self.batch.div_ceil(ranks),
            ShardSize::Smaller => self.batch / ranks,
        };
        let layer = &self.layers[node.0];
        let forward_us = layer.launch_us + samples as f64 * layer.sample_us;
        Some(StepTimes { forward_us, backward_us: 2.0 * forward_us, update_us: layer.update_us })
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        let (here, there) = (self.borders(from.len()), self.borders(to.len()));
        let kept = |rank: usize| {
            let place = |list: &[usize]| list.iter().position(|&other| other == rank);
            let (Some(a), Some(b)) = (place(from), place(to)) else { return 0 };
            here[a + 1].min(there[b + 1]).saturating_sub(here[a].max(there[b]))
        };
        let moved = |list: &[usize], borders: &[usize]| {
            let ends = list.iter().zip(borders.windows(2));
            ends.map(|(&rank, ends)| ends[1] - ends[0] - kept(rank)).max().unwrap_or(0)
        };
        self.message(producer, moved(from, &here).max(moved(to, &there)))
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        let rounds = 2.0 * (ranks.len() - 1) as f64;
        rounds * (self.latency_us + bytes as f64 / ranks.len() as f64 / self.bytes_per_us)
    }

    fn bounds(&self) -> Option<&dyn CostBounds> {
        Some(self)
    }
}

impl CostBounds for Costs {
    fn min_transfer(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        let kept = self.batch.div_ceil(from).abs_diff(self.batch.div_ceil(to));
        self.message(producer, kept.max(self.batch / from.max(to)))
    }

    fn min_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        2.0 * (ranks - 1) as f64 * (self.latency_us + bytes as f64 / ranks as f64 / self.bytes_per_us)
    }

    fn min_marginal_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        2.0 * (ranks - 1) as f64 * (bytes as f64 / ranks as f64 / self.bytes_per_us)
    }
}

struct Draws(ChaCha8Rng);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        ((u64::from(self.0.next_u32()) * count as u64) >> 32) as usize
    }

    /// Draws log-uniformly.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(f64::from(self.0.next_u32()) / f64::from(u32::MAX))
    }

    /// Draws ranks at the start or the end of the list of all, mostly in order.
    fn ranks(&mut self, gpus: usize) -> Vec<usize> {
        let count = 1 + self.below(gpus);
        let start = [0, gpus - count, self.below(gpus - count + 1)][self.below(3)];
        let mut ranks: Vec<usize> = (start..start + count).collect();
        if self.below(6) == 0 {
            let by = self.below(count);
            ranks.rotate_left(by);
        }
        ranks
    }
}

fn problem(seed: u64) -> (PlanProblem, Costs, Draws) {
    let mut draws = Draws(ChaCha8Rng::seed_from_u64(seed));
    let gpus = 2 + draws.below(4);
    let nodes = 2 + draws.below(6);
    let mut problem = PlanProblem::new(gpus);
    let mut layers = Vec::new();
    let slowness = draws.between(0.1, 30.0);
    for node in 0..nodes {
        let bytes = if draws.below(4) == 0 { 0.0 } else { draws.between(1e4, 3e8) };
        let named = Node::new(format!("n{node}"), 1..=gpus);
        problem.add_node(named.with_gradient_bytes(bytes as u64));
        layers.push(Layer {
            launch_us: draws.between(1.0, 30.0),
            sample_us: draws.between(1.0, 300.0),
            update_us: if bytes > 0.0 { 5.0 + bytes / 3e5 } else { 0.0 },
            sample_bytes: draws.between(1e3, 1e7),
        });
    }
    // A chain; or forks of up to three branches, each with or without a join; or any graph.
    match seed % 3 {
        0 => (1..nodes).for_each(|node| problem.add_edge(NodeId(node - 1), NodeId(node))),
        1 => {
            let mut end = 0;
            while end + 1 < nodes {
                let branches = (1 + draws.below(3)).min(nodes - 1 - end);
                let join = end + branches + 1;
                for branch in end + 1..join {
                    problem.add_edge(NodeId(end), NodeId(branch));
                    if join < nodes {
                        problem.add_edge(NodeId(branch), NodeId(join));
                    }
                }
                if join < nodes && draws.below(3) == 0 {
                    problem.add_edge(NodeId(end), NodeId(join));
                }
                end = join;
            }
        }
        _ => {
            for to in 1..nodes {
                let last = draws.below(to);
                (0..to)
                    .filter(|&from| (from == last && draws.below(6) > 0) || draws.below(4) == 0)
                    .for_each(|from| problem.add_edge(NodeId(from), NodeId(to)));
            }
        }
    }
    problem.gradients.bucket_bytes = [0, 1 << 20, 25 << 20][draws.below(3)];
    problem.gradients.overlap = draws.below(6) > 0;
    problem.gradients.clip_norm = draws.below(8) == 0;
    let costs = Costs {
        batch: gpus + draws.below(12),
        layers,
        latency_us: draws.between(0.5, 20.0),
        bytes_per_us: 3e5 / slowness,
    };
    (problem, costs, draws)
}

fn bound(problem: &PlanProblem, costs: &Costs) -> Bound {
    let evaluator = Evaluator::new(problem, costs).expect("a valid problem");
    Bound::new(problem, evaluator.structure(), costs)
}

/// Returns the bound within a budget of GPU time, after `operations` operations.
fn within(bound: &Bound, budget_us: f64, operations: u64) -> f64 {
    let stop = Stop::default();
    let mut work = Work::new(ProofBudget::Operations(operations), 0, &stop);
    bound.prove(budget_us, f64::INFINITY, &mut work).us
}

/// Returns random arrangements, each after local search.
fn arrangements(
    problem: &PlanProblem,
    costs: &Costs,
    draws: &mut Draws,
    starts: usize,
) -> Vec<(Arrangement, PlanTime)> {
    let mut evaluator = Evaluator::new(problem, costs).expect("a valid problem");
    let mut met = Vec::new();
    for _ in 0..starts {
        let mut best = Arrangement::data_parallel(problem, problem.gpus).expect("a valid problem");
        best.ranks.iter_mut().for_each(|ranks| *ranks = draws.ranks(problem.gpus));
        let mut best_us = f64::INFINITY;
        for _ in 0..60 {
            let mut next = best.clone();
            let (first, ranks) = (draws.below(problem.nodes.len()), draws.ranks(problem.gpus));
            let last = first + draws.below(problem.nodes.len() - first);
            next.ranks[first..=last].iter_mut().for_each(|own| own.clone_from(&ranks));
            let time = evaluator.evaluate(&next).expect("a valid arrangement");
            met.push((next.clone(), time));
            if time.iteration_us < best_us {
                (best, best_us) = (next, time.iteration_us);
            }
        }
    }
    met
}

#[test]
fn no_arrangement_is_faster_than_the_bound() {
    let cases = std::env::var("BURST_PLANNER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150);
    let mut gaps = Vec::new();
    let mut wrong = Vec::new();
    for seed in 0..cases {
        let (problem, costs, mut draws) = problem(seed);
        let bound = bound(&problem, &costs);
        let mut met = arrangements(&problem, &costs, &mut draws, 12);
        met.sort_by(|a, b| a.1.iteration_us.total_cmp(&b.1.iteration_us));
        // The fastest for each GPU time.
        let mut min_gpu_us = f64::INFINITY;
        met.retain(|(_, time)| {
            let is_cheaper = time.gpu_time_us < min_gpu_us;
            min_gpu_us = min_gpu_us.min(time.gpu_time_us);
            is_cheaper
        });
        // Few operations end in the first passes, whose labels are merged.
        let operations = [1_000_000, 100_000_000][seed as usize % 2];
        gaps.push(met[0].1.iteration_us / within(&bound, f64::INFINITY, operations) - 1.0);
        for (arrangement, time) in met {
            let bound_us = within(&bound, time.gpu_time_us * (1.0 + 1e-12), operations);
            if bound_us > time.iteration_us * (1.0 + 1e-9) {
                println!("seed {seed}: {bound_us} us bounds {time:?}, {arrangement:?}");
                wrong.push(seed);
            }
        }
    }
    gaps.sort_by(f64::total_cmp);
    println!(
        "from the bound to the fastest: median {:.1}%, at most {:.1}%",
        100.0 * gaps[gaps.len() / 2],
        100.0 * gaps[gaps.len() - 1]
    );
    assert!(wrong.is_empty(), "the bound is too high with the seeds {wrong:?}");
}

/// A rank that completes its part early computes on while others start the next iteration: its
/// update is hidden behind their forward steps.
#[test]
fn an_update_is_hidden_by_the_next_iteration() {
    let mut problem = PlanProblem::new(2);
    for (node, bytes) in [1, 400_000_000].into_iter().enumerate() {
        problem.add_node(Node::new(format!("n{node}"), [1]).with_gradient_bytes(bytes));
    }
    problem.add_edge(NodeId(0), NodeId(1));
    let layer =
        |sample_us: f64, update_us: f64| Layer { launch_us: 0.0, sample_us, update_us, sample_bytes: 0.0 };
    let layers = vec![layer(50.0, 0.0), layer(1.0, 200.0)];
    let costs = Costs { batch: 1, layers, latency_us: 0.0, bytes_per_us: 1.0 };
    let arrangement = Arrangement::new(vec![vec![0], vec![1]], vec![0, 1]);
    let mut evaluator = Evaluator::new(&problem, &costs).expect("a valid problem");
    let time = evaluator.evaluate(&arrangement).expect("a valid arrangement");
    assert!((time.iteration_us - 203.0).abs() < 1e-6, "{time:?}");
    let bound_us = within(&bound(&problem, &costs), f64::INFINITY, 1_000_000);
    assert!(bound_us > 0.98 * 203.0 && bound_us < 203.0 + 1e-6, "{bound_us} us");
}

/// The gradient of a branch can be reduced while the path beside it computes.
#[test]
fn all_reduces_of_a_branch_start_before_the_backward_pass_of_the_path_ends() {
    let mut problem = PlanProblem::new(2);
    for (node, bytes) in [1_000, 1_000, 3_000_000, 1_000].into_iter().enumerate() {
        problem.add_node(Node::new(format!("n{node}"), [2]).with_gradient_bytes(bytes));
    }
    for (from, to) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        problem.add_edge(NodeId(from), NodeId(to));
    }
    problem.gradients.bucket_bytes = 0;
    let layer = |sample_us: f64| Layer { launch_us: 0.0, sample_us, update_us: 0.0, sample_bytes: 1e9 };
    let layers = vec![layer(1.0), layer(1_000.0), layer(1.0), layer(1.0)];
    let costs = Costs { batch: 2, layers, latency_us: 0.0, bytes_per_us: 1_500.0 };
    let mut fastest_us = f64::INFINITY;
    let mut evaluator = Evaluator::new(&problem, &costs).expect("a valid problem");
    for order in [[0, 1, 2, 3], [0, 2, 1, 3]] {
        let arrangement = Arrangement::new(vec![vec![0, 1]; 4], order.to_vec());
        let time = evaluator.evaluate(&arrangement).expect("a valid arrangement");
        fastest_us = fastest_us.min(time.iteration_us);
    }
    let bound_us = within(&bound(&problem, &costs), f64::INFINITY, 1_000_000);
    assert!(bound_us <= fastest_us * (1.0 + 1e-9), "{bound_us} us bounds {fastest_us} us");
    assert!(bound_us > 0.9 * fastest_us, "{bound_us} us bounds {fastest_us} us");
}
