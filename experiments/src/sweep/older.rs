//! Plans by the planner's older models of time, which add times up. The plans are compared by the program's own time.

use std::collections::HashSet;

use deeppool::burst_planner::{
    Arrangement, Edge, Error, Evaluator, NodeId, NodeOption, Plan, PlanProblem, SearchOptions, Share,
    TimeModel, TrainingCosts, TrainingProblem, TrainingTime, fastest,
};

/// The models, by name.
const MODELS: [(&str, TimeModel); 3] =
    [("additive", TimeModel::Additive), ("waves", TimeModel::Waves), ("overlap", TimeModel::Overlap)];
/// Partial plans that a search by one of them may keep: enough for nearly all, and bounded in time.
const MAX_LABELS: usize = 500_000;
/// How far from the best by its own model a plan may be.
const TOLERANCE: f64 = 1e-3;

/// The plans that the older models found, and how many of their searches gave up.
#[derive(Debug, Default)]
pub(super) struct OlderPlans {
    found: Vec<OlderPlan>,
    pub(super) gave_up: usize,
}

/// A plan of an older model.
#[derive(Debug, Clone)]
pub(super) struct OlderPlan {
    pub(super) model: &'static str,
    /// By the program.
    pub(super) time: TrainingTime,
    /// As [`gpu_counts`] says it.
    pub(super) gpu_counts: String,
}

impl OlderPlans {
    /// Searches by each of the models under each of the limits.
    pub(super) fn search<C: TrainingCosts>(
        training: &TrainingProblem,
        needs_gradient: &[bool],
        costs: C,
        limits: &[f64],
    ) -> Result<Self, Error> {
        let problem = additive(training, needs_gradient, &costs);
        let program_order = Arrangement::data_parallel(training, 1)?.order;
        let mut evaluator = Evaluator::new(training, costs)?;
        let mut plans = Self::default();
        let mut seen = HashSet::new();
        for (model, time_model) in MODELS {
            let mut options = SearchOptions::with_epsilon(TOLERANCE).with_time_model(time_model);
            options.max_labels = MAX_LABELS;
            for &limit in limits {
                let plan = match fastest(&problem, limit, &options) {
                    Ok(plan) => plan,
                    Err(Error::LimitUnreachable { .. }) => continue,
                    Err(_) => {
                        plans.gave_up += 1;
                        continue;
                    }
                };
                for arrangement in arrangements(training, &plan, &program_order) {
                    if !seen.contains(&arrangement) {
                        let time = evaluator.evaluate(&arrangement)?;
                        let gpu_counts = gpu_counts(arrangement.ranks.iter().map(Vec::len));
                        plans.found.push(OlderPlan { model, time, gpu_counts });
                        seen.insert(arrangement);
                    }
                }
            }
        }
        Ok(plans)
    }

    /// The fastest whose active time is within a budget, whatever the limit that it was found under.
    pub(super) fn fastest_within(&self, gpu_time_us: f64) -> Option<&OlderPlan> {
        let within = self.found.iter().filter(|plan| plan.time.gpu_time_us <= gpu_time_us);
        within.min_by(|a, b| a.time.iteration_us.total_cmp(&b.time.iteration_us))
    }
}

/// The GPU counts of layers in topological order, runs of the same put together: `8x30 1x3`, GPUs by layers.
pub(crate) fn gpu_counts(counts: impl Iterator<Item = usize>) -> String {
    let counts: Vec<usize> = counts.collect();
    let runs = counts.chunk_by(|a, b| a == b).map(|run| format!("{}x{}", run[0], run.len()));
    runs.collect::<Vec<_>>().join(" ")
}

