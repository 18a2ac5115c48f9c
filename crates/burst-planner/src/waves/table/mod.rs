//! Tables of regions: for every pair of options of a region's fork and join, the Pareto-optimal plans of what lies
//! between them.
//!
//! # Method
//! Labels, from the inside to the outside: a label is a partial plan with its time and GPU time, and a front is a set of
//! labels of which none beats another in both. A branch is a dynamic program over its links and nodes, for every bound on
//! its width. Branches are packed into waves by a dynamic program over sets of branches: what runs at once is combined by
//! the larger time and the sum of the GPU times, which merges two fronts in linear time; what runs one after another by
//! sums, of which only those are looked at that lie in blocks whose best corner is not covered already.
//!
//! A branch with a nested region must be as wide as the region's widest wave. So each of its fronts is for a width that the
//! nested region may count on and that some layer of the branch has exactly; what does not reach it is dropped at the end.
//!
//! Where memory binds, a label also has what every rank holds, and only labels of the same width are compared. That is for
//! small problems: labels that differ in what some rank holds cannot replace each other, and soon there are too many.
//!
//! # Cost
//! With `n` branches a region has `2^n` sets and `3^n` sums of fronts for every pair of options of fork and join, and
//! four times as many in a nested region that shares fork and join with the one around it. Exact fronts can be
//! exponentially large; with a tolerance they have at most `log(slowest / fastest) / tolerance` labels.

mod branch;
mod front;
mod loads;
mod pack;
mod plans;
mod solve;
mod staircase;
#[cfg(test)]
mod tests;
mod trace;

use front::Front;
use loads::Loads;
use solve::Outermost;
use staircase::Staircase;
use trace::{Entry, Traces};

use super::gain::can_gain;
use super::region::{Link, Region};
use super::schedule::RegionSchedule;
use crate::{PlanProblem, Result};

/// How region tables are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableOptions {
    /// Every plan of a region is covered by an alternative that takes at most `1 + epsilon` times as long and no more GPU
    /// time, to rounding, so that what is found within a budget is certified. With 0 all alternatives are exact.
    pub(crate) epsilon: f64,
    /// How many labels a front, and the decisions that labels are made of, may number; with memory a front may have the square
    /// root of a sixteenth of it.
    pub(crate) max_labels: usize,
    /// Whether alternatives differ by what each rank holds.
    pub(crate) with_memory: bool,
}

/// The outermost regions in which branches can run at once, each with its alternatives.
#[derive(Debug, Clone)]
pub(crate) struct RegionTables {
    pub(crate) tables: Vec<RegionTable>,
}

/// One outermost region.
#[derive(Debug, Clone)]
pub(crate) struct RegionTable {
    pub(crate) fork: usize,
    pub(crate) join: usize,
    /// The nodes inside; their costs are part of the alternatives'.
    pub(crate) nodes: Vec<usize>,
    /// The edges inside; their costs are part of the alternatives'.
    pub(crate) edges: Vec<usize>,
    /// Options of the join.
    columns: usize,
    /// Where the alternatives of each pair of options begin, and at the end their number.
    first: Vec<u32>,
    /// Of each alternative.
    pub(crate) time_us: Vec<f64>,
    pub(crate) gpu_us: Vec<f64>,
    /// What each rank of the problem holds; absent without memory.
    bytes: Option<Vec<u64>>,
    ranks: usize,
    roots: Vec<u32>,
    traces: Traces,
}

/// An alternative, spelled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expansion {
    /// Nodes and their options.
    pub(crate) choices: Vec<(usize, usize)>,
    /// The waves of the region and of those nested in it, where two branches run at once.
    pub(crate) schedules: Vec<RegionSchedule>,
}

impl RegionTables {
    /// Makes the tables of a valid problem, where `regions` are [those of its graph](crate::regions).
    ///
    /// # Errors
    /// [`Error::TooManyBranches`](crate::Error::TooManyBranches), [`Error::TooManyLabels`](crate::Error::TooManyLabels),
    /// [`Error::TooManyLoads`](crate::Error::TooManyLoads).
    pub(crate) fn new(problem: &PlanProblem, regions: &[Region], options: &TableOptions) -> Result<Self> {
        let gains = can_gain(problem, regions);
        let mut tables = Vec::new();
        let roots: Vec<usize> =
            (0..regions.len()).filter(|&region| regions[region].parent.is_none()).collect();
        for (index, &root) in roots.iter().enumerate() {
            let end = roots.get(index + 1).copied().unwrap_or(regions.len());
            if gains[root..end].iter().any(|&gains| gains) {
                let mut table = RegionTable::empty(problem, &regions[root..end]);
                if options.with_memory {
                    table.fill::<Loads>(problem, regions, &gains, root, options)?;
                } else {
                    table.fill::<Staircase>(problem, regions, &gains, root, options)?;
                }
                tables.push(table);
            }
        }
        Ok(Self { tables })
    }
}

