//! Maximization of the lower bound over weights and prices.
//!
//! The *anchor* is the node on whose ranks the updates are counted, and a *case* is a range of the
//! indices of its options. An *option* is a GPU count of a node with its costs, a *place* the index
//! of a node in topological order.

use std::ops::Range;

use super::flows::PricedWeights;
use super::prices::Priced;
use super::through::Case;
use super::weights::Weights;
use super::{Bound, BoundNode, longest_update};
use crate::proof::{LowerBound, ProofEnd, Work};

/// Approximate number of operations of the first pass over all cases.
const FIRST_PASS: usize = 100_000;
/// Ratio of the resolutions of two passes.
const PASS_RATIO: usize = 4;
/// Maximum resolution of a pass.
const MAX_RESOLUTION: usize = 1 << 40;
/// Maximum number of rounds in which weights are moved.
const ROUNDS: usize = 16;
/// Weights of the cycles of the anchor's ranks, relative to those of other ranks. Tried in turn.
const ANCHOR_WEIGHTS: [f64; 2] = [1.0, 0.5];
/// Maximum number of rounds of a region's game for the first case.
const REGION_ROUNDS: usize = 100;
/// Maximum number of rounds for each further case, which starts with the flows of the case before.
const MORE_ROUNDS: usize = 24;
/// The round number with which further cases start, which determines their step size.
const LATER_ROUND: usize = 20;
/// As [`ANCHOR_WEIGHTS`], for bounds by regions.
const REGION_ANCHOR_WEIGHTS: [f64; 4] = [1.0, 0.8, 0.6, 0.4];
/// Minimum limit of labels per option with which labels also distinguish which of the first node's
/// ranks the last node's list contains. A label has lower bounds for the first nodes of a chain.
pub(super) const FINE_LABELS: usize = 400;
/// Minimum limit of labels per option: fewer give no more than a weighted sum.
pub(super) const MIN_LABELS: usize = 16;

/// A bound of some arrangements.
pub(super) struct CaseBound {
    /// The bound, microseconds.
    pub(super) us: f64,
    /// Whether more labels may raise it.
    pub(super) is_merged: bool,
}

/// Limits of the effort for a bound.
pub(super) struct Effort {
    /// Maximum number of ranges of the anchor's options.
    cases: usize,
    /// Number of weights of the cycles of the anchor's ranks that are tried.
    anchor_weights: usize,
    /// Maximum number of rounds in which weights are moved.
    pub(super) rounds: usize,
    /// Maximum number of labels per option of a chain.
    pub(super) labels: usize,
    /// Number of rounds of all regions' games, for all cases together.
    region_rounds: usize,
}

impl Bound {
    /// Proves a lower bound of the iteration time of all arrangements whose GPU time is at most
    /// `budget_us` GPU-microseconds; 0 if a node has no options. The bound is at most `stop_at_us`
    /// microseconds.
    ///
    /// Passes of increasing resolution each bound all arrangements, and the result is the largest
    /// bound of a complete pass.
    pub(crate) fn prove(&self, budget_us: f64, stop_at_us: f64, work: &mut Work<'_>) -> LowerBound {
        let mut us = 0.0;
        let end = self.passes(budget_us, stop_at_us, work, &mut us);
        LowerBound { us: us.min(stop_at_us), operations: work.operations, end }
    }

    /// Runs passes until one of the reasons to end. `us` is raised by each of them.
    fn passes(&self, budget_us: f64, stop_at_us: f64, work: &mut Work<'_>, us: &mut f64) -> ProofEnd {
        if work.left() == 0 {
            return ProofEnd::Budget;
        }
        if self.nodes.iter().any(|node| node.options.is_empty()) {
            return ProofEnd::Complete;
        }
        *us = self.mean_computing_us();
        let mut resolution = FIRST_PASS;
        loop {
            let before = work.operations;
            let effort = self.effort(resolution);
            let pass = match self.pass(budget_us, stop_at_us, &effort, work) {
                Ok(pass) => pass,
                Err(end) => return end,
            };
            *us = us.max(pass.us);
            work.report(*us);
            if *us >= stop_at_us {
                return ProofEnd::Optimal;
            }
            if !pass.is_merged || resolution >= MAX_RESOLUTION {
                return ProofEnd::Complete;
            }
            // The next pass takes more time in about this proportion. A smaller one fits into what
            // is left of the budget, unless it is hardly better than the last one.
            let spent = (work.operations - before).max(1);
            let ratio = (work.left() / spent).min(PASS_RATIO as u64) as usize;
            if ratio < 2 {
                return ProofEnd::Budget;
            }
            resolution *= ratio;
        }
    }