/// A training problem as a sum of times: shards of the larger size, gradients as their part of a full bucket, transfers to
/// the first ranks, and at forks and joins to the ranks after those.
fn additive<C: TrainingCosts>(training: &TrainingProblem, needs_gradient: &[bool], costs: &C) -> PlanProblem {
    let bucket = training.gradients.bucket_bytes.max(1);
    let mut problem = PlanProblem::new(training.gpus);
    for (index, node) in training.nodes.iter().enumerate() {
        let bytes = node.gradient_bytes;
        let option = |&gpus: &usize| {
            let steps = costs.compute(NodeId(index), gpus, Share::Larger)?;
            let ranks: Vec<usize> = (0..gpus).collect();
            let all_reduce_us = match bytes {
                0 => 0.0,
                _ if gpus < 2 => 0.0,
                _ if bytes >= bucket => costs.reduce(bytes, &ranks),
                _ => costs.reduce(bucket, &ranks) * bytes as f64 / bucket as f64,
            };
            let mut option = NodeOption::new(gpus, steps.total_us());
            option.all_reduce_us = all_reduce_us;
            option.backward_us = Some(steps.backward_us);
            Some(option)
        };
        let options: Vec<NodeOption> = node.gpu_counts.iter().filter_map(option).collect();
        problem.add_node(node.name.clone(), options);
    }
    let mut degrees = vec![(0, 0); training.nodes.len()];
    for &(NodeId(from), NodeId(to)) in &training.edges {
        degrees[to].0 += 1;
        degrees[from].1 += 1;
    }
    for &(from, to) in &training.edges {
        let ways = if needs_gradient[from.0] { 2 } else { 1 };
        let both_ways = |wide: &[usize], narrow: &[usize]| {
            let forward = if wide == narrow { 0.0 } else { costs.transfer(from, wide, narrow) };
            let backward = if wide == narrow || ways == 1 { 0.0 } else { costs.transfer(from, narrow, wide) };
            forward + backward
        };
        let table = |is_disjoint: bool| -> Vec<Vec<f64>> {
            let (producers, consumers) = (&problem.nodes[from.0].options, &problem.nodes[to.0].options);
            let between = |i: &NodeOption, j: &NodeOption| {
                let start = if is_disjoint { i.gpus } else { 0 };
                let (own, other): (Vec<usize>, Vec<usize>) =
                    ((0..i.gpus).collect(), (start..start + j.gpus).collect());
                both_ways(&own, &other)
            };
            producers.iter().map(|i| consumers.iter().map(|j| between(i, j)).collect()).collect()
        };
        let is_at_branches = degrees[from.0].1 > 1 || degrees[to.0].0 > 1;
        let (transfer_us, transfer_disjoint_us) = (table(false), is_at_branches.then(|| table(true)));
        problem.edges.push(Edge { from, to, transfer_us, transfer_disjoint_us });
    }
    problem
}

/// A plan on its ranks, in program order; and, where branches run at the same time, wave by wave.
fn arrangements(training: &TrainingProblem, plan: &Plan, program_order: &[usize]) -> Vec<Arrangement> {
    let ranks: Vec<Vec<usize>> = plan.assignments.iter().map(|node| node.ranks.clone().collect()).collect();
    let in_program_order = Arrangement { ranks, order: program_order.to_vec() };
    let mut found = vec![in_program_order.clone()];
    if plan.assignments.iter().any(|node| node.wave.is_some()) {
        let wave = |node: usize| plan.assignments[node].wave.unwrap_or(0);
        let order = by_wave(training, program_order, wave);
        found.push(Arrangement { order, ..in_program_order });
    }
    found
}

/// The nodes with every one after its producers and the owner of its parameters, and of those that could be next the one
/// of the earliest wave.
fn by_wave(training: &TrainingProblem, program_order: &[usize], wave: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut before: Vec<Vec<usize>> =
        training.nodes.iter().map(|node| node.parameters_of.iter().map(|owner| owner.0).collect()).collect();
    for &(NodeId(from), NodeId(to)) in &training.edges {
        before[to].push(from);
    }
    let mut is_done = vec![false; before.len()];
    let mut order = Vec::with_capacity(before.len());
    while order.len() < before.len() {
        let is_ready =
            |node: &usize| !is_done[*node] && before[*node].iter().all(|&earlier| is_done[earlier]);
        // The first of those of the earliest wave.
        let Some(next) = program_order.iter().copied().filter(is_ready).min_by_key(|&node| wave(node)) else {
            break;
        };
        is_done[next] = true;
        order.push(next);
    }
    order
}
