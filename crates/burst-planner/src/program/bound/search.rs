//! The best bound over weights and prices, and the choices that are met on the way.

use std::ops::Range;

use super::prices::Priced;
use super::{Bound, BoundNode, longest_update};

/// Into how many ranges the options of the anchor are divided at most.
const MOST_CASES: usize = 12;
/// How often weights are moved at most.
const ROUNDS: usize = 16;
/// How much the optimiser's steps count instead of what other ranks do before these can begin: tried in turns.
const TAILS: [f64; 2] = [1.0, 0.5];
/// Pairs of options that are looked at for one bound, about.
const WORK: usize = 40_000_000;
/// Labels of a chain that are made for one bound, about, and for one option of one node.
const LABELS: usize = 20_000_000;
const MOST_LABELS: usize = 400;

/// How closely a bound is looked for.
struct Effort {
    cases: usize,
    tails: usize,
    rounds: usize,
}

impl Bound {
    /// No arrangement whose GPU time is within the budget is faster, microseconds. It is not looked for beyond `enough`.
    pub(in crate::program) fn within(&self, budget_us: f64, enough: f64) -> f64 {
        if self.nodes.iter().any(|node| node.options.is_empty()) {
            return 0.0;
        }
        let Effort { cases, tails, rounds } = self.effort();
        // Whatever the count of the node that the optimiser's steps are counted by: each is a case of its own.
        let mut least = enough;
        for case in self.cases(cases) {
            let mut bound: f64 = 0.0;
            if self.is_chain {
                bound = self.chain_within_case(&case, budget_us, least, self.most_labels(cases));
            } else {
                for &tail in self.tails(tails) {
                    // A case that is no faster than another one does not matter.
                    if bound < least {
                        bound = bound.max(self.within_case(&case, tail, budget_us, least, rounds));
                    }
                }
            }
            least = least.min(bound);
        }
        least.max(self.mean_computing_us())
    }

    /// What ranks compute at least, as a mean: also where nothing learns, and no rank waits for the end of an iteration.
    fn mean_computing_us(&self) -> f64 {
        let least = |node: &BoundNode| {
            node.options.iter().map(|option| option.computing_us).fold(f64::INFINITY, f64::min)
        };
        self.nodes.iter().map(least).sum::<f64>() / self.gpus
    }

    fn tails(&self, most: usize) -> &'static [f64] {
        if self.has_anchor { &TAILS[..most] } else { &[0.0] }
    }

    /// A step of the search for options is a sum over all nodes and pairs of their options: the more there are, the fewer are made.
    fn effort(&self) -> Effort {
        let options = self.nodes.iter().map(|node| node.options.len()).max().unwrap_or(1);
        let solutions = (WORK / (self.nodes.len() * options * options)).max(16);
        let cases = (solutions / 64).clamp(1, MOST_CASES);
        let tails = (solutions / (cases * 64)).clamp(1, TAILS.len());
        Effort { cases, tails, rounds: (solutions / (cases * tails * 4)).clamp(1, ROUNDS) }
    }

    /// How many labels there are at most for an option of a node of a chain.
    fn most_labels(&self, cases: usize) -> usize {
        let options = self.nodes.iter().map(|node| node.options.len()).max().unwrap_or(1);
        (LABELS / (self.nodes.len() * options * options * cases)).clamp(16, MOST_LABELS)
    }

    /// The place of the node that the optimiser takes longest for.
    pub(in crate::program) fn longest_update(&self) -> usize {
        longest_update(&self.nodes)
    }

    /// The bound of arrangements whose anchor takes this option, when the optimiser's steps count so much.
    ///
    /// It is not looked for beyond `enough`.
    fn within_case(&self, case: &Range<usize>, tail: f64, budget_us: f64, enough: f64, rounds: usize) -> f64 {
        let mut weights = self.first_weights();
        let mut best: f64 = 0.0;
        let mut price = 0.0;
        for round in 0..rounds {
            let before = weights.clone();
            let solve = |price: f64| self.solve(&weights, case, tail, price);
            let Priced { bound, found } = Priced::new(self.gpus, budget_us, &mut price, solve);
            best = best.max(bound);
            self.shift(&mut weights, (case, tail), &found, 2.0 / (round as f64 + 3.0));
            if weights == before || best >= enough {
                break;
            }
        }
        best
    }

    /// The options of the anchor in at most so many ranges.
    fn cases(&self, most: usize) -> Vec<Range<usize>> {
        let options = self.nodes[self.anchor].options.len();
        let ranges = options.min(most);
        (0..ranges).map(|index| index * options / ranges..(index + 1) * options / ranges).collect()
    }
}