    /// Bounds all arrangements once. Fails if the work is over.
    fn pass(
        &self,
        budget_us: f64,
        stop_at_us: f64,
        effort: &Effort,
        work: &mut Work<'_>,
    ) -> Result<CaseBound, ProofEnd> {
        // Each count of the anchor is a case.
        let (mut minimum, mut binding, mut is_merged) = (stop_at_us, None, !self.is_chain);
        let cases = self.cases(effort.cases);
        is_merged |= cases.len() < self.nodes[self.anchor].options.len();
        for case in cases {
            let (mut bound, mut of_minimum): (f64, _) = (0.0, None);
            if self.is_chain {
                let of_case = self.chain_within_case(&case, budget_us, minimum, effort, work)?;
                bound = of_case.us;
                is_merged |= of_case.is_merged;
            } else {
                for &anchor_weight in self.anchor_weights(effort.anchor_weights) {
                    // A case above another one does not matter.
                    if bound < minimum {
                        let of_case = self.within_case(
                            &case,
                            anchor_weight,
                            (budget_us, minimum),
                            effort.rounds,
                            work,
                        )?;
                        if of_case.0 > bound {
                            bound = of_case.0;
                            of_minimum = Some((of_case.1, of_case.2));
                        }
                    }
                }
            }
            if bound < minimum {
                minimum = bound;
                binding = of_minimum;
            }
        }
        if let Some((mut weights, price)) = binding.filter(|_| minimum < stop_at_us) {
            // All-reduces count from the anchor on, which can be any of the early nodes here.
            let last = self.early.last().map_or(0, |&last| self.nodes[last].part);
            weights.reduces[..last].fill(0.0);
            let sum = PricedWeights { weights: &weights, price, budget_us };
            minimum = minimum.max(self.within_regions(&sum, stop_at_us, effort, work)?);
        }
        Ok(CaseBound { us: minimum, is_merged })
    }

    /// Returns the bound by regions, over all counts of the widest early node.
    fn within_regions(
        &self,
        sum: &PricedWeights<'_>,
        stop_at_us: f64,
        effort: &Effort,
        work: &mut Work<'_>,
    ) -> Result<f64, ProofEnd> {
        let cases = (effort.region_rounds / 8).clamp(1, effort.cases);
        let first = (effort.region_rounds / 4).clamp(1, REGION_ROUNDS);
        let more = effort.region_rounds * 3 / 4 / (cases * REGION_ANCHOR_WEIGHTS.len());
        let more = more.clamp(1, MORE_ROUNDS);
        let mut game = self.game();
        let mut minimum = stop_at_us;
        let mut rounds = 0..first;
        // Widest first: the minimum is often among them, and the other cases end early then.
        for (narrow, wide) in self.widest(cases).into_iter().rev() {
            let mut bound: f64 = 0.0;
            for &anchor_weight in if self.early.is_empty() { &[0.0][..] } else { &REGION_ANCHOR_WEIGHTS } {
                if bound < minimum {
                    let case = Case { minimum: narrow, maximum: wide, anchor_weight };
                    let of_case =
                        self.region_bound_us(&mut game, sum, case, minimum, rounds.clone(), work)?;
                    bound = bound.max(of_case);
                }
                rounds = LATER_ROUND..LATER_ROUND + more;
            }
            minimum = minimum.min(bound);
        }
        Ok(minimum)
    }

