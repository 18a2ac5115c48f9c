//! Minimum of the weighted sum over all parts of a graph, by dynamic programming from one
//! articulation node to the next.
//!
//! An *articulation node* is contained in all paths. A *part* is such a node, or the nodes between
//! two of them (a *region*). An *option* is a GPU count of a node with its costs. *Early nodes* are
//! articulation nodes with gradients before which little time is spent. The *anchor* is the first
//! of them whose GPU count is in the case.

use super::regions::Terms;
use super::{Bound, BoundOption};

/// Range of GPU counts of the arrangements that are bounded, and the weights before the anchor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// Minimum of the largest GPU count of the early nodes.
    pub(super) minimum: f64,
    /// Maximum, inclusive, of the largest GPU count of the early nodes; infinite without early
    /// nodes.
    pub(super) maximum: f64,
    /// Weight of the cycles of the anchor's ranks before the anchor, from 0 to 1; the cycles of the
    /// first node's ranks have the remaining weight. 0 without early nodes. A cycle is the time
    /// from a rank's first step of an iteration to its last update.
    pub(super) anchor_weight: f64,
}

/// Minimum sums by option of the current node, before the anchor and from it on.
type Sums = [Vec<f64>; 2];

/// By option: the option of the node before that attains the minimum, and whether it is from the
/// anchor on.
type Origins = Vec<(usize, usize)>;

/// A part of the graph with the origins of its minima.
struct TracedPart {
    /// Place of its node; `None` for a region.
    node: Option<usize>,
    /// Origins before the anchor and from it on.
    origins: [Origins; 2],
}

/// The step from one part to the next.
struct PartStep<'s> {
    /// Costs of all nodes.
    bound: &'s Bound,
    /// Weights of the sum.
    terms: &'s Terms<'s>,
    /// Range of GPU counts that is bounded.
    case: Case,
    /// Index of the part.
    part: usize,
    /// Place of its node.
    node: usize,
    /// Place of the node of the part before; `None` if that is a region or there is none.
    previous: Option<usize>,
}

impl PartStep<'_> {
    /// Returns the weight of the work on these ranks before the anchor.
    fn weight(&self, option: &BoundOption) -> f64 {
        1.0 - self.case.anchor_weight
            + self.case.anchor_weight * self.bound.shared(option, &self.terms.anchor)
    }

    /// Returns the node's part of the sum from the anchor on.
    fn own(&self, option: &BoundOption) -> f64 {
        self.bound.own_value(self.part, option, (1.0, 1.0), (0.0, 0.0), self.terms)
    }

    /// Returns the node's part of the sum before the anchor, whose ranks can have the smaller
    /// shards there.
    fn own_before(&self, option: &BoundOption) -> f64 {
        let weight = self.weight(option);
        let factors = self.terms.factors;
        let less_us =
            factors.forward[self.part] * option.less_us.0 + factors.backward[self.part] * option.less_us.1;
        let apart = weight - (1.0 - self.case.anchor_weight);
        self.bound.own_value(self.part, option, (weight, weight), (0.0, 0.0), self.terms) - apart * less_us
    }

    fn moving(&self, from: usize, to: usize) -> f64 {
        if self.previous.is_none() {
            // A region ends with this node's option; before the first node there is nothing.
            return if self.part == 0 || from == to { 0.0 } else { f64::INFINITY };
        }
        let (there, back) = self.bound.nodes[self.node].transfers[from][to];
        let factors = self.terms.factors;
        let backward = factors.backward[self.part - 1].min(factors.backward[self.part]);
        factors.forward[self.part - 1] * there + backward * back
    }

    /// Returns the weight of transfers from this option before the anchor.
    fn leaving(&self, from: usize) -> f64 {
        self.previous.map_or(1.0, |previous| self.weight(&self.bound.nodes[previous].options[from]))
    }

    fn extended(&self, sums: &Sums) -> (Sums, [Origins; 2]) {
        let options = &self.bound.nodes[self.node].options;
        let early = &self.bound.early;
        let is_early = early.contains(&self.node);
        let has_early_after = early.last().is_some_and(|&last| self.node < last);
        let arrive = |sums: &[f64], to: usize, weight: &dyn Fn(usize) -> f64| {
            let values = sums.iter().enumerate().filter(|(_, sum)| sum.is_finite());
            let values = values.map(|(from, sum)| (sum + weight(from) * self.moving(from, to), from));
            values.fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a })
        };
        let (mut next, mut origins) = (Sums::default(), <[Origins; 2]>::default());
        for (to, option) in options.iter().enumerate() {
            let is_anchor = is_early && option.gpus >= self.case.minimum;
            let is_too_wide = is_early && option.gpus > self.case.maximum;
            let staying = |from: usize| self.leaving(from).min(self.weight(option));
            let mut stays = arrive(&sums[0], to, &staying);
            if is_anchor || !has_early_after {
                stays.0 = f64::INFINITY;
            }
            next[0].push(stays.0 + self.own_before(option));
            origins[0].push((stays.1, 0));
            let goes_on = arrive(&sums[1], to, &|_| 1.0);
            let begins =
                if is_anchor { arrive(&sums[0], to, &|from| self.leaving(from)) } else { (f64::INFINITY, 0) };
            let (value, origin) =
                if begins.0 < goes_on.0 { (begins.0, (begins.1, 0)) } else { (goes_on.0, (goes_on.1, 1)) };
            next[1].push(if is_too_wide { f64::INFINITY } else { value + self.own(option) });
            origins[1].push(origin);
        }
        (next, origins)
    }
}

