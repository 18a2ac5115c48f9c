//! The order in which nodes are eliminated, and the tables that this takes.
//!
//! A choice costs the sum of a term for each node and a term for each edge, so the nodes can be decided one at a
//! time: *eliminating* node `v` means to find, for every combination of options of its remaining neighbours (its
//! *separator*), the best options of `v` and of everything that hangs on `v` alone. What is left is a smaller
//! problem, whose neighbours are now tied to each other. (Bucket elimination: R. Dechter, "Bucket elimination: a
//! unifying framework for reasoning", Artificial Intelligence 113, 1999; for series-parallel graphs it is the
//! series and parallel reductions of J. Valdes, R. Tarjan and E. Lawler, SIAM J. Computing 11, 1982.)
//!
//! The node with the fewest neighbours goes first. In a chain that ties one node at a time, so a table has as many
//! entries as two nodes have pairs of options; in a graph of series and parallel parts, skip connections and
//! several sources and sinks included, at most two, so a table has as many entries as three nodes have triples.
//! Denser graphs work as long as their tables stay below [`MAX_ENTRIES`].

use std::collections::BTreeSet;

use super::cost::{Cost, Weights};
use super::history::Decision;
use super::tables::{Bucket, Child, Costs, Tables};
use crate::{Error, PlanProblem, Result};

/// Entries of all tables together. An entry takes 24 bytes, and 4 for each bucket that hangs on it.
const MAX_ENTRIES: u64 = 1 << 24;

/// A problem made ready for searches.
pub(crate) struct Elimination {
    pub(crate) tables: Tables,
    /// The single decisions that the tables are made of: the history's leaves.
    pub(crate) decisions: Vec<Decision>,
    /// The memory limit where it can bind at all.
    pub(crate) memory_limit: Option<f64>,
}

impl Elimination {
    /// Orders the nodes and fills the tables; the time of each node is weighted. Time and space linear in the table entries.
    ///
    /// # Errors
    /// [`Error::TooWide`]; and [`Error::DoesNotFit`] when no choice respects the memory limit.
    pub(crate) fn new(problem: &PlanProblem, weights: &[Weights]) -> Result<Self> {
        let memory_limit = binding_memory_limit(problem)?;
        let steps = order(problem)?;
        let mut decisions = Vec::new();
        let mut first_decision = Vec::with_capacity(problem.nodes.len());
        for (variable, node) in (0..).zip(&problem.nodes) {
            first_decision.push(decisions.len() as u32);
            decisions.extend((0..node.options.len() as u32).map(|value| Decision { variable, value }));
        }
        let tables = fill(problem, weights, &steps, memory_limit.is_some(), &first_decision);
        Ok(Self { tables, decisions, memory_limit })
    }
}

/// A node and the neighbours that it has when its turn comes.
struct Step {
    node: usize,
    separator: Vec<usize>,
}

fn order(problem: &PlanProblem) -> Result<Vec<Step>> {
    let mut neighbours = vec![BTreeSet::new(); problem.nodes.len()];
    for edge in &problem.edges {
        neighbours[edge.from].insert(edge.to);
        neighbours[edge.to].insert(edge.from);
    }
    // Ties go to the lower index, which takes a topologically numbered chain from its beginning to its end.
    let mut queue: BTreeSet<(usize, usize)> =
        neighbours.iter().enumerate().map(|(node, others)| (others.len(), node)).collect();
    let mut steps = Vec::with_capacity(problem.nodes.len());
    let mut total = 0_u64;
    while let Some((_, node)) = queue.pop_first() {
        let separator: Vec<usize> = std::mem::take(&mut neighbours[node]).into_iter().collect();
        let options = |&n: &usize| problem.nodes[n].options.len() as u64;
        let entries = separator.iter().map(options).fold(options(&node), u64::saturating_mul);
        total = total.saturating_add(entries);
        if total > MAX_ENTRIES {
            let neighbours = separator.iter().map(|&n| problem.nodes[n].name.clone()).collect();
            return Err(Error::TooWide {
                node: problem.nodes[node].name.clone(),
                neighbours,
                entries: total,
            });
        }
        for &one in &separator {
            queue.remove(&(neighbours[one].len(), one));
            neighbours[one].remove(&node);
            neighbours[one].extend(separator.iter().filter(|&&other| other != one));
            queue.insert((neighbours[one].len(), one));
        }
        steps.push(Step { node, separator });
    }
    Ok(steps)
}

