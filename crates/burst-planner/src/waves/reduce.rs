//! The series-parallel reduction that finds regions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::region::{Branch, Link, Region};
use crate::{NodeId, PlanProblem, Result};

/// The regions of the graph, each before those nested in it.
///
/// A chain has none.
/// Time `O((nodes + edges) log(nodes + edges))`.
///
/// # Errors
/// What [`PlanProblem::validate`] reports.
pub fn regions(problem: &PlanProblem) -> Result<Vec<Region>> {
    problem.validate()?;
    Ok(of_valid(problem))
}

/// The regions of a valid problem.
pub(super) fn of_valid(problem: &PlanProblem) -> Vec<Region> {
    reduce(problem.nodes.len(), problem.edges.iter().map(|edge| (edge.from.0, edge.to.0)))
}

/// The regions of a graph without cycles, each before those nested in it. No two edges join the same nodes.
pub(crate) fn reduce(nodes: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> Vec<Region> {
    let mut reduction = Reduction::new(nodes, edges);
    while let Some(node) = reduction.open.pop_first() {
        reduction.contract(node);
    }
    number(&reduction.regions)
}

/// What is left of the graph: between two nodes there is at most one link.
struct Reduction {
    links: BTreeMap<(usize, usize), Series>,
    producers: Vec<BTreeSet<usize>>,
    consumers: Vec<BTreeSet<usize>>,
    /// Nodes to contract: those with one producer and one consumer.
    open: BTreeSet<usize>,
    regions: Vec<Parallel>,
}

/// What becomes a branch; it grows at both ends.
struct Series {
    nodes: VecDeque<usize>,
    links: VecDeque<Link>,
}

/// What becomes a region.
struct Parallel {
    fork: usize,
    join: usize,
    branches: Vec<Series>,
}

impl Reduction {
    fn new(nodes: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut reduction = Self {
            links: BTreeMap::new(),
            producers: vec![BTreeSet::new(); nodes],
            consumers: vec![BTreeSet::new(); nodes],
            open: BTreeSet::new(),
            regions: Vec::new(),
        };
        for (index, (from, to)) in edges.into_iter().enumerate() {
            reduction.links.insert((from, to), Series::of(Link::Edge(index)));
            reduction.producers[to].insert(from);
            reduction.consumers[from].insert(to);
        }
        (0..nodes).for_each(|node| reduction.look_at(node));
        reduction
    }

    fn look_at(&mut self, node: usize) {
        if self.producers[node].len() == 1 && self.consumers[node].len() == 1 {
            self.open.insert(node);
        }
    }

    /// Replaces a node and its two links by one link, and merges that with the one that is there already.
    fn contract(&mut self, node: usize) {
        let (Some(from), Some(to)) = (self.producers[node].pop_first(), self.consumers[node].pop_first())
        else {
            return;
        };
        self.consumers[from].remove(&node);
        self.producers[to].remove(&node);
        let (Some(head), Some(tail)) = (self.links.remove(&(from, node)), self.links.remove(&(node, to)))
        else {
            return;
        };
        let branch = in_series(head, node, tail);
        let merged = match self.links.remove(&(from, to)) {
            Some(other) => self.in_parallel(from, to, other, branch),
            None => branch,
        };
        self.links.insert((from, to), merged);
        self.consumers[from].insert(to);
        self.producers[to].insert(from);
        self.look_at(from);
        self.look_at(to);
    }

    fn in_parallel(&mut self, fork: usize, join: usize, old: Series, new: Series) -> Series {
        // A branch without nodes that is a region has the same ends: what is parallel to it is one more branch of it.
        if let (true, Some(&Link::Region(region))) = (old.nodes.is_empty(), old.links.front()) {
            self.regions[region].branches.push(new);
            return old;
        }
        self.regions.push(Parallel { fork, join, branches: vec![old, new] });
        Series::of(Link::Region(self.regions.len() - 1))
    }
}

impl Series {
    fn of(link: Link) -> Self {
        Self { nodes: VecDeque::new(), links: VecDeque::from([link]) }
    }
}

/// The longer part stays where it is, so that a chain takes `O(n log n)` altogether.
fn in_series(mut head: Series, node: usize, mut tail: Series) -> Series {
    if head.nodes.len() >= tail.nodes.len() {
        head.nodes.push_back(node);
        head.nodes.append(&mut tail.nodes);
        head.links.append(&mut tail.links);
        return head;
    }
    tail.nodes.push_front(node);
    head.nodes.into_iter().rev().for_each(|node| tail.nodes.push_front(node));
    head.links.into_iter().rev().for_each(|link| tail.links.push_front(link));
    tail
}

/// Orders branches and regions by their edges, so that the result does not depend on the order of the reduction.
fn number(found: &[Parallel]) -> Vec<Region> {
    let nested = |series: &Series| {
        let regions = series.links.iter().filter_map(|link| match link {
            Link::Region(region) => Some(*region),
            Link::Edge(_) => None,
        });
        regions.collect::<Vec<usize>>()
    };
    let mut outermost = vec![true; found.len()];
    for region in found.iter().flat_map(|region| &region.branches).flat_map(nested) {
        outermost[region] = false;
    }
    let mut order: Vec<usize> = (0..found.len()).filter(|&region| outermost[region]).collect();
    let mut next = 0;
    while next < order.len() {
        order.extend(found[order[next]].branches.iter().flat_map(nested));
        next += 1;
    }

    let mut first_edge = vec![usize::MAX; found.len()];
    let mut branches: Vec<Vec<&Series>> = found.iter().map(|_| Vec::new()).collect();
    for &region in order.iter().rev() {
        let key = |series: &Series| {
            let edges = series.links.iter().map(|link| match *link {
                Link::Edge(edge) => edge,
                Link::Region(region) => first_edge[region],
            });
            edges.min().unwrap_or(usize::MAX)
        };
        branches[region] = found[region].branches.iter().collect();
        branches[region].sort_by_cached_key(|branch| key(branch));
        first_edge[region] = branches[region].first().map_or(usize::MAX, |branch| key(branch));
    }

    // Depth first, so that a region and all that is nested in it are numbered without gaps.
    let mut open: Vec<(usize, Option<(usize, usize)>)> =
        order.iter().filter(|&&region| outermost[region]).map(|&region| (region, None)).collect();
    open.sort_by_key(|&(region, _)| std::cmp::Reverse(first_edge[region]));
    let mut number_of = vec![0; found.len()];
    let mut numbered = Vec::with_capacity(found.len());
    while let Some((region, parent)) = open.pop() {
        let number = numbered.len();
        number_of[region] = number;
        for (index, series) in branches[region].iter().enumerate().rev() {
            open.extend(nested(series).into_iter().rev().map(|inner| (inner, Some((number, index)))));
        }
        let Parallel { fork, join, .. } = found[region];
        let branch = |series: &&Series| Branch {
            nodes: series.nodes.iter().copied().map(NodeId).collect(),
            links: series.links.iter().copied().collect(),
        };
        numbered.push(Region {
            fork: NodeId(fork),
            join: NodeId(join),
            branches: branches[region].iter().map(branch).collect(),
            parent,
        });
    }
    for link in
        numbered.iter_mut().flat_map(|region| &mut region.branches).flat_map(|branch| &mut branch.links)
    {
        if let Link::Region(region) = link {
            *region = number_of[*region];
        }
    }
    numbered
}
