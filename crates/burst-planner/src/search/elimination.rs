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
use crate::waves::RegionTable;
use crate::{Error, Node, PlanProblem, Result};

/// Entries of all tables together. An entry takes 24 bytes, and 4 for each bucket that hangs on it.
const MAX_ENTRIES: u64 = 1 << 24;

/// A problem made ready for searches.
pub(crate) struct Elimination {
    pub(crate) tables: Tables,
    /// The single decisions that the tables are made of: the history's leaves.
    pub(crate) decisions: Vec<Decision>,
    /// The memory limit where it can bind at all.
    pub(crate) memory_limit: Option<u64>,
}

impl Elimination {
    /// Orders the nodes and fills the tables; the time of each node is weighted. What lies inside of tabulated regions is
    /// decided by their alternatives. Time and space linear in the table entries.
    ///
    /// # Errors
    /// [`Error::TooWide`]; and [`Error::DoesNotFit`] when no choice respects the memory limit, though for plans with
    /// regions that is found out by the search.
    pub(crate) fn new(problem: &PlanProblem, weights: &[Weights], regions: &[RegionTable]) -> Result<Self> {
        let memory_limit = binding_memory_limit(problem, regions)?;
        let steps = order(problem, regions)?;
        let mut decisions = Vec::new();
        let mut first_decision = Vec::with_capacity(problem.nodes.len() + regions.len());
        let values = problem.nodes.iter().map(|node| node.options.len());
        let alternatives = regions.iter().map(|region| region.time_us.len());
        for (variable, values) in (0..).zip(values.chain(alternatives)) {
            first_decision.push(decisions.len() as u32);
            decisions.extend((0..values as u32).map(|value| Decision { variable, value }));
        }
        // Where regions are tabulated, memory differs by rank and is no criterion of these tables.
        let with_memory = memory_limit.is_some() && regions.is_empty();
        let tables = Filling { problem, weights, regions, with_memory, first_decision }.fill(&steps);
        Ok(Self { tables, decisions, memory_limit })
    }
}

/// What is decided at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variable {
    Node(usize),
    /// A tabulated region, by its place in the list.
    Region(usize),
}

/// A variable and the neighbours that it has when its turn comes.
struct EliminationStep {
    variable: Variable,
    separator: Vec<usize>,
}

/// Regions first: nothing is tied to them but their fork and join.
fn order(problem: &PlanProblem, regions: &[RegionTable]) -> Result<Vec<EliminationStep>> {
    let mut inside = vec![false; problem.nodes.len()];
    let mut neighbours = vec![BTreeSet::new(); problem.nodes.len()];
    let mut steps = Vec::with_capacity(problem.nodes.len());
    let mut total = 0_u64;
    for (index, region) in regions.iter().enumerate() {
        for &node in &region.nodes {
            inside[node] = true;
        }
        let (one, other) = (region.fork.min(region.join), region.fork.max(region.join));
        neighbours[one].insert(other);
        neighbours[other].insert(one);
        total += region.time_us.len() as u64;
        steps.push(EliminationStep { variable: Variable::Region(index), separator: vec![one, other] });
    }
    for edge in problem.edges.iter().filter(|edge| !inside[edge.from.0] && !inside[edge.to.0]) {
        neighbours[edge.from.0].insert(edge.to.0);
        neighbours[edge.to.0].insert(edge.from.0);
    }
    // Ties go to the lower index, which takes a topologically numbered chain from its beginning to its end.
    let outside = neighbours.iter().enumerate().filter(|&(node, _)| !inside[node]);
    let mut queue: BTreeSet<(usize, usize)> = outside.map(|(node, others)| (others.len(), node)).collect();
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
        steps.push(EliminationStep { variable: Variable::Node(node), separator });
    }
    Ok(steps)
}

/// What tables are filled from.
struct Filling<'p> {
    problem: &'p PlanProblem,
    /// By node.
    weights: &'p [Weights],
    regions: &'p [RegionTable],
    with_memory: bool,
    /// By node, then by region: its first decision.
    first_decision: Vec<u32>,
}