fn fill(
    problem: &PlanProblem,
    weights: &[Weights],
    steps: &[Step],
    with_memory: bool,
    first_decision: &[u32],
) -> Tables {
    let options = |node: usize| problem.nodes[node].options.len();
    let mut turn = vec![0; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        turn[step.node] = index;
    }
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (index, step) in steps.iter().enumerate() {
        // Parts that are not connected hang on the last bucket, so that there is one root.
        let parent = step.separator.iter().map(|&node| turn[node]).min().unwrap_or(steps.len() - 1);
        if parent > index {
            children[parent].push(index);
        }
    }
    let mut edges: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (index, edge) in problem.edges.iter().enumerate() {
        edges[turn[edge.from].min(turn[edge.to])].push(index);
    }

    // `chosen[n]` is the option of node `n` in the current entry; only nodes of the current bucket are read.
    let mut chosen = vec![0; problem.nodes.len()];
    let mut buckets = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let own: Vec<Cost> = problem.nodes[step.node]
            .options
            .iter()
            .map(|option| Cost::of_option(option, weights[step.node], with_memory))
            .collect();
        let states: usize = step.separator.iter().map(|&node| options(node)).product();
        let entries = states * own.len();
        let mut costs = Costs::with_capacity(entries, with_memory);
        let mut tables: Vec<Child> = children[index]
            .iter()
            .map(|&bucket| Child { bucket, state: Vec::with_capacity(entries) })
            .collect();
        for state in 0..states {
            let mut rest = state;
            for &node in step.separator.iter().rev() {
                chosen[node] = rest % options(node);
                rest /= options(node);
            }
            for (option, &own) in own.iter().enumerate() {
                chosen[step.node] = option;
                let transfers = edges[index].iter().map(|&edge| {
                    let edge = &problem.edges[edge];
                    Cost::of_transfer(problem, edge, chosen[edge.from], chosen[edge.to])
                });
                costs.push(transfers.fold(own, Cost::plus));
                for child in &mut tables {
                    let separator = &steps[child.bucket].separator;
                    let state = separator.iter().fold(0, |state, &node| state * options(node) + chosen[node]);
                    child.state.push(state as u32);
                }
            }
        }
        let decision = first_decision[step.node]..first_decision[step.node] + own.len() as u32;
        buckets.push(Bucket {
            first_state: 0,
            first: (0..=states).map(|state| (state * own.len()) as u32).collect(),
            costs,
            decision: std::iter::repeat_n(decision, states).flatten().collect(),
            children: tables,
        });
    }
    Tables::number(buckets)
}

/// The limit, unless every choice respects it: then memory is no criterion and the search need not carry it.
fn binding_memory_limit(problem: &PlanProblem) -> Result<Option<f64>> {
    let Some(limit_bytes) = problem.memory_limit_bytes else { return Ok(None) };
    let mut smallest = Vec::with_capacity(problem.nodes.len());
    let mut most = 0_u64;
    for node in &problem.nodes {
        let bytes = || node.options.iter().filter_map(|option| option.memory_bytes);
        smallest.push((node.name.clone(), bytes().min().unwrap_or(0)));
        most = most.saturating_add(bytes().max().unwrap_or(0));
    }
    let needed_bytes = smallest.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if needed_bytes > limit_bytes {
        smallest.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        smallest.truncate(5);
        return Err(Error::DoesNotFit { limit_bytes, needed_bytes, largest: smallest });
    }
    Ok((most > limit_bytes).then_some(limit_bytes as f64))
}
