//! The exact search: nodes are decided in the reverse of program order, as the backward pass runs.
//!
//! What later nodes (those that run backward first) mean for the rest is their time, their GPU time, what they leave in
//! the queue, and the options of the *live* ones among them, which an edge joins to a node that is not decided yet. So a label
//! for a combination of live options is dominated by another one with no more GPU time and no more time whose queue is no longer,
//! or longer by no more than what it is faster. Labels that a lower bound for their completion shows to be no improvement
//! are dropped: the bound of the Lagrangian search, which is a sum, by dynamic programming over the same combinations.

use super::evaluate::CommunicationLane;
use crate::search::{Cost, Decision, History, Slack, Weights, keep_nondominated};
use crate::{NodeOption, PlanProblem};

/// Entries of all bounds together. One takes 8 bytes.
const MAX_ENTRIES: usize = 1 << 22;

/// What the search needs to know of the bound.
pub(super) struct Bound {
    /// By node.
    pub(super) weights: Vec<Weights>,
    /// What a GPU-microsecond is worth, microseconds.
    pub(super) price: f64,
}

/// Only better plans than this are looked for.
pub(super) struct Goal {
    pub(super) time_us: f64,
    pub(super) budget_us: f64,
    pub(super) max_labels: usize,
}

/// Why there is no exact answer.
pub(super) struct GivenUp;

/// The fastest choice that reaches the goal, if there is one.
///
/// # Errors
/// [`GivenUp`] when too many nodes are live at once, or too many labels are kept.
pub(super) fn search(
    problem: &PlanProblem,
    lane: &CommunicationLane,
    bound: &Bound,
    goal: &Goal,
) -> Result<Option<Vec<usize>>, GivenUp> {
    let cuts = cuts(problem, lane)?;
    let completion = completion(problem, lane, bound, &cuts);
    let mut leaves = Vec::new();
    let mut first_leaf = Vec::with_capacity(problem.nodes.len());
    for (variable, node) in (0..).zip(&problem.nodes) {
        first_leaf.push(leaves.len() as u32);
        leaves.extend((0..node.options.len() as u32).map(|value| Decision { variable, value }));
    }
    let mut history = History::new(leaves);
    let start = history.mark();
    let mut states = vec![vec![Label { time_us: 0.0, queue_us: 0.0, gpu_us: 0.0, history: None }]];
    for position in (0..lane.order.len()).rev() {
        let node = lane.order[position];
        let step = NodeDecision::new(problem, lane, &cuts[position + 1], &cuts[position], node);
        let mark = history.mark();
        let mut next: Vec<Vec<Label>> = vec![Vec::new(); cuts[position].states];
        let share = bound.weights[node].all_reduce;
        let limit = goal.time_us + bound.price * goal.budget_us;
        for (state, labels) in states.iter().enumerate().filter(|(_, labels)| !labels.is_empty()) {
            for (option, chosen) in problem.nodes[node].options.iter().enumerate() {
                let transfers = step.transfers(state, option);
                let target = step.target(state, option);
                let (own_us, reduce_us) = (chosen.time_us + transfers.time, chosen.all_reduce_us);
                let gpu_us = chosen.gpus as f64 * chosen.total_us() + transfers.gpu;
                for label in labels {
                    let waits = if transfers.time > 0.0 { label.queue_us } else { 0.0 };
                    let hidden_us = (label.queue_us - waits - chosen.backward_part_us()).max(0.0);
                    let extended = Label {
                        time_us: label.time_us + waits + own_us,
                        queue_us: hidden_us + reduce_us,
                        gpu_us: label.gpu_us + gpu_us,
                        history: label.history,
                    };
                    let at_least = extended.time_us
                        + share * extended.queue_us
                        + bound.price * extended.gpu_us
                        + completion[position][target];
                    let late = extended.time_us + extended.queue_us * f64::from(u8::from(position == 0));
                    if at_least <= limit && extended.gpu_us <= goal.budget_us && late <= goal.time_us {
                        let leaf = first_leaf[node] + option as u32;
                        let history = label.history.map_or(leaf, |before| history.join(before, leaf));
                        next[target].push(Label { history: Some(history), ..extended });
                    }
                }
            }
        }
        for labels in &mut next {
            keep_nondominated(labels, Label::cost, Slack::NONE);
        }
        let kept = next.iter_mut().flatten().filter_map(|label| label.history.as_mut());
        history.keep_only(mark, kept);
        if history.since(start) > goal.max_labels {
            return Err(GivenUp);
        }
        states = next;
    }
    let total = |label: &Label| label.time_us + label.queue_us;
    let best = states
        .into_iter()
        .flatten()
        .min_by(|a, b| total(a).total_cmp(&total(b)).then(a.gpu_us.total_cmp(&b.gpu_us)));
    Ok(best.and_then(|best| best.history).map(|entry| {
        let mut choice = vec![0; problem.nodes.len()];
        for decision in history.decisions(entry) {
            choice[decision.variable as usize] = decision.value as usize;
        }
        choice
    }))
}

/// A choice for all nodes from some position in program order on.
#[derive(Clone, Copy)]
struct Label {
    time_us: f64,
    queue_us: f64,
    gpu_us: f64,
    history: Option<u32>,
}

