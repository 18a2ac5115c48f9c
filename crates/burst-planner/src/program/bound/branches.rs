//! What a part between two nodes takes at least, that all paths go through: branches that stay on the first one's ranks run one
//! after another there, and the others pay for moving to other ranks.

use super::{Bound, BoundNode, BoundOption};

/// Into how many steps the weights of branches are divided.
const STEPS: usize = 4;
/// How much the work of all GPUs counts: all are tried.
const WORKS: [f64; 2] = [0.0, 0.5];
/// Of so many branches at most it is decided which stay.
const MOST_BRANCHES: usize = 5;

/// Nodes of a part that hang together.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    /// The places of its longest path.
    path: Vec<usize>,
    others: Vec<usize>,
}

/// A part with branches, behind a node that all paths go through, and before another one unless it is the last.
#[derive(Debug, Clone)]
pub(super) struct Branches {
    fork: usize,
    join: Option<usize>,
    branches: Vec<Branch>,
    is_direct: bool,
}

/// What GPU time and the optimiser's steps count.
#[derive(Clone, Copy)]
pub(super) struct Prices {
    pub(super) gpu_time: f64,
    /// On how many ranks of the first node the optimiser's steps are counted.
    pub(super) ranks: f64,
}

/// A branch on a fork's and a join's count, for one weight of the work: at least so much by weight of the path.
#[derive(Clone, Copy)]
struct Ends {
    /// Where the join is on the very ranks of the fork, and where it is on others.
    same: [f64; STEPS + 1],
    other: [f64; STEPS + 1],
}

/// A branch that stays on the ranks of the fork.
#[derive(Clone, Copy)]
struct Stay {
    us: f64,
    added: f64,
}

/// What a branch's nodes take until here, by where they are.
struct Walk {
    stay: f64,
    back: f64,
    off: Vec<f64>,
}

impl Branches {
    pub(super) fn new(nodes: &[BoundNode], part: &[usize], fork: usize, join: Option<usize>) -> Self {
        let first = part[0];
        let mut branch_of: Vec<usize> = (0..part.len()).collect();
        for (index, &place) in part.iter().enumerate() {
            for &producer in nodes[place].producers.iter().filter(|&&producer| producer >= first) {
                let (one, other) = (branch_of[index], branch_of[producer - first]);
                let (low, high) = (one.min(other), one.max(other));
                branch_of.iter_mut().filter(|branch| **branch == high).for_each(|branch| *branch = low);
            }
        }
        let fastest = |place: usize| {
            let options = nodes[place].options.iter().map(|option| option.forward_us + option.backward_us);
            options.fold(f64::INFINITY, f64::min)
        };
        let mut branches = Vec::new();
        for number in 0..part.len() {
            let members: Vec<usize> = part
                .iter()
                .zip(&branch_of)
                .filter(|&(_, &branch)| branch == number)
                .map(|(&place, _)| place)
                .collect();
            // The longest path that ends with each, and what comes before it on that.
            let mut longest: Vec<(f64, Option<usize>)> = Vec::with_capacity(members.len());
            for &place in &members {
                let before =
                    nodes[place].producers.iter().filter_map(|producer| members.binary_search(producer).ok());
                let best = before.map(|before| (longest[before].0, Some(before)));
                let (length, before) = best.fold((0.0, None), |a, b| if b.0 >= a.0 { b } else { a });
                longest.push((length + fastest(place), before));
            }
            let Some(last) = (0..members.len()).max_by(|&a, &b| longest[a].0.total_cmp(&longest[b].0)) else {
                continue;
            };
            let mut path: Vec<usize> =
                std::iter::successors(Some(last), |&at| longest[at].1).map(|at| members[at]).collect();
            path.reverse();
            let others = members.into_iter().filter(|place| !path.contains(place)).collect();
            branches.push(Branch { path, others });
        }
        let length = |branch: &Branch| branch.path.iter().map(|&place| fastest(place)).sum::<f64>();
        branches.sort_by(|a, b| length(b).total_cmp(&length(a)));
        let is_direct = join.is_some_and(|join| nodes[join].producers.contains(&fork));
        Self { fork, join, branches, is_direct }
    }
}

impl Bound {
    /// What a node counts besides its time: GPU time, the optimiser's steps, and its part of all GPUs' work.
    pub(super) fn added(&self, option: &BoundOption, prices: Prices, work: f64) -> f64 {
        let shared = (option.gpus + prices.ranks - self.gpus).max(0.0) / prices.ranks;
        prices.gpu_time * option.computing_us + shared * option.update_us + work * option.work_us / self.gpus
    }

