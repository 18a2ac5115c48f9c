//! Proposals of splits: the options of all nodes that are best in a simple model, in which steps
//! and collectives run one after another. An *option* of a node is its ranks and its split.

use std::rc::Rc;

use super::split_moves::RankList;
use super::stage::SearchStage;
use crate::Result;
use crate::costs::StepTimes;
use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::splits::{Layout, layout};

/// Fractions of the times of all-reduces of gradients that do not overlap with steps.
const EXPOSED: [f64; 3] = [0.0, 0.5, 1.0];
/// Prices of the time of a rank, relative to that of an iteration, times the number of GPUs.
const PRICES: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.5, 3.0];

/// Returns the variants of the model for a number of GPUs.
fn models(gpus: usize) -> impl Iterator<Item = Model> {
    let free = EXPOSED.into_iter().map(|exposed| Model { exposed, price: 0.0 });
    free.chain(PRICES.into_iter().map(move |price| Model { exposed: 0.5, price: price / gpus as f64 }))
}

/// Maximum number of numbers of ranks of a node.
const MAX_COUNTS: usize = 5;

/// A variant of the model.
#[derive(Clone, Copy)]
struct Model {
    /// Fraction of the times of all-reduces of gradients that does not overlap with steps.
    exposed: f64,
    /// Price of the time of a rank, relative to that of an iteration.
    price: f64,
}

/// An option of a node, with the times and the layouts of its tensors.
struct NodeOption {
    group: u32,
    split: Option<usize>,
    ranks: usize,
    /// Time of its steps, microseconds.
    steps_us: f64,
    /// Time of the all-reduce of its gradient, microseconds.
    reduce_us: f64,
    output: Layout,
    output_gradient: Layout,
    input: Layout,
    input_gradient: Layout,
}

/// The options of all nodes for a number of parts, and the times of the movements between them.
struct Options {
    order: Rc<[u32]>,
    /// By node.
    of_nodes: Vec<Vec<NodeOption>>,
    /// By node: the nodes whose options its own cost depends on.
    edges: Vec<Vec<Edge>>,
}

/// The times in which an input of a node and its gradient move.
struct Edge {
    /// The node that produces the input, or owns the parameters.
    other: usize,
    /// By option of the other node, then by option of the node itself, microseconds; infinite if
    /// the two options are not possible together.
    times_us: Vec<f64>,
}

/// The best options of the nodes so far in the order, with a given option of the last one.
#[derive(Clone)]
struct Path {
    time_us: f64,
    /// By node: index of its option.
    options: Vec<u16>,
}

impl SearchStage<'_> {
    /// Offers arrangements on the first `gpus` ranks in which some nodes have the same number of
    /// parts: for each number, those that the model proposes. O(numbers of parts x nodes x
    /// options^2).
    pub(super) fn propose_splits(&mut self, gpus: usize) -> Result<()> {
        for parts in self.evaluator.problem().all_parts().into_iter().filter(|&parts| parts <= gpus) {
            let options = Options::new(&mut self.evaluator, gpus, parts);
            for model in models(gpus) {
                if let Some(proposed) = options.fastest(model) {
                    self.offer(&proposed)?;
                }
            }
        }
        Ok(())
    }
}

impl Options {
    /// Collects the options of all nodes on some of the first `gpus` ranks: without a split, and
    /// with each of their splits into `parts` parts.
    fn new(evaluator: &mut Evaluator<'_>, gpus: usize, parts: usize) -> Self {
        let order = Rc::clone(evaluator.own_order());
        let of_nodes: Vec<Vec<NodeOption>> =
            (0..order.len()).map(|node| options_of(evaluator, node, (gpus, parts))).collect();
        let edges = (0..order.len()).map(|node| edges_of(evaluator, &of_nodes, node)).collect();
        Self { order, of_nodes, edges }
    }

    /// Returns the arrangement that is the fastest in the model, or `None` if no node can run on
    /// these ranks. It is the fastest of all if every node reads the output of the node before it;
    /// otherwise the options of other producers are those of the best path to the node before.
    fn fastest(&self, model: Model) -> Option<NumberedArrangement> {
        let mut paths = vec![Path { time_us: 0.0, options: vec![u16::MAX; self.order.len()] }];
        for &node in &*self.order {
            let node = node as usize;
            let mut next = Vec::new();
            for (choice, option) in self.of_nodes[node].iter().enumerate() {
                let times_us = paths.iter().map(|path| path.time_us + self.edges_us(path, (node, choice)));
                let (best, before_us) = times_us.enumerate().min_by(|a, b| a.1.total_cmp(&b.1))?;
                if before_us.is_finite() {
                    let mut options = paths[best].options.clone();
                    options[node] = choice as u16;
                    next.push(Path { time_us: before_us + model.time_us(option), options });
                }
            }
            paths = next;
        }
        let best = paths.into_iter().min_by(|a, b| a.time_us.total_cmp(&b.time_us))?;
        let chosen = || {
            best.options.iter().zip(&self.of_nodes).map(|(&choice, options)| &options[usize::from(choice)])
        };
        let groups = chosen().map(|option| option.group).collect();
        let splits = chosen().map(|option| option.split.map_or(0, |split| split as u32 + 1)).collect();
        Some(NumberedArrangement { groups, splits: Some(splits), order: Rc::clone(&self.order) })
    }

    /// Returns the time of the movements between a node with an option and the options of a path.
    fn edges_us(&self, path: &Path, (node, choice): (usize, usize)) -> f64 {
        let own = self.of_nodes[node].len();
        self.edges[node]
            .iter()
            .map(|edge| edge.times_us[usize::from(path.options[edge.other]) * own + choice])
            .sum()
    }
}

