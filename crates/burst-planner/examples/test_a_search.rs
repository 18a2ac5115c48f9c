//! Tests a search by the planner's laws and against the best of all arrangements, and shows where
//! it fails.
//!
//! ```text
//! cargo run --release -p burst-planner --features testing --example test_a_search
//! ```
//!
//! The search is greedy, like that of the original DeepPool: it gives each layer the number of GPUs
//! for which the layer and the transfer before it are fastest, within the limit on the layer's GPU
//! time.

use burst_planner::testing::{RandomProblem, best_by_enumeration, check_search, random_problem};
use burst_planner::{Arrangement, CostModel, Evaluator, NodeId, PlanProblem, ShardSize};

const PROBLEMS: u64 = 60;
const LIMIT: f64 = 1.5;

/// The limit applies to each layer, so the arrangement can exceed it.
fn greedy(problem: &PlanProblem, costs: &dyn CostModel, limit: f64) -> Option<Arrangement> {
    let mut arrangement = Arrangement::data_parallel(problem, 1).ok()?;
    for node in arrangement.order.clone() {
        let alone_us = costs.compute(NodeId(node), 1, ShardSize::Larger)?.total_us();
        let producer = problem.edges.iter().find(|edge| edge.1 == NodeId(node)).map(|edge| edge.0);
        let time_us = |gpus: usize| {
            let ranks: Vec<usize> = (0..gpus).collect();
            let before = producer.filter(|&producer| arrangement.ranks[producer.0] != ranks);
            let moving_us = before
                .map_or(0.0, |producer| costs.transfer(producer, &arrangement.ranks[producer.0], &ranks));
            Some(costs.compute(NodeId(node), gpus, ShardSize::Larger)?.total_us() + moving_us)
        };
        let counts = problem.nodes[node].gpu_counts.iter().copied().filter(|&gpus| gpus <= problem.gpus);
        let timed = counts.filter_map(|gpus| Some((gpus, time_us(gpus)?)));
        let allowed = timed.filter(|&(gpus, us)| gpus == 1 || us * gpus as f64 <= limit * alone_us);
        let (gpus, _) = allowed.min_by(|a, b| a.1.total_cmp(&b.1))?;
        arrangement.ranks[node] = (0..gpus).collect();
    }
    Some(arrangement)
}

/// Returns `None` instead of an arrangement above the limit.
fn greedy_within(problem: &PlanProblem, costs: &dyn CostModel, limit: f64) -> Option<Arrangement> {
    let arrangement = greedy(problem, costs, limit)?;
    let mut evaluator = Evaluator::new(problem, costs).ok()?;
    let amplification =
        evaluator.evaluate(&arrangement).ok()?.gpu_time_us / evaluator.single_gpu_us().ok()?;
    (amplification <= limit).then_some(arrangement)
}

fn main() -> burst_planner::Result<()> {
    for (name, violations) in [
        ("greedy", check_search(&greedy, (0..PROBLEMS).map(random_problem))),
        (
            "greedy, within the limit or not at all",
            check_search(&greedy_within, (0..PROBLEMS).map(random_problem)),
        ),
    ] {
        println!("{name}: {} laws broken on {PROBLEMS} problems, among them", violations.len());
        violations.iter().take(4).for_each(|violation| println!("  {violation}"));
    }
    let (mut equal, mut found, mut worst) = (0, 0, (1.0, 0));
    for seed in 0..PROBLEMS {
        let RandomProblem { problem, costs, .. } = random_problem(seed);
        let Some(arrangement) = greedy_within(&problem, &costs, LIMIT) else { continue };
        let iteration_us = Evaluator::new(&problem, &costs)?.evaluate(&arrangement)?.iteration_us;
        let best = best_by_enumeration(&problem, &costs)?;
        let Some(best) = best.fastest_within(LIMIT) else { continue };
        let ratio = iteration_us / best.time.iteration_us;
        found += 1;
        equal += u32::from(ratio <= 1.0 + 1e-9);
        worst = if ratio > worst.0 { (ratio, seed) } else { worst };
    }
    println!("at limit {LIMIT}: an arrangement for {found} of {PROBLEMS} problems, the best one for {equal}");
    println!("the worst takes {:.2} times as long as the best: seed {}", worst.0, worst.1);
    Ok(())
}