impl Bound {
    /// Returns the minimum of the weighted sum over the options of all articulation nodes,
    /// microseconds, and sets their options in `choice`, by place in topological order. `regions`
    /// has the index of the part of each region, ascending, with its minimum for each pair of
    /// options of its entry and exit, row by row. `terms` has the weights. O(parts x counts^2).
    pub(super) fn through_regions<'r>(
        &self,
        regions: impl Iterator<Item = (usize, &'r [f64])>,
        terms: &Terms<'_>,
        case: Case,
        choice: &mut [usize],
    ) -> f64 {
        let mut regions = regions.peekable();
        let (open, closed) = (vec![0.0], vec![f64::INFINITY]);
        let mut sums: Sums = if self.early.is_empty() { [closed, open] } else { [open, closed] };
        let mut taken: Vec<TracedPart> = Vec::with_capacity(self.parts.len());
        for (index, part) in self.parts.iter().enumerate() {
            let (next, origins, node) =
                if let Some((_, minimum)) = regions.next_if(|&(part, _)| part == index) {
                    let (next, origins) = through_region(&sums, minimum, 1.0 - case.anchor_weight);
                    (next, origins, None)
                } else {
                    let before = index.checked_sub(1).map(|before| &self.parts[before][..]);
                    let previous = before.and_then(|part| if let &[node] = part { Some(node) } else { None });
                    let step = PartStep { bound: self, terms, case, part: index, node: part[0], previous };
                    let (next, origins) = step.extended(&sums);
                    (next, origins, Some(part[0]))
                };
            sums = next;
            taken.push(TracedPart { node, origins });
        }
        let ends = sums[1].iter().enumerate();
        let minimum = ends.fold((f64::INFINITY, 0), |a, (end, &sum)| if sum < a.0 { (sum, end) } else { a });
        let (value, mut end) = minimum;
        let mut state = 1;
        for TracedPart { node, origins } in taken.iter().rev() {
            if let Some(node) = node {
                choice[*node] = end;
            }
            (end, state) = origins[state][end];
        }
        value
    }
}

/// Extends the sums by a region. `before` is its weight before the anchor.
fn through_region(sums: &Sums, minimum: &[f64], before: f64) -> (Sums, [Origins; 2]) {
    let exits = minimum.len() / sums[0].len();
    let (mut next, mut origins) = (Sums::default(), <[Origins; 2]>::default());
    for (state, weight) in [before, 1.0].into_iter().enumerate() {
        for to in 0..exits {
            let values = sums[state].iter().enumerate().filter(|(_, sum)| sum.is_finite());
            let values = values.map(|(from, sum)| (sum + weight * minimum[from * exits + to], (from, state)));
            let (sum, origin) =
                values.fold((f64::INFINITY, (0, state)), |a, b| if b.0 < a.0 { b } else { a });
            next[state].push(sum);
            origins[state].push(origin);
        }
    }
    (next, origins)
}