    /// Returns the minimum of the mean computing time over ranks. It also holds if no node has
    /// gradients.
    fn mean_computing_us(&self) -> f64 {
        let minimum = |node: &BoundNode| {
            node.options.iter().map(|option| option.computing_us).fold(f64::INFINITY, f64::min)
        };
        self.nodes.iter().map(minimum).sum::<f64>() / self.gpus
    }

    fn anchor_weights(&self, maximum: usize) -> &'static [f64] {
        if self.has_anchor { &ANCHOR_WEIGHTS[..maximum] } else { &[0.0] }
    }

    /// Returns the number of pairs of options of adjacent nodes, about.
    pub(super) fn pairs(&self) -> usize {
        let options = self.nodes.iter().map(|node| node.options.len()).max().unwrap_or(1);
        self.nodes.len() * options * options
    }

    /// Returns the limits of a pass. A step is a sum over all nodes and pairs of their options, so
    /// larger problems get fewer steps. A pass of `resolution` takes about as many operations.
    fn effort(&self, resolution: usize) -> Effort {
        let options = self.nodes.iter().map(|node| node.options.len()).max().unwrap_or(1);
        let solutions = (resolution / self.pairs()).max(1);
        let cases = (solutions / 64).clamp(1, self.nodes[self.anchor].options.len());
        let anchor_weights = (solutions / (cases * 64)).clamp(1, ANCHOR_WEIGHTS.len());
        Effort {
            cases,
            anchor_weights,
            rounds: (solutions / (cases * anchor_weights * 4)).clamp(1, ROUNDS),
            labels: resolution / 2 / (self.pairs() * cases),
            region_rounds: 5 * resolution / (self.pairs() * options),
        }
    }

    /// Returns the place of the node with the longest update; without updates, that of the first
    /// node with a gradient.
    pub(crate) fn longest_update(&self) -> usize {
        longest_update(&self.nodes)
    }

    /// Returns the bound of arrangements whose anchor uses this option, for one weight of the
    /// updates, with the weights and the price that give it. The search ends at the second of
    /// `limits`; the first one is the budget of GPU time.
    fn within_case(
        &self,
        case: &Range<usize>,
        anchor_weight: f64,
        limits: (f64, f64),
        rounds: usize,
        work: &mut Work<'_>,
    ) -> Result<(f64, Weights, f64), ProofEnd> {
        let (budget_us, stop_at_us) = limits;
        let mut weights = self.first_weights();
        let mut best: f64 = 0.0;
        let mut price = 0.0;
        let mut of_best = (weights.clone(), price);
        for round in 0..rounds {
            let before = weights.clone();
            let solve = |price: f64| {
                work.spend(self.pairs() as u64)?;
                Ok(self.solve(&weights, case, anchor_weight, price))
            };
            let Priced { bound, found } = Priced::new(self.gpus, budget_us, &mut price, solve)?;
            if bound > best {
                (best, of_best) = (bound, (before.clone(), price));
            }
            self.shift(&mut weights, (case, anchor_weight), &found, 2.0 / (round as f64 + 3.0));
            if weights == before || best >= stop_at_us {
                break;
            }
        }
        Ok((best, of_best.0, of_best.1))
    }

    /// Returns the counts of the widest early node in at most `maximum` ranges, by their ends; one
    /// range of all counts if there is none.
    fn widest(&self, maximum: usize) -> Vec<(f64, f64)> {
        let options = self.early.iter().flat_map(|&place| &self.nodes[place].options);
        let mut counts: Vec<f64> = options.map(|option| option.gpus).collect();
        counts.sort_unstable_by(f64::total_cmp);
        counts.dedup();
        let ranges = counts.len().min(maximum);
        let range = |index: usize| {
            (counts[index * counts.len() / ranges], counts[(index + 1) * counts.len() / ranges - 1])
        };
        if ranges == 0 { vec![(1.0, f64::INFINITY)] } else { (0..ranges).map(range).collect() }
    }

    /// Returns the options of the anchor in at most `maximum` ranges.
    fn cases(&self, maximum: usize) -> Vec<Range<usize>> {
        let options = self.nodes[self.anchor].options.len();
        let ranges = options.min(maximum);
        (0..ranges).map(|index| index * options / ranges..(index + 1) * options / ranges).collect()
    }
}
