//! One outermost region with all that is nested in it, from the inside to the outside.

use super::front::Front;
use super::plans::{Apart, BranchFronts, RegionFronts};
use super::trace::Traces;
use crate::waves::region::{Link, Region};
use crate::{Error, PlanProblem, Result};

/// Factors that partial plans may be slower by than those that they are kept for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tolerance {
    /// At every step on the way.
    pub(super) step: f64,
    /// At the end.
    pub(super) last: f64,
}

/// The search for all plans of an outermost region.
pub(super) struct Outermost<'p, F> {
    pub(super) problem: &'p PlanProblem,
    pub(super) regions: &'p [Region],
    /// Whether branches of a region can ever run at once.
    pub(super) can_gain: &'p [bool],
    /// The widths that branches can have: the GPU counts of the nodes inside, ascending.
    pub(super) counts: Vec<usize>,
    /// Ranks that are told apart: those of the problem, or none.
    pub(super) ranks: usize,
    pub(super) tolerance: Tolerance,
    pub(super) max_labels: usize,
    /// How many plans a front may have.
    pub(super) most: usize,
    pub(super) epsilon: f64,
    pub(super) traces: Traces,
    /// The outermost region; those nested in it have the next numbers.
    root: usize,
    /// By region after the root, width and what is apart.
    nested: Vec<Vec<Option<RegionFronts<F>>>>,
}

impl<'p, F: Front> Outermost<'p, F> {
    /// # Errors
    /// [`Error::TooManyBranches`].
    pub(super) fn new(
        problem: &'p PlanProblem,
        regions: &'p [Region],
        can_gain: &'p [bool],
        root: usize,
        epsilon: f64,
        max_labels: usize,
    ) -> Result<Self> {
        let end = (root + 1..regions.len()).find(|&r| regions[r].parent.is_none()).unwrap_or(regions.len());
        let mut counts: Vec<usize> = Vec::new();
        let mut steps = vec![0; end - root];
        for index in (root..end).rev() {
            let region = &regions[index];
            if can_gain[index] && region.branches.len() > MAX_BRANCHES {
                let (fork, join) = region.names(problem);
                let branches = region.branches.len();
                return Err(Error::TooManyBranches { fork, join, branches, most: MAX_BRANCHES });
            }
            for branch in &region.branches {
                let options = branch.nodes.iter().flat_map(|&node| &problem.nodes[node.0].options);
                counts.extend(options.map(|option| option.gpus));
                // Plans are left out at every link that is a region, at the end of the branch, of waves, and twice for
                // each wave that is added.
                let inner = branch.links.iter().filter_map(|link| match *link {
                    Link::Region(inner) => Some(steps[inner - root]),
                    Link::Edge(_) => None,
                });
                let inside = inner.clone().max().unwrap_or(0) + inner.count() + 2;
                steps[index - root] = steps[index - root].max(inside + 2 * region.branches.len());
            }
        }
        counts.sort_unstable();
        counts.dedup();
        // Sums in different orders differ by rounding; what differs by no more is the same.
        let half = 0.5 * epsilon.max(ROUNDING).ln_1p();
        Ok(Self {
            problem,
            regions,
            can_gain,
            counts,
            ranks: if F::BY_RANK { problem.gpus } else { 0 },
            tolerance: Tolerance { step: (half / steps[0] as f64).exp(), last: half.exp() },
            max_labels,
            most: F::most(max_labels),
            epsilon,
            traces: Traces::default(),
            root,
            nested: (root..end).map(|_| Vec::new()).collect(),
        })
    }

    /// All plans of the outermost region.
    ///
    /// # Errors
    /// [`Error::TooManyLabels`], [`Error::TooManyLoads`].
    pub(super) fn solve(&mut self) -> Result<RegionFronts<F>> {
        for region in (self.root + 1..self.root + self.nested.len()).rev() {
            let possible = self.possible(region);
            let branches = self.branches(region, &possible)?;
            let mut nested: Vec<Option<RegionFronts<F>>> = (0..4 * self.counts.len()).map(|_| None).collect();
            for width in 0..self.counts.len() {
                for &apart in &possible {
                    let gpus = self.counts[width];
                    nested[4 * width + apart.index()] = Some(self.region(region, &branches, gpus, apart)?);
                }
            }
            self.nested[region - self.root] = nested;
        }
        let branches = self.branches(self.root, &[Apart::NONE])?;
        let mut whole = self.region(self.root, &branches, self.problem.gpus, Apart::NONE)?;
        let mut plans: Vec<&mut F> = whole.fronts.iter_mut().map(|[all, _]| all).collect();
        for front in &mut plans {
            front.thin(self.tolerance.last);
        }
        self.traces.keep_only(0, plans.into_iter().flat_map(F::traces));
        Ok(whole)
    }

    pub(super) fn nested(&self, region: usize, width: usize, apart: Apart) -> Option<&RegionFronts<F>> {
        self.nested[region - self.root].get(4 * width + apart.index())?.as_ref()
    }

    fn branches(&mut self, region: usize, possible: &[Apart]) -> Result<Vec<BranchFronts<F>>> {
        (0..self.regions[region].branches.len()).map(|branch| self.branch(region, branch, possible)).collect()
    }

    /// What can be apart because of what the region is nested in.
    fn possible(&self, region: usize) -> Vec<Apart> {
        let Some((outer, branch)) = self.regions[region].parent else { return vec![Apart::NONE] };
        let links = &self.regions[outer].branches[branch].links;
        let is_at = |link: Option<&Link>| link == Some(&Link::Region(region));
        let (first, last) = (is_at(links.first()), is_at(links.last()));
        Apart::ALL.into_iter().filter(|apart| (first || !apart.entry) && (last || !apart.exit)).collect()
    }

    /// All pairs of options of fork and join.
    fn region(
        &mut self,
        region: usize,
        branches: &[BranchFronts<F>],
        gpus: usize,
        apart: Apart,
    ) -> Result<RegionFronts<F>> {
        let Region { fork, join, parent, .. } = self.regions[region];
        let options = |node: usize| self.problem.nodes[node].options.len();
        let columns = options(join.0);
        let mut fronts = Vec::with_capacity(options(fork.0) * columns);
        for pair in 0..options(fork.0) * columns {
            let mark = self.traces.len();
            let mut found =
                self.pack(branches, gpus, apart, pair, parent.is_some(), self.can_gain[region])?;
            self.traces.keep_only(mark, found.iter_mut().flat_map(F::traces));
            fronts.push(found);
            self.check_labels()?;
        }
        Ok(RegionFronts { columns, fronts })
    }

    pub(super) fn too_many_labels(&self) -> Error {
        let Self { max_labels, epsilon, .. } = *self;
        if F::BY_RANK {
            Error::TooManyLoads { max_labels }
        } else {
            Error::TooManyLabels { max_labels, epsilon }
        }
    }

    pub(super) fn check_labels(&self) -> Result<()> {
        if self.traces.len() <= self.max_labels { Ok(()) } else { Err(self.too_many_labels()) }
    }
}

/// With more branches there are too many ways to split them into waves.
const MAX_BRANCHES: usize = 10;

/// The share of a time that rounding may change.
const ROUNDING: f64 = 1e-12;
