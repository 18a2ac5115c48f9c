//! The order of the nodes, and those that each one waits for or is waited for by, in that order.

use std::rc::Rc;

use crate::problem::ProblemGraph;

/// An order of all nodes, and what follows from it.
#[derive(Debug)]
pub(crate) struct NodeOrder {
    pub(crate) nodes: Rc<[u32]>,
    producers: NeighbourLists,
    consumers: NeighbourLists,
}

/// By node: some other nodes, in the order.
#[derive(Debug)]
struct NeighbourLists {
    /// By node: where its list begins; and where the last one ends.
    starts: Vec<u32>,
    nodes: Vec<u32>,
    /// By node: where its list ends so far.
    ends: Vec<u32>,
}

impl NodeOrder {
    pub(crate) fn new(structure: &ProblemGraph, nodes: &Rc<[u32]>) -> Self {
        let (producers, consumers) =
            (NeighbourLists::new(&structure.producers), NeighbourLists::new(&structure.consumers));
        let mut ordered = Self { nodes: Rc::clone(nodes), producers, consumers };
        ordered.fill(structure);
        ordered
    }

    /// Changes to another order; costs nothing if it is the current one. O(nodes + edges).
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

    /// The producers of a node, in the order.
    #[inline]
    pub(crate) fn producers(&self, node: usize) -> &[u32] {
        self.producers.of(node)
    }

    /// The consumers of a node, in the order.
    #[inline]
    pub(crate) fn consumers(&self, node: usize) -> &[u32] {
        self.consumers.of(node)
    }
}

impl NeighbourLists {
    /// Empty lists with room for as many.
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
