//! Assignment of nodes to ranks, and their order.

use crate::problem::ProblemGraph;
use crate::{Error, NodeId, PlanProblem, Result};

/// The ranks and the split of each node, and the order in which every rank runs its nodes. Nodes
/// are given by their indices in [`PlanProblem::nodes`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Arrangement {
    /// By node: its ranks, each in `0..gpus` and listed once. The first rank has the first samples
    /// of the batch, the next rank the following ones. With a split, the ranks of a range of
    /// samples follow each other, in the order of their parts.
    pub ranks: Vec<Vec<usize>>,
    /// By node: the index of its split in [`Node::splits`](crate::Node::splits), or `None` if it is
    /// divided by samples only. The number of its ranks is a multiple of the split's parts.
    pub splits: Vec<Option<usize>>,
    /// Indices of all nodes in the order of the forward pass. A node comes after its producers and
    /// after the node whose parameters it uses. The backward pass runs in reverse order.
    pub order: Vec<usize>,
}

impl Arrangement {
    /// Creates an arrangement without splits.
    #[must_use]
    pub fn new(ranks: Vec<Vec<usize>>, order: Vec<usize>) -> Self {
        Self { splits: vec![None; ranks.len()], ranks, order }
    }

    /// Returns whether any node is split.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.splits.iter().any(Option::is_some)
    }

    /// Returns the arrangement with every node on the first `gpus` ranks, in topological order.
    /// [`validate`](Self::validate) checks that there are that many ranks.
    ///
    /// # Errors
    /// [`Error::Cycle`] if the edges of the problem form a cycle.
    ///
    /// # Panics
    /// If an edge or a shared parameter of the problem refers to a node that does not exist.
    pub fn data_parallel(problem: &PlanProblem, gpus: usize) -> Result<Self> {
        let order = ProblemGraph::new(problem)?.order;
        Ok(Self::new(vec![(0..gpus).collect(); problem.nodes.len()], order))
    }

    /// Returns `replicas` copies of this arrangement side by side, each on `gpus` other ranks:
    /// replica r uses the ranks from r x `gpus` on. It is for `replicas` times the samples, of
    /// which each replica has a contiguous part.
    ///
    /// The ranks of a node are those of the first replica, then those of the second, and so on. If
    /// the number of ranks divides the samples of a replica, all ranks have equal shards, and
    /// outputs move only within replicas; only gradients of parameters cross them. Otherwise the
    /// ranks of the first replicas have one sample more. O(nodes x ranks x replicas).
    ///
    /// ```
    /// use burst_planner::Arrangement;
    ///
    /// // Two branches side by side, on two GPUs.
    /// let ranks = vec![vec![0], vec![0], vec![1], vec![0, 1]];
    /// let worker = Arrangement::new(ranks, vec![0, 1, 2, 3]);
    /// let both = worker.replicated(2, 2)?;
    /// assert_eq!(both.ranks, [vec![0, 2], vec![0, 2], vec![1, 3], vec![0, 1, 2, 3]]);
    /// assert_eq!(both.order, worker.order);
    /// # Ok::<(), burst_planner::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadArrangement`] if `replicas` is 0, a rank is `gpus` or more, or the number of
    /// ranks overflows.
    pub fn replicated(&self, gpus: usize, replicas: usize) -> Result<Self> {
        let bad = |message: String| Err(Error::BadArrangement { message });
        if replicas == 0 || gpus.checked_mul(replicas).is_none() {
            return bad(format!("there cannot be {replicas} replicas of {gpus} GPUs"));
        }
        if let Some(rank) = self.ranks.iter().flatten().find(|&&rank| rank >= gpus) {
            return bad(format!("a node is on rank {rank} of a replica, and a replica has {gpus} GPUs"));
        }
        let of_all = |ranks: &Vec<usize>| {
            (0..replicas).flat_map(|replica| ranks.iter().map(move |rank| rank + replica * gpus)).collect()
        };
        Ok(Self { ranks: self.ranks.iter().map(of_all).collect(), ..self.clone() })
    }

    /// Checks that every node has at least one rank, that its ranks are below the number of GPUs
    /// and listed once, that splits exist and divide the number of ranks, that nodes which share
    /// parameters have the same split on the same ranks or none, and that the order keeps all
    /// dependencies.
    ///
    /// # Errors
    /// [`Error::BadArrangement`] with the node and the reason if one of these does not hold, and
    /// [`Error::Cycle`] if the edges of the problem form a cycle.
    ///
    /// # Panics
    /// If an edge or a shared parameter of the problem refers to a node that does not exist.
    pub fn validate(&self, problem: &PlanProblem) -> Result<()> {
        self.check(problem, &ProblemGraph::new(problem)?)
    }

    /// As [`validate`](Self::validate), with the graph of `problem` already computed. Fails with
    /// [`Error::BadArrangement`].
    pub(crate) fn check(&self, problem: &PlanProblem, structure: &ProblemGraph) -> Result<()> {
        let bad = |message: String| Err(Error::BadArrangement { message });
        let nodes = problem.nodes.len();
        if self.ranks.len() != nodes || self.order.len() != nodes {
            let (placed, ordered) = (self.ranks.len(), self.order.len());
            return bad(format!("it places {placed} and orders {ordered} nodes, the problem has {nodes}"));
        }
        for (node, ranks) in problem.nodes.iter().zip(&self.ranks) {
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            sorted.dedup();
            let name = &node.name;
            if ranks.is_empty() || sorted.len() < ranks.len() {
                return bad(format!("node `{name}` needs at least one rank, none twice, got {ranks:?}"));
            }
            if let Some(rank) = sorted.last().filter(|&&rank| rank >= problem.gpus) {
                return bad(format!("node `{name}` is on rank {rank}, and there are {} GPUs", problem.gpus));
            }
        }
        self.check_splits(problem)?;
        let mut seen = vec![false; nodes];
        for &node in &self.order {
            match seen.get_mut(node) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return bad(format!("node `{}` is in the order twice", problem.nodes[node].name)),
                None => return bad(format!("the order has node {node}, and there are {nodes}")),
            }
            if let Some(late) = structure.comes_before(problem, node).find(|&before| !seen[before]) {
                let (node, late) = (&problem.nodes[node].name, &problem.nodes[late].name);
                return bad(format!("node `{node}` is ordered before `{late}`, which it depends on"));
            }
        }
        Ok(())
    }

    /// Checks the splits of an arrangement whose lists of ranks are valid.
    fn check_splits(&self, problem: &PlanProblem) -> Result<()> {
        let bad = |message: String| Err(Error::BadArrangement { message });
        if self.splits.len() != problem.nodes.len() {
            let (nodes, splits) = (problem.nodes.len(), self.splits.len());
            return bad(format!("it has the splits of {splits} nodes, the problem has {nodes}"));
        }
        for (index, node) in problem.nodes.iter().enumerate() {
            let (name, ranks) = (&node.name, &self.ranks[index]);
            if let Some(split) = self.splits[index] {
                let Some(of_node) = node.splits.get(split) else {
                    return bad(format!("node `{name}` has no split {split}"));
                };
                if ranks.len() % of_node.parts > 0 {
                    let (parts, ranks) = (of_node.parts, ranks.len());
                    return bad(format!("node `{name}` is in {parts} parts on {ranks} ranks, no multiple"));
                }
            }
            let Some(NodeId(owner)) = node.parameters_of else { continue };
            let of = |node: usize| {
                let split = self.splits[node]?;
                Some((split, problem.nodes[node].splits.get(split)?.parts, &self.ranks[node]))
            };
            if of(index) != of(owner) {
                let owner = &problem.nodes[owner].name;
                return bad(format!(
                    "node `{name}` uses the parameters of `{owner}`: they need the same split on the same \
                     ranks, or none"
                ));
            }
        }
        Ok(())
    }
}