    /// Moving samples to a node from this producer and gradients back, between different lists of ranks.
    fn moves_between(&self, producer: usize, node: usize, (from, to): (usize, usize)) -> (f64, f64) {
        let place = self.nodes[node].producers.binary_search(&producer);
        place.map_or((0.0, 0.0), |place| self.nodes[node].inputs[place][from][to])
    }

    /// Both together.
    fn between(&self, producer: usize, node: usize, ends: (usize, usize)) -> f64 {
        let (there, back) = self.moves_between(producer, node, ends);
        there + back
    }

    /// The least value of a part, by option of the fork and of the join.
    /// O(branches' nodes x counts^3), and counts^2 for all choices of branches that stay.
    pub(super) fn part_values(&self, part: &Branches, prices: Prices) -> Vec<Vec<f64>> {
        let forks = self.nodes[part.fork].options.len();
        let joins = part.join.map_or(1, |join| self.nodes[join].options.len());
        // By work, branch, option of the fork and of the join.
        let ends: Vec<Vec<Vec<Vec<Ends>>>> = WORKS
            .iter()
            .map(|&work| {
                let branches = part.branches.iter();
                branches
                    .map(|branch| {
                        (0..forks).map(|fork| self.ends(part, branch, fork, prices, work)).collect()
                    })
                    .collect()
            })
            .collect();
        let stays: Vec<Vec<Vec<Option<Stay>>>> = WORKS
            .iter()
            .map(|&work| {
                let branches = part.branches.iter();
                branches
                    .map(|branch| {
                        (0..forks).map(|fork| self.stay(part, branch, fork, prices, work)).collect()
                    })
                    .collect()
            })
            .collect();
        let value = |fork: usize, join: usize| {
            let is_same_count = part.join.is_none_or(|place| {
                self.nodes[place].options[join].gpus == self.nodes[part.fork].options[fork].gpus
            });
            let mut least = f64::INFINITY;
            for is_same in [true, false] {
                if (is_same && !is_same_count) || (!is_same && part.join.is_none()) {
                    continue;
                }
                for staying in 0..1_usize << part.branches.len().min(MOST_BRANCHES) {
                    let of_work = |index: usize| {
                        let columns = (&ends[index][..], &stays[index][..]);
                        self.weighed(part, columns, (fork, join), is_same, staying, 1.0 - WORKS[index])
                    };
                    let largest = (0..WORKS.len()).map(of_work).fold(0.0, f64::max);
                    least = least.min(largest);
                }
            }
            least
        };
        (0..forks).map(|fork| (0..joins).map(|join| value(fork, join)).collect()).collect()
    }

    /// The best weights of the branches when these stay.
    fn weighed(
        &self,
        part: &Branches,
        (ends, stays): (&[Vec<Vec<Ends>>], &[Vec<Option<Stay>>]),
        (fork, join): (usize, usize),
        is_same: bool,
        staying: usize,
        rest: f64,
    ) -> f64 {
        let (mut serial, mut value, mut leaving) = (0.0, 0.0, (f64::INFINITY, f64::INFINITY));
        let mut moved: [&[f64; STEPS + 1]; MOST_BRANCHES] = [&[0.0; STEPS + 1]; MOST_BRANCHES];
        for (index, branch) in part.branches.iter().enumerate() {
            let Ends { same, other } = &ends[index][fork][join];
            let by_step = if is_same { same } else { other };
            let stay = stays[index][fork];
            if index >= MOST_BRANCHES {
                value += stay.map_or(by_step[0], |stay| stay.added.min(by_step[0]));
            } else if staying & (1 << index) == 0 {
                value += by_step[0];
                moved[index] = by_step;
            } else {
                let Some(stay) = stay else { return f64::INFINITY };
                serial += stay.us;
                value += stay.added;
                if let (Some(join_place), Some(&last)) = (part.join.filter(|_| !is_same), branch.path.last())
                {
                    let (there, back) = self.leaving(part, last, join_place, (fork, join));
                    leaving = (leaving.0.min(there), leaving.1.min(back));
                }
            }
        }
        if leaving.0.is_finite() {
            serial += leaving.0 + leaving.1;
        }
        if let (true, false, Some(join_place)) = (part.is_direct, is_same, part.join) {
            serial = serial.max(self.between(part.fork, join_place, (fork, join)));
        }
        let mut taken = [0; MOST_BRANCHES];
        for _ in 0..STEPS {
            let mut best = (serial * rest / STEPS as f64, None);
            for (index, by_step) in moved.iter().enumerate() {
                let gain = if taken[index] < STEPS {
                    by_step[taken[index] + 1] - by_step[taken[index]]
                } else {
                    0.0
                };
                if gain > best.0 {
                    best = (gain, Some(index));
                }
            }
            value += best.0;
            if let Some(index) = best.1 {
                taken[index] += 1;
            }
        }
        value
    }

