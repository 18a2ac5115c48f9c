//! Plans with split layers of small networks, compared with brute force over the ranks and the
//! splits of all layers.

use burst_planner::{Arrangement, Evaluator, PlanProblem};
use collectives::LinkModel;
use deeppool::burst_planner::ProofBudget;
use deeppool::costs::Costs;
use deeppool::job::{Job, JobCosts, plan_problem};
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use layer_graph::{Conv2d, LayerGraph, LayerKind, Linear, Shape, Split};
use layer_profile::DeviceModel;

use crate::memory::generator;
use crate::random_splits::cases;

/// Maximum ratio of the plan's time to the minimum for a plan that is the best.
const BEST: f64 = 1.0 + 1e-9;

/// Returns three linear layers of random widths, or a convolution and two linear layers, and a
/// loss.
fn random_network(mut below: impl FnMut(usize) -> usize) -> LayerGraph {
    let has_convolution = below(2) == 0;
    let shape = if has_convolution { Shape::image(16, 8, 8) } else { Shape::features(1024) };
    let mut net = LayerGraph::new("small", shape).unwrap();
    let mut x = net.input();
    if has_convolution {
        let channels = 8 << below(5);
        x = net.add("conv", Conv2d::new(channels, 3).padding(1), [x]).unwrap();
        x = net.add("flat", LayerKind::Flatten, [x]).unwrap();
    } else {
        x = net.add("fc0", Linear::new(256 << below(6)), [x]).unwrap();
    }
    x = net.add("fc1", Linear::new(256 << below(6)), [x]).unwrap();
    x = net.add("fc2", Linear::new(24 << below(7)), [x]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [x]).unwrap();
    net
}

/// Returns the ranks and splits that a node may have: all sets of ranks in ascending order.
fn options(problem: &PlanProblem, node: usize, batch: usize) -> Vec<(Vec<usize>, Option<usize>)> {
    let sets = 1..1_usize << problem.gpus;
    let lists = sets.map(|set| (0..problem.gpus).filter(|rank| set >> rank & 1 == 1).collect::<Vec<_>>());
    let of_list = |ranks: Vec<usize>| {
        let splits = problem.nodes[node].splits.iter().enumerate();
        let is_possible = |parts: usize| ranks.len() % parts == 0 && ranks.len() / parts <= batch;
        let possible = splits.filter(|(_, split)| is_possible(split.parts)).map(|(index, _)| Some(index));
        let whole = is_possible(1).then_some(None);
        let all: Vec<Option<usize>> = possible.chain(whole).collect();
        all.into_iter().map(move |split| (ranks.clone(), split)).collect::<Vec<_>>()
    };
    lists.flat_map(of_list).collect()
}

/// Returns the minimum time of all arrangements in topological order, and their number.
fn brute_force(problem: &PlanProblem, evaluator: &mut Evaluator<'_>, batch: usize) -> (f64, usize) {
    let nodes = problem.nodes.len();
    let options: Vec<_> = (0..nodes).map(|node| options(problem, node, batch)).collect();
    let count = options.iter().map(Vec::len).product();
    let mut min_us = f64::INFINITY;
    for index in 0..count {
        let mut left = index;
        let mut arrangement = Arrangement::new(Vec::new(), (0..nodes).collect());
        for of_node in &options {
            let (ranks, split) = &of_node[left % of_node.len()];
            left /= of_node.len();
            arrangement.ranks.push(ranks.clone());
            arrangement.splits.push(*split);
        }
        min_us = min_us.min(evaluator.evaluate(&arrangement).unwrap().iteration_us);
    }
    (min_us, count)
}

#[test]
fn plans_of_small_networks_are_the_best_and_never_below_the_bound() {
    let cases = cases(12);
    let (mut best, mut worst) = (0, 1.0_f64);
    for case in 0..cases {
        let mut below = generator(case as u64);
        let network = random_network(&mut below);
        // Three ranks have two orders of magnitude more arrangements than two.
        let gpus = if case % 4 == 3 && network.len() < 6 { 3 } else { 2 };
        let batch: usize = [1, 2, 6, 24, 96, 384][below(6)];
        let mut sizes: Vec<usize> =
            (1..=gpus.min(batch)).flat_map(|count| [batch / count, batch.div_ceil(count)]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let profile = DeviceModel::named("a100").unwrap().profile(&network, &sizes).unwrap();
        let link = LinkModel::named("dgx-a100").unwrap();
        let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
        let mode = Mode::Burst { amplification: f64::INFINITY };
        let request = PlanRequest::new(gpus, mode)
            .with_proof(ProofBudget::Operations(20_000))
            .with_splits(Split::ALL.to_vec());
        let plan = find_plan(&job, &request).unwrap();
        let job = job.with_splits(&Split::ALL, gpus);
        let problem = plan_problem(&job, gpus, &(1..=gpus).collect::<Vec<_>>()).unwrap();
        let mut evaluator = Evaluator::new(&problem, JobCosts::new(&job)).unwrap();
        let (min_us, count) = brute_force(&problem, &mut evaluator, batch);
        let ratio = plan.iteration_us / min_us;
        let bound_us = plan.lower_bound_us.unwrap_or(0.0);
        println!(
            "case {case}, {gpus} GPUs, batch {batch}: {count} arrangements, to the minimum: plan {ratio:.4}, \
             bound {:.3}",
            bound_us / min_us
        );
        assert!(bound_us <= min_us * BEST, "case {case}: {bound_us} us is above {min_us} us");
        best += usize::from(ratio <= BEST);
        worst = worst.max(ratio);
    }
    println!("{best} of {cases} plans are the best, the worst has {worst:.4} times the minimum");
    assert!(best as f64 >= 0.9 * cases as f64 && worst < 1.05);
}