impl Model {
    /// Returns the price of an option, microseconds.
    fn time_us(&self, option: &NodeOption) -> f64 {
        (option.steps_us + self.exposed * option.reduce_us) * (1.0 + self.price * option.ranks as f64)
    }
}

/// Returns the options of a node on some of the first `gpus` ranks: without a split, and with each
/// of its splits into `parts` parts.
fn options_of(evaluator: &mut Evaluator<'_>, node: usize, (gpus, parts): (usize, usize)) -> Vec<NodeOption> {
    let of_node = &evaluator.problem().nodes[node];
    let mut options = Vec::new();
    let widest = of_node.gpu_counts.iter().copied().filter(|&count| count <= gpus).max().unwrap_or(1);
    let halves = std::iter::successors(Some(widest), |count| Some(count / 2));
    let mut counts = vec![parts, gpus, widest * parts];
    counts.extend(halves.take_while(|&count| count > 0).take(MAX_COUNTS));
    counts.retain(|&count| count <= gpus);
    counts.sort_unstable();
    counts.dedup();
    let ranks: Vec<usize> = (0..gpus).collect();
    for count in counts {
        let group = evaluator.range(0, count);
        if evaluator.is_option(node, group) {
            let times = evaluator.steps(node, group);
            let bytes = (of_node.gradient_bytes, of_node.synchronized);
            let (steps_us, reduce_us) = times_us(evaluator, node, ((group, count), times), bytes);
            let [output, output_gradient, input, input_gradient] = [group; 4];
            options.push(NodeOption {
                group,
                split: None,
                ranks: count,
                steps_us,
                reduce_us,
                output,
                output_gradient,
                input,
                input_gradient,
            });
        }
        let mut list = RankList::new(&ranks[..count]);
        for (split, of_split) in of_node.splits.iter().enumerate().filter(|(_, of)| of.parts == parts) {
            let Some(group) = evaluator.option_group(node, &mut list, Some(split)) else { continue };
            let Some(times) = evaluator.split_steps(node, split, count) else { continue };
            let bytes = (of_split.gradient_bytes, of_split.synchronized);
            let summing =
                if of_split.sums_parts { (evaluator.range(0, count), count) } else { (group, count / parts) };
            let (steps_us, reduce_us) = times_us(evaluator, node, (summing, times), bytes);
            options.push(NodeOption {
                group,
                split: Some(split),
                ranks: count,
                steps_us,
                reduce_us,
                output: layout(group, of_split.output),
                output_gradient: layout(group, of_split.output_gradient()),
                input: layout(group, of_split.input),
                input_gradient: layout(group, of_split.input_gradient),
            });
        }
    }
    options
}

/// Returns the time of the steps of a node, and that of the all-reduce of its gradient, which
/// `summing` ranks of a group sum for each part. `bytes` are those of its gradient, and those that
/// it all-reduces within its steps.
fn times_us(
    evaluator: &mut Evaluator<'_>,
    node: usize,
    ((group, summing), times): ((u32, usize), StepTimes),
    (gradient_bytes, synchronized): (u64, Option<crate::SynchronizedBytes>),
) -> (f64, f64) {
    let structure = evaluator.structure();
    let has_parameters = !structure.users[node].is_empty();
    let backward_us = if structure.needs_gradient[node] { times.backward_us } else { 0.0 };
    let mut steps_us = times.forward_us + backward_us;
    let mut reduce_us = 0.0;
    if has_parameters {
        steps_us += times.update_us;
    }
    if summing > 1 {
        if has_parameters && gradient_bytes > 0 {
            reduce_us = evaluator.reduce_us(gradient_bytes, group);
        }
        for bytes in synchronized.iter().flat_map(|bytes| [bytes.forward, bytes.backward]) {
            steps_us += if bytes > 0 { evaluator.reduce_us(bytes, group) } else { 0.0 };
        }
    }
    (steps_us, reduce_us)
}

/// Returns the times between the options of a node and those of its producers, and of the owner of
/// its parameters: with these it has the same ranks and split, or both are whole.
fn edges_of(evaluator: &mut Evaluator<'_>, options: &[Vec<NodeOption>], node: usize) -> Vec<Edge> {
    let mut edges = Vec::new();
    let pairs = |other: usize| {
        let of_other = options[other].iter();
        of_other.flat_map(|from| options[node].iter().map(move |own| (from, own)))
    };
    if let Some(owner) = evaluator.problem().nodes[node].parameters_of {
        let is_possible = |(of_owner, own): (&NodeOption, &NodeOption)| {
            let is_split = own.split.is_some() || of_owner.split.is_some();
            !is_split || (own.group, own.split) == (of_owner.group, of_owner.split)
        };
        let times_us = pairs(owner.0).map(|pair| if is_possible(pair) { 0.0 } else { f64::INFINITY });
        edges.push(Edge { other: owner.0, times_us: times_us.collect() });
    }
    for index in 0..evaluator.structure().producers[node].len() {
        let producer = evaluator.structure().producers[node][index];
        let needs_gradient = evaluator.structure().needs_gradient[producer];
        let mut time_us = |(from, own): (&NodeOption, &NodeOption)| {
            let mut time_us = 0.0;
            if from.output != own.input {
                time_us += evaluator.transfer_us(producer, from.output, own.input);
            }
            if needs_gradient && own.input_gradient != from.output_gradient {
                time_us += evaluator.transfer_us(producer, own.input_gradient, from.output_gradient);
            }
            time_us
        };
        edges.push(Edge { other: producer, times_us: pairs(producer).map(&mut time_us).collect() });
    }
    edges
}
