//! An order of the nodes, with the producers and consumers of each node in that order.

use std::rc::Rc;

use crate::problem::ProblemGraph;

/// An order of all nodes, with each node's neighbours sorted by it.
#[derive(Debug)]
pub(crate) struct NodeOrder {
    /// Indices of all nodes in this order.
    pub(crate) nodes: Rc<[u32]>,
    producers: NeighbourLists,
    consumers: NeighbourLists,
}

/// A list of other nodes for each node.
#[derive(Debug)]
struct NeighbourLists {
    /// By node: the index where its list begins; then the total length.
    starts: Vec<u32>,
    nodes: Vec<u32>,
    /// By node: the index where its list ends.
    ends: Vec<u32>,
}

impl NodeOrder {
    /// Creates the order `nodes`, the indices of all nodes. O(nodes + edges).
    pub(crate) fn new(structure: &ProblemGraph, nodes: &Rc<[u32]>) -> Self {
        let (producers, consumers) =
            (NeighbourLists::new(&structure.producers), NeighbourLists::new(&structure.consumers));
        let mut ordered = Self { nodes: Rc::clone(nodes), producers, consumers };
        ordered.fill(structure);
        ordered
    }

    /// Changes to the order `nodes`. O(nodes + edges), or O(1) if it is the current one.
    pub(crate) fn set(&mut self, structure: &ProblemGraph, nodes: &Rc<[u32]>) {
        if !Rc::ptr_eq(&self.nodes, nodes) {
            self.nodes = Rc::clone(nodes);
            self.fill(structure);
        }
    }

    fn fill(&mut self, structure: &ProblemGraph) {
        self.producers.clear();
        self.consumers.clear();
        for &node in &*self.nodes {
            for &consumer in &structure.consumers[node as usize] {
                self.producers.push(consumer, node);
            }
            for &producer in &structure.producers[node as usize] {
                self.consumers.push(producer, node);
            }
        }
    }

    /// Returns the indices of the producers of a node, in this order.
    #[inline]
    pub(crate) fn producers(&self, node: usize) -> &[u32] {
        self.producers.of(node)
    }

    /// Returns the indices of the consumers of a node, in this order.
    #[inline]
    pub(crate) fn consumers(&self, node: usize) -> &[u32] {
        self.consumers.of(node)
    }
}

impl NeighbourLists {
    /// Creates empty lists with the capacities of `lists`.
    fn new(lists: &[Vec<usize>]) -> Self {
        let mut starts = vec![0];
        let mut all = 0;
        for list in lists {
            all += list.len() as u32;
            starts.push(all);
        }
        Self { starts, nodes: vec![0; all as usize], ends: Vec::new() }
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.ends.extend_from_slice(&self.starts[..self.starts.len() - 1]);
    }

    fn push(&mut self, to: usize, node: u32) {
        self.nodes[self.ends[to] as usize] = node;
        self.ends[to] += 1;
    }

    #[inline]
    fn of(&self, node: usize) -> &[u32] {
        &self.nodes[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}
