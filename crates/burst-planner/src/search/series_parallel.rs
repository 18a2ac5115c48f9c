//! Series-parallel reduction: finds the regions of a graph whose branches are independent of each
//! other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A region between a fork and a join: two or more branches, of which at least one has nodes.
pub(super) struct ParallelRegion {
    /// By branch that has any nodes: the indices of its nodes, including those of nested regions,
    /// ascending.
    pub(super) branches: Vec<Vec<usize>>,
}

/// Returns the parallel regions of an acyclic graph with the nodes `0..nodes`, each region before
/// those nested in it. An edge is a pair of a producer and a consumer; no two edges join the same
/// nodes. O((nodes + edges) log(nodes + edges)).
pub(super) fn regions(nodes: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> Vec<ParallelRegion> {
    let mut reduction = Reduction::new(nodes, edges);
    while let Some(node) = reduction.open.pop_first() {
        reduction.contract(node);
    }
    numbered(&reduction.regions)
}

/// The reduced graph. Two nodes are joined by at most one link.
struct Reduction {
    /// By producer and consumer: the branch between them.
    links: BTreeMap<(usize, usize), Series>,
    /// By node: its producers in the reduced graph.
    producers: Vec<BTreeSet<usize>>,
    /// By node: its consumers in the reduced graph.
    consumers: Vec<BTreeSet<usize>>,
    /// Nodes with one producer and one consumer, which can be contracted.
    open: BTreeSet<usize>,
    /// The regions found so far.
    regions: Vec<Region>,
}

/// A branch that grows at both ends.
struct Series {
    /// Its nodes in order, without those of nested regions.
    nodes: VecDeque<usize>,
    /// Edges and nested regions between these nodes, in order.
    links: VecDeque<Link>,
}

/// The branches of a region found so far.
struct Region {
    branches: Vec<Series>,
}

/// A connection between two nodes of the reduced graph.
#[derive(Clone, Copy)]
enum Link {
    /// An edge, by index.
    Edge(usize),
    /// A region, by the order in which they are found.
    Region(usize),
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
        (0..nodes).for_each(|node| reduction.check_contractible(node));
        reduction
    }

    fn check_contractible(&mut self, node: usize) {
        if self.producers[node].len() == 1 && self.consumers[node].len() == 1 {
            self.open.insert(node);
        }
    }

    /// Replaces a node and its two links by one link, and merges it with an existing one.
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
            Some(other) => self.in_parallel(other, branch),
            None => branch,
        };
        self.links.insert((from, to), merged);
        self.consumers[from].insert(to);
        self.producers[to].insert(from);
        self.check_contractible(from);
        self.check_contractible(to);
    }

    fn in_parallel(&mut self, old: Series, new: Series) -> Series {
        // A branch without nodes that is a region has the same ends: a parallel branch belongs to
        // it.
        if let (true, Some(&Link::Region(region))) = (old.nodes.is_empty(), old.links.front()) {
            self.regions[region].branches.push(new);
            return old;
        }
        self.regions.push(Region { branches: vec![old, new] });
        Series::of(Link::Region(self.regions.len() - 1))
    }
}

impl Series {
    fn of(link: Link) -> Self {
        Self { nodes: VecDeque::new(), links: VecDeque::from([link]) }
    }
}

/// Joins two branches. The longer one is extended, so that a chain takes `O(n log n)` in total.
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

/// Sorts branches and regions by their edges, so that the result does not depend on the order of
/// the reduction.
fn numbered(found: &[Region]) -> Vec<ParallelRegion> {
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

    // Depth first.
    let mut open: Vec<usize> = order.iter().copied().filter(|&region| outermost[region]).collect();
    open.sort_by_key(|&region| std::cmp::Reverse(first_edge[region]));
    let mut numbered = Vec::with_capacity(found.len());
    while let Some(region) = open.pop() {
        numbered.push(region);
        open.extend(branches[region].iter().rev().flat_map(|series| nested(series).into_iter().rev()));
    }
    // Inner regions first.
    let mut nodes_of: Vec<Vec<usize>> = vec![Vec::new(); found.len()];
    let mut parallels = Vec::new();
    for &region in numbered.iter().rev() {
        let mut own = Vec::new();
        for series in &branches[region] {
            let mut nodes: Vec<usize> = series.nodes.iter().copied().collect();
            nodes.extend(nested(series).into_iter().flat_map(|inner| nodes_of[inner].iter().copied()));
            nodes.sort_unstable();
            nodes_of[region].extend(&nodes);
            own.push(nodes);
        }
        own.retain(|nodes| !nodes.is_empty());
        if !own.is_empty() {
            parallels.push(ParallelRegion { branches: own });
        }
    }
    parallels.reverse();
    parallels
}