    /// Moving from the fork's ranks to others that the join is on.
    fn leaving(
        &self,
        part: &Branches,
        last: usize,
        join_place: usize,
        (fork, join): (usize, usize),
    ) -> (f64, f64) {
        let gpus = self.nodes[part.fork].options[fork].gpus;
        self.option_on(last, gpus)
            .map_or((0.0, 0.0), |from| self.moves_between(last, join_place, (from, join)))
    }

    fn option_on(&self, place: usize, gpus: f64) -> Option<usize> {
        self.nodes[place].options.iter().position(|option| option.gpus == gpus)
    }

    fn least_added(&self, places: &[usize], prices: Prices, work: f64) -> f64 {
        let least = |&place: &usize| {
            let options = self.nodes[place].options.iter().map(|option| self.added(option, prices, work));
            options.fold(f64::INFINITY, f64::min)
        };
        places.iter().map(least).sum()
    }

    fn stay(&self, part: &Branches, branch: &Branch, fork: usize, prices: Prices, work: f64) -> Option<Stay> {
        let gpus = self.nodes[part.fork].options[fork].gpus;
        let mut stay = Stay { us: 0.0, added: self.least_added(&branch.others, prices, work) };
        for &place in &branch.path {
            let option = &self.nodes[place].options[self.option_on(place, gpus)?];
            stay.us += option.forward_us + option.backward_us;
            stay.added += self.added(option, prices, work);
        }
        Some(stay)
    }

    /// A branch of which some node is not on the ranks of the fork, by option of the join.
    fn ends(&self, part: &Branches, branch: &Branch, fork: usize, prices: Prices, work: f64) -> Vec<Ends> {
        let joins = part.join.map_or(1, |join| self.nodes[join].options.len());
        let mut ends = vec![Ends { same: [0.0; STEPS + 1], other: [0.0; STEPS + 1] }; joins];
        let gpus = self.nodes[part.fork].options[fork].gpus;
        let others = self.least_added(&branch.others, prices, work);
        for step in 0..=STEPS {
            let weight = (1.0 - work) * step as f64 / STEPS as f64;
            let mut walk = Walk { stay: 0.0, back: f64::INFINITY, off: Vec::new() };
            let mut before = part.fork;
            for &place in &branch.path {
                walk = self.walked(walk, (before, place), (gpus, fork), prices, (work, weight));
                before = place;
            }
            let last_same = self.option_on(before, gpus);
            for (join, ends) in ends.iter_mut().enumerate() {
                let leave = |from: usize| {
                    part.join.map_or(0.0, |place| weight * self.between(before, place, (from, join)))
                };
                let count = part.join.map(|place| self.nodes[place].options[join].gpus);
                let (mut same, mut other) = (walk.back, walk.back + last_same.map_or(0.0, leave));
                // Nodes besides the path may be elsewhere instead.
                if !branch.others.is_empty() {
                    same = same.min(walk.stay);
                    other = other.min(walk.stay);
                }
                for (from, &value) in walk.off.iter().enumerate() {
                    same = same.min(value + leave(from));
                    let is_there = count == Some(self.nodes[before].options[from].gpus);
                    other = other.min(value + if is_there { 0.0 } else { leave(from) });
                }
                ends.same[step] = same + others;
                ends.other[step] = other + others;
            }
        }
        ends
    }

    /// One node further along a branch.
    fn walked(
        &self,
        walk: Walk,
        (before, place): (usize, usize),
        (gpus, fork): (f64, usize),
        prices: Prices,
        (work, weight): (f64, f64),
    ) -> Walk {
        let node = &self.nodes[place];
        let is_first = walk.off.is_empty();
        let on_fork = if is_first { Some(fork) } else { self.option_on(before, gpus) };
        let moving = |from: usize, to: usize| weight * self.between(before, place, (from, to));
        let own = |option: &BoundOption| {
            weight * (option.forward_us + option.backward_us) + self.added(option, prices, work)
        };
        let (mut stay, mut back) = (f64::INFINITY, f64::INFINITY);
        let mut off = Vec::with_capacity(node.options.len());
        for (to, option) in node.options.iter().enumerate() {
            let own = own(option);
            let on_ranks = walk.stay.min(walk.back);
            let mut best = on_fork.map_or(f64::INFINITY, |from| on_ranks + moving(from, to));
            for (from, &value) in walk.off.iter().enumerate() {
                let is_same = self.nodes[before].options[from].gpus == option.gpus;
                best = best.min(value + if is_same { 0.0 } else { moving(from, to) });
            }
            off.push(best + own);
            if option.gpus == gpus {
                stay = walk.stay + own;
                let returned = walk.off.iter().enumerate().map(|(from, value)| value + moving(from, to));
                back = returned.fold(walk.back, f64::min) + own;
            }
        }
        Walk { stay, back, off }
    }
}