impl Filling<'_> {
    fn fill(&self, steps: &[EliminationStep]) -> Tables {
        let mut turn = vec![usize::MAX; self.problem.nodes.len()];
        for (index, step) in steps.iter().enumerate() {
            if let Variable::Node(node) = step.variable {
                turn[node] = index;
            }
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
        let mut tabulated = vec![false; self.problem.edges.len()];
        self.regions.iter().flat_map(|region| &region.edges).for_each(|&edge| tabulated[edge] = true);
        for (index, edge) in self.problem.edges.iter().enumerate().filter(|&(index, _)| !tabulated[index]) {
            edges[turn[edge.from.0].min(turn[edge.to.0])].push(index);
        }
        let buckets = steps.iter().enumerate().map(|(index, step)| match step.variable {
            Variable::Node(node) => self.node(node, step, steps, &children[index], &edges[index]),
            Variable::Region(region) => self.region(region, step),
        });
        Tables::number(buckets.collect())
    }

    fn options(&self, node: usize) -> usize {
        self.problem.nodes[node].options.len()
    }

    fn node(
        &self,
        node: usize,
        step: &EliminationStep,
        steps: &[EliminationStep],
        children: &[usize],
        edges: &[usize],
    ) -> Bucket {
        let options = self.problem.nodes[node].options.iter();
        let own: Vec<Cost> =
            options.map(|option| Cost::of_option(option, self.weights[node], self.with_memory)).collect();
        let states: usize = step.separator.iter().map(|&node| self.options(node)).product();
        let entries = states * own.len();
        let mut costs = Costs::with_capacity(entries, self.with_memory);
        let mut children: Vec<Child> =
            children.iter().map(|&bucket| Child { bucket, state: Vec::with_capacity(entries) }).collect();
        // `chosen[n]` is the option of node `n` in the current entry; only nodes of this bucket are read.
        let mut chosen = vec![0; self.problem.nodes.len()];
        for state in 0..states {
            let mut rest = state;
            for &node in step.separator.iter().rev() {
                chosen[node] = rest % self.options(node);
                rest /= self.options(node);
            }
            for (option, &own) in own.iter().enumerate() {
                chosen[node] = option;
                let transfers = edges.iter().map(|&edge| {
                    let edge = &self.problem.edges[edge];
                    Cost::of_transfer(self.problem, edge, chosen[edge.from.0], chosen[edge.to.0])
                });
                costs.push(transfers.fold(own, Cost::plus));
                for child in &mut children {
                    let separator = steps[child.bucket].separator.iter();
                    let state = separator.fold(0, |state, &node| state * self.options(node) + chosen[node]);
                    child.state.push(state as u32);
                }
            }
        }
        let first = self.first_decision[node];
        let decision = first..first + own.len() as u32;
        Bucket {
            first_state: 0,
            first: (0..=states).map(|state| (state * own.len()) as u32).collect(),
            costs,
            decision: std::iter::repeat_n(decision, states).flatten().collect(),
            children,
        }
    }

    fn region(&self, index: usize, step: &EliminationStep) -> Bucket {
        let region = &self.regions[index];
        let first_decision = self.first_decision[self.problem.nodes.len() + index];
        let mut bucket = Bucket {
            first_state: 0,
            first: vec![0],
            costs: Costs::with_capacity(region.time_us.len(), self.with_memory),
            decision: Vec::with_capacity(region.time_us.len()),
            children: Vec::new(),
        };
        for one in 0..self.options(step.separator[0]) {
            for other in 0..self.options(step.separator[1]) {
                let forwards = step.separator[0] == region.fork;
                let (fork, join) = if forwards { (one, other) } else { (other, one) };
                for alternative in region.alternatives(fork, join) {
                    let (time, gpu) = (region.time_us[alternative], region.gpu_us[alternative]);
                    bucket.costs.push(Cost { time, gpu, memory: 0.0 });
                    bucket.decision.push(first_decision + alternative as u32);
                }
                bucket.first.push(bucket.decision.len() as u32);
            }
        }
        bucket
    }
}

/// The limit, unless every choice respects it: then memory is no criterion and the search need not carry it.
fn binding_memory_limit(problem: &PlanProblem, regions: &[RegionTable]) -> Result<Option<u64>> {
    let Some(limit_bytes) = problem.memory_limit_bytes else { return Ok(None) };
    if !can_bind(problem, limit_bytes) {
        return Ok(None);
    }
    let smallest = smallest(problem);
    let needed_bytes = smallest.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if regions.is_empty() && needed_bytes > limit_bytes {
        let largest = smallest.into_iter().take(5).collect();
        return Err(Error::DoesNotFit { limit_bytes, needed_bytes, largest });
    }
    Ok(Some(limit_bytes))
}

/// Whether the largest options of all nodes do not fit together.
pub(crate) fn can_bind(problem: &PlanProblem, limit_bytes: u64) -> bool {
    let largest = |node: &Node| node.options.iter().filter_map(|option| option.memory_bytes).max();
    let most = problem.nodes.iter().filter_map(largest).fold(0, u64::saturating_add);
    most > limit_bytes
}

/// The nodes with what their smallest options hold, largest first.
pub(crate) fn smallest(problem: &PlanProblem) -> Vec<(String, u64)> {
    let bytes = |node: &Node| node.options.iter().filter_map(|option| option.memory_bytes).min().unwrap_or(0);
    let mut smallest: Vec<_> = problem.nodes.iter().map(|node| (node.name.clone(), bytes(node))).collect();
    smallest.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    smallest
}
