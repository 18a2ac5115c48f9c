//! Tests of replicated arrangements, and of evaluating given arrangements.

use burst_planner::testing::{HashedCosts, RandomProblem, arrangements, problems};
use burst_planner::{
    Arrangement, CostModel, Error, Evaluator, Frontier, NodeId, PlanProblem, PlanTime, SearchOptions,
    ShardSize, StepTimes, Stop, evaluate_arrangements, frontier,
};
use proptest::prelude::*;

/// Returns the problem with `replicas` times the GPUs and samples.
fn replicated(problem: &PlanProblem, replicas: usize) -> PlanProblem {
    let mut all = problem.clone();
    all.gpus *= replicas;
    for count in all.nodes.iter_mut().flat_map(|node| &mut node.gpu_counts) {
        *count *= replicas;
    }
    all
}

/// Costs of identical replicas with equal shards.
struct OfReplicas {
    one: HashedCosts,
    replicas: usize,
}

/// Costs of one of these replicas beside the others.
struct OfOne {
    one: HashedCosts,
    replicas: usize,
}

impl CostModel for OfOne {
    fn replicas(&self) -> usize {
        self.replicas
    }

    fn compute(&self, node: NodeId, ranks: usize, _: ShardSize) -> Option<StepTimes> {
        self.one.compute(node, ranks, ShardSize::Larger)
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        self.one.transfer(producer, from, to)
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.one.all_reduce(bytes, ranks)
    }
}

impl CostModel for OfReplicas {
    fn compute(&self, node: NodeId, ranks: usize, _: ShardSize) -> Option<StepTimes> {
        self.one.compute(node, ranks / self.replicas, ShardSize::Larger)
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        let first = |ranks: &[usize]| ranks[..ranks.len() / self.replicas].to_vec();
        self.one.transfer(producer, &first(from), &first(to))
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.one.all_reduce(bytes, &ranks[..ranks.len() / self.replicas])
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicas_are_a_valid_arrangement_of_the_larger_problem(
        (random, arrangement) in arrangements(problems(1..=9, 1..=6)),
        replicas in 1usize..5,
    ) {
        let gpus = random.problem.gpus;
        let all = arrangement.replicated(gpus, replicas)?;
        all.validate(&replicated(&random.problem, replicas))?;
        prop_assert_eq!(&all.order, &arrangement.order);
        for (ranks, of_all) in arrangement.ranks.iter().zip(&all.ranks) {
            for (replica, copy) in of_all.chunks(ranks.len()).enumerate() {
                let moved: Vec<usize> = ranks.iter().map(|rank| rank + replica * gpus).collect();
                prop_assert_eq!(copy, moved);
            }
        }
        prop_assert_eq!(arrangement.replicated(gpus, 1)?, arrangement);
    }

    #[test]
    fn replicas_of_one_gpu_are_data_parallelism(random in problems(1..=9, 1..=1), replicas in 1usize..9) {
        let alone = Arrangement::data_parallel(&random.problem, 1)?;
        let all = replicated(&random.problem, replicas);
        prop_assert_eq!(alone.replicated(1, replicas)?, Arrangement::data_parallel(&all, replicas)?);
    }

    #[test]
    fn one_replica_has_the_time_of_all(
        (random, arrangement) in arrangements(problems(1..=9, 1..=5)),
        replicas in 1usize..4,
        seed: u64,
        clip_norm: bool,
        bucket_bytes in prop::sample::select(vec![0, 1 << 21, u64::MAX]),
    ) {
        let mut one = random.problem;
        (one.gradients.clip_norm, one.gradients.metrics_bytes) = (clip_norm, 8);
        one.gradients.bucket_bytes = bucket_bytes;
        let all = replicated(&one, replicas);
        let hashed = HashedCosts { seed, integral: false };
        let mut of_one = Evaluator::new(&one, OfOne { one: hashed.clone(), replicas })?;
        let mut of_all = Evaluator::new(&all, OfReplicas { one: hashed, replicas })?;
        let copies = arrangement.replicated(one.gpus, replicas)?;
        prop_assert_eq!(of_one.memory(&arrangement)?.repeat(replicas), of_all.memory(&copies)?);
        let (of_one, of_all) = (of_one.evaluate(&arrangement)?, of_all.evaluate(&copies)?);
        let is_same = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        prop_assert!(is_same(of_one.iteration_us, of_all.iteration_us), "{of_one:?} {of_all:?}");
        let all_us = of_one.gpu_time_us * replicas as f64;
        prop_assert!(is_same(all_us, of_all.gpu_time_us), "{of_one:?} {of_all:?}");
    }
}

#[test]
fn evaluating_a_frontier_returns_it() {
    let evaluated = |random: &RandomProblem, given: Vec<Arrangement>| -> Result<Frontier, Error> {
        evaluate_arrangements(&random.problem, &random.costs, given, &Stop::default())
    };
    for seed in 0..6 {
        let random = burst_planner::testing::random_problem(seed);
        let found = frontier(&random.problem, &random.costs, &SearchOptions::default()).unwrap();
        let mut given: Vec<Arrangement> =
            found.plans().iter().map(|point| point.arrangement.clone()).collect();
        // Worse arrangements are left out.
        given.push(burst_planner::testing::random_arrangement(&random.problem, seed));
        let again = evaluated(&random, given.clone()).unwrap();
        let is_as_good = |time: PlanTime, than: PlanTime| {
            let no_more = |a: f64, b: f64| a <= b * (1.0 + 1e-9);
            no_more(time.iteration_us, than.iteration_us) && no_more(time.gpu_time_us, than.gpu_time_us)
        };
        for point in found.plans() {
            assert!(again.plans().iter().any(|other| is_as_good(other.time, point.time)), "seed {seed}");
        }
        for pair in again.plans().windows(2) {
            assert!(!is_as_good(pair[0].time, pair[1].time), "seed {seed}: {pair:?}");
        }
        assert_eq!(again.evaluations(), given.len() as u64);
        for limit in [1.2, f64::INFINITY] {
            assert!(again.lower_bound_us(limit) <= found.lower_bound_us(limit) * (1.0 + 1e-9));
        }
        assert_eq!(evaluated(&random, Vec::new()).unwrap_err(), Error::NoArrangement);
    }
}

#[test]
fn impossible_replicas_are_refused() {
    let one = Arrangement::new(vec![vec![0], vec![2, 1]], vec![0, 1]);
    let why = |gpus, replicas| one.replicated(gpus, replicas).unwrap_err().to_string();
    assert!(why(2, 2).contains("on rank 2 of a replica"), "{}", why(2, 2));
    assert!(why(3, 0).contains("0 replicas of 3 GPUs"), "{}", why(3, 0));
    assert!(why(usize::MAX, 2).contains("2 replicas"), "{}", why(usize::MAX, 2));
}