/// What a front of the outermost region leaves in the table.
trait Alternatives: Front {
    fn store(&self, table: &mut RegionTable);
}

impl Alternatives for Staircase {
    fn store(&self, table: &mut RegionTable) {
        table.time_us.extend(self.steps.iter().map(|step| step.time_us));
        table.gpu_us.extend(self.steps.iter().map(|step| step.gpu_us));
        table.roots.extend(self.steps.iter().map(staircase::Step::trace));
    }
}

impl Alternatives for Loads {
    fn store(&self, table: &mut RegionTable) {
        for plan in &self.plans {
            table.time_us.push(plan.times.time_us);
            table.gpu_us.push(plan.times.gpu_us);
            table.roots.push(plan.trace());
            table.bytes.get_or_insert_default().extend_from_slice(&plan.bytes);
        }
    }
}

impl RegionTable {
    fn empty(problem: &PlanProblem, regions: &[Region]) -> Self {
        let branches = || regions.iter().flat_map(|region| &region.branches);
        let links = branches().flat_map(|branch| &branch.links);
        Self {
            fork: regions[0].fork.0,
            join: regions[0].join.0,
            nodes: branches().flat_map(|branch| branch.nodes.iter().map(|node| node.0)).collect(),
            edges: links
                .filter_map(|link| match *link {
                    Link::Edge(edge) => Some(edge),
                    Link::Region(_) => None,
                })
                .collect(),
            columns: problem.nodes[regions[0].join.0].options.len(),
            first: vec![0],
            time_us: Vec::new(),
            gpu_us: Vec::new(),
            bytes: None,
            ranks: problem.gpus,
            roots: Vec::new(),
            traces: Traces::default(),
        }
    }

    fn fill<F: Alternatives>(
        &mut self,
        problem: &PlanProblem,
        regions: &[Region],
        gains: &[bool],
        root: usize,
        options: &TableOptions,
    ) -> Result<()> {
        let mut search =
            Outermost::<F>::new(problem, regions, gains, root, options.epsilon, options.max_labels)?;
        for [front, _] in search.solve()?.fronts {
            front.store(self);
            self.first.push(self.roots.len() as u32);
        }
        self.traces = search.traces;
        Ok(())
    }

    /// The alternatives when the fork takes option `a` and the join option `b`, by rising time. Never empty.
    pub(crate) fn alternatives(&self, a: usize, b: usize) -> std::ops::Range<usize> {
        let pair = a * self.columns + b;
        self.first[pair] as usize..self.first[pair + 1] as usize
    }

    /// What each rank holds of the alternative; `None` without memory.
    pub(crate) fn bytes(&self, alternative: usize) -> Option<&[u64]> {
        self.bytes.as_ref().map(|bytes| &bytes[alternative * self.ranks..(alternative + 1) * self.ranks])
    }

    /// Spells out an alternative. `regions` are those that the table was made of.
    pub(crate) fn expand(&self, regions: &[Region], alternative: usize) -> Expansion {
        let mut choices = Vec::with_capacity(self.nodes.len());
        let mut waves: std::collections::BTreeMap<usize, Vec<Vec<usize>>> = std::collections::BTreeMap::new();
        for leaf in self.traces.leaves(self.roots[alternative]) {
            match leaf {
                Entry::Option { node, option } => choices.push((node as usize, option as usize)),
                Entry::Placed { region, branch, is_first } => {
                    let waves = waves.entry(region as usize).or_default();
                    match waves.last_mut().filter(|_| !is_first) {
                        Some(wave) => wave.push(branch as usize),
                        None => waves.push(vec![branch as usize]),
                    }
                }
                Entry::Both(..) => {}
            }
        }
        let at_once = waves.into_iter().filter(|(_, waves)| waves.iter().any(|wave| wave.len() > 1));
        let schedules = at_once.map(|(region, waves)| {
            let Region { fork, join, .. } = regions[region];
            RegionSchedule { fork, join, waves }
        });
        Expansion { choices, schedules: schedules.collect() }
    }
}
