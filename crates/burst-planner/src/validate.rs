//! The one place where a problem is checked.

use std::collections::HashMap;

use petgraph::algo::toposort;
use petgraph::graph::DiGraph;

use crate::{Edge, Error, Node, PlanProblem, Result};

impl PlanProblem {
    /// Checks the problem: at least one GPU and one node; unique names; options of 1 to `gpus` GPUs for every node, with their
    /// memory where there is a limit on it; times finite and not negative; edges without loops, duplicates or cycles, with a
    /// transfer time for each pair of options; and a positive time on one GPU.
    ///
    /// Every search and [`from_json`](Self::from_json) call it; call it yourself to fail early. Time linear in
    /// the size of the problem.
    ///
    /// # Errors
    /// The first of these that does not hold.
    pub fn validate(&self) -> Result<()> {
        if self.gpus == 0 {
            return Err(Error::NoGpus);
        }
        if self.nodes.is_empty() {
            return Err(Error::NoNodes);
        }
        self.check_names()?;
        for node in &self.nodes {
            self.check_options(node)?;
        }
        self.check_edges()?;
        self.check_cycles()?;
        self.check_sums()?;
        self.check_single_gpu_time()
    }

    fn check_names(&self) -> Result<()> {
        let mut seen = HashMap::new();
        for (second, node) in self.nodes.iter().enumerate() {
            if let Some(first) = seen.insert(node.name.as_str(), second) {
                return Err(Error::DuplicateName { name: node.name.clone(), first, second });
            }
        }
        Ok(())
    }

    fn check_options(&self, node: &Node) -> Result<()> {
        if node.options.is_empty() {
            return Err(Error::NoOptions { node: node.name.clone() });
        }
        for (index, option) in node.options.iter().enumerate() {
            if option.gpus == 0 || option.gpus > self.gpus {
                return Err(Error::OptionGpus {
                    node: node.name.clone(),
                    option: index,
                    gpus: option.gpus,
                    available: self.gpus,
                });
            }
            let place = || format!("node `{}`, option {index}", node.name);
            check_time(option.time_us, "time_us", place)?;
            check_time(option.all_reduce_us, "all_reduce_us", place)?;
            if let Some(backward_us) = option.backward_us {
                check_time(backward_us, "backward_us", place)?;
                if backward_us > option.time_us {
                    return Err(Error::BackwardTooLong {
                        node: node.name.clone(),
                        option: index,
                        backward_us,
                        time_us: option.time_us,
                    });
                }
            }
            if self.memory_limit_bytes.is_some() && option.memory_bytes.is_none() {
                return Err(Error::MissingMemory { node: node.name.clone(), option: index });
            }
        }
        Ok(())
    }

    fn check_edges(&self) -> Result<()> {
        let mut seen = HashMap::new();
        for (index, edge) in self.edges.iter().enumerate() {
            for node in [edge.from.0, edge.to.0] {
                if node >= self.nodes.len() {
                    return Err(Error::EdgeToNowhere { edge: index, node, nodes: self.nodes.len() });
                }
            }
            let (from, to) = (&self.nodes[edge.from.0], &self.nodes[edge.to.0]);
            if edge.from.0 == edge.to.0 {
                return Err(Error::SelfEdge { edge: index, node: from.name.clone() });
            }
            if let Some(first) = seen.insert((edge.from.0, edge.to.0), index) {
                return Err(Error::DuplicateEdge {
                    first,
                    second: index,
                    from: from.name.clone(),
                    to: to.name.clone(),
                });
            }
            check_matrix(index, edge, from, to)?;
        }
        Ok(())
    }

    fn check_cycles(&self) -> Result<()> {
        let mut graph = DiGraph::<(), ()>::with_capacity(self.nodes.len(), self.edges.len());
        let ids: Vec<_> = self.nodes.iter().map(|_| graph.add_node(())).collect();
        for edge in &self.edges {
            graph.add_edge(ids[edge.from.0], ids[edge.to.0], ());
        }
        match toposort(&graph, None) {
            Ok(_) => Ok(()),
            Err(cycle) => Err(Error::Cycle { node: self.nodes[cycle.node_id().index()].name.clone() }),
        }
    }

    /// Each time is finite; their largest possible sum has to be, too.
    fn check_sums(&self) -> Result<()> {
        let gpus = self.gpus as f64;
        let nodes = self.nodes.iter().flat_map(|node| &node.options).map(|option| option.total_us() * gpus);
        let transfers = |edge: &Edge| {
            let disjoint = edge.transfer_disjoint_us.iter().flatten().flatten();
            // Charged at the GPU counts of both ends.
            edge.transfer_us.iter().flatten().chain(disjoint).map(|us| 2.0 * us * gpus).sum::<f64>()
        };
        let edges = self.edges.iter().map(transfers);
        if nodes.chain(edges).sum::<f64>().is_finite() { Ok(()) } else { Err(Error::TimesOverflow) }
    }

    fn check_single_gpu_time(&self) -> Result<()> {
        if let Some(single_gpu_us) = self.single_gpu_us {
            check_time(single_gpu_us, "single_gpu_us", || "the problem".into())?;
        } else if let Some(node) = self.nodes.iter().find(|node| node.options.iter().all(|o| o.gpus != 1)) {
            return Err(Error::MissingSingleGpuTime { node: node.name.clone() });
        }
        if self.single_gpu_time_us() > 0.0 { Ok(()) } else { Err(Error::ZeroSingleGpuTime) }
    }
}

pub(crate) fn check_time(value: f64, field: &'static str, place: impl FnOnce() -> String) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::BadTime { place: place(), field, value })
}

fn check_matrix(index: usize, edge: &Edge, from: &Node, to: &Node) -> Result<()> {
    let (rows, columns) = (from.options.len(), to.options.len());
    let disjoint = edge.transfer_disjoint_us.as_ref().map(|matrix| ("transfer_disjoint_us", matrix));
    for (field, matrix) in std::iter::once(("transfer_us", &edge.transfer_us)).chain(disjoint) {
        let wrong = |found: String| Error::MatrixShape {
            edge: index,
            from: from.name.clone(),
            to: to.name.clone(),
            field,
            found,
            rows,
            columns,
        };
        if matrix.len() != rows {
            return Err(wrong(format!("has {} rows", matrix.len())));
        }
        for (i, row) in matrix.iter().enumerate() {
            if row.len() != columns {
                return Err(wrong(format!("has {} entries in row {i}", row.len())));
            }
            for (j, &value) in row.iter().enumerate() {
                check_time(value, field, || {
                    format!("edge {index} (`{}` to `{}`), cell [{i}][{j}]", from.name, to.name)
                })?;
            }
        }
    }
    Ok(())
}