impl Label {
    /// The criteria as those of an additive label: a longer queue costs at most its difference.
    fn cost(&self) -> Cost {
        Cost { time: self.time_us, gpu: self.gpu_us, memory: self.time_us + self.queue_us }
    }
}

/// Between two positions of program order: the nodes from the later one on that have producers before it.
struct Cut {
    live: Vec<usize>,
    /// Combinations of their options; the last one counts fastest.
    states: usize,
}

/// `cuts[i]` separates the positions before `i` from the others.
fn cuts(problem: &PlanProblem, lane: &CommunicationLane) -> Result<Vec<Cut>, GivenUp> {
    let mut position = vec![0; problem.nodes.len()];
    for (place, &node) in lane.order.iter().enumerate() {
        position[node] = place;
    }
    let mut first_producer: Vec<usize> = position.clone();
    for edge in &problem.edges {
        first_producer[edge.to.0] = first_producer[edge.to.0].min(position[edge.from.0]);
    }
    let mut entries = 0_usize;
    let mut cuts = Vec::with_capacity(lane.order.len() + 1);
    for cut in 0..=lane.order.len() {
        let live: Vec<usize> =
            lane.order[cut..].iter().copied().filter(|&node| first_producer[node] < cut).collect();
        let options = live.iter().map(|&node| problem.nodes[node].options.len());
        let states = options.fold(1_usize, usize::saturating_mul);
        entries = entries.saturating_add(states);
        if entries > MAX_ENTRIES {
            return Err(GivenUp);
        }
        cuts.push(Cut { live, states });
    }
    Ok(cuts)
}

/// The least that the nodes before each cut cost under the bound's prices, for every combination of options live there.
fn completion(problem: &PlanProblem, lane: &CommunicationLane, bound: &Bound, cuts: &[Cut]) -> Vec<Vec<f64>> {
    let mut completion = vec![vec![0.0]];
    for (position, &node) in lane.order.iter().enumerate() {
        let step = NodeDecision::new(problem, lane, &cuts[position + 1], &cuts[position], node);
        let Weights { all_reduce, backward } = bound.weights[node];
        let least = |state: usize| {
            let value = |(option, chosen): (usize, &NodeOption)| {
                let transfers = step.transfers(state, option);
                let time_us = chosen.time_us + all_reduce * chosen.all_reduce_us
                    - backward * chosen.backward_part_us()
                    + transfers.time;
                let gpu_us = chosen.gpus as f64 * chosen.total_us() + transfers.gpu;
                time_us + bound.price * gpu_us + completion[position][step.target(state, option)]
            };
            problem.nodes[node].options.iter().enumerate().map(value).fold(f64::INFINITY, f64::min)
        };
        let row = (0..cuts[position + 1].states).map(least).collect();
        completion.push(row);
    }
    completion
}

/// Deciding one node: from the combinations of options live after it to those live before it.
struct NodeDecision<'p> {
    problem: &'p PlanProblem,
    after: &'p Cut,
    /// What the node's own option and those live after it count for in a combination live before it.
    own_stride: usize,
    strides: Vec<usize>,
    /// Edges to consumers, with the consumer's place among the live nodes.
    edges: Vec<(usize, usize)>,
}

impl<'p> NodeDecision<'p> {
    fn new(
        problem: &'p PlanProblem,
        lane: &CommunicationLane,
        after: &'p Cut,
        before: &Cut,
        node: usize,
    ) -> Self {
        let mut strides = vec![0; after.live.len()];
        let mut own_stride = 0;
        let mut stride = 1;
        for &live in before.live.iter().rev() {
            match after.live.iter().position(|&other| other == live) {
                Some(place) => strides[place] = stride,
                None => own_stride = stride,
            }
            stride *= problem.nodes[live].options.len();
        }
        let place = |edge: usize| after.live.iter().position(|&live| live == problem.edges[edge].to.0);
        let edges = lane.outgoing[node].iter().filter_map(|&edge| Some((edge, place(edge)?))).collect();
        Self { problem, after, own_stride, strides, edges }
    }

    /// The option of the live node at `place` in a combination.
    fn option(&self, state: usize, place: usize) -> usize {
        let later = &self.after.live[place + 1..];
        let below: usize = later.iter().map(|&live| self.problem.nodes[live].options.len()).product();
        state / below % self.problem.nodes[self.after.live[place]].options.len()
    }

    /// The combination before the step.
    fn target(&self, state: usize, option: usize) -> usize {
        let kept = self.strides.iter().enumerate().filter(|&(_, &stride)| stride > 0);
        kept.map(|(place, stride)| stride * self.option(state, place)).sum::<usize>()
            + self.own_stride * option
    }

    /// What moving the node's output to its consumers costs.
    fn transfers(&self, state: usize, option: usize) -> Cost {
        let transfer = |&(edge, place): &(usize, usize)| {
            Cost::of_transfer(self.problem, &self.problem.edges[edge], option, self.option(state, place))
        };
        self.edges.iter().map(transfer).fold(Cost::ZERO, Cost::plus)
    }
}
