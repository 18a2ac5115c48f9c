//! Memory of ranks, and its limit.

use crate::evaluator::NumberedArrangement;
use crate::groups::Classes;
use crate::memory_model::{self, Held, Peaks};
use crate::{Arrangement, Error, Evaluator, Result};

/// Maximum number of nodes listed in an error message.
const MAX_NAMED_NODES: usize = 3;

impl Evaluator<'_> {
    /// Returns the memory of each rank, bytes: the maximum over the steps of an iteration of what
    /// is in use then. That is the nodes' [memory](crate::CostModel::memory), parameters with their
    /// state, and copies of outputs and gradients from other ranks. Gradients that are reduced
    /// together have their memory from the first of them on. It is 0 for ranks without nodes.
    ///
    /// Buffers are in use from their first to their last use. An allocation can be larger by gaps
    /// between buffers.
    ///
    /// # Errors
    /// Those of [`evaluate`](Self::evaluate).
    pub fn memory(&mut self, arrangement: &Arrangement) -> Result<Vec<u64>> {
        let numbered = self.numbered(arrangement)?;
        let mut by_rank = vec![0; self.problem().gpus];
        let classes = self.classes_of(&numbered)?;
        for (class, held) in self.held(&classes, &numbered.order).into_iter().enumerate() {
            for rank in classes.ranks[class].iter().cloned().flatten() {
                by_rank[rank] = held;
            }
        }
        Ok(by_rank)
    }

    /// Checks that every rank is within the problem's memory limit. Without a limit, only the
    /// arrangement is checked.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`] if one is not, and those of [`evaluate`](Self::evaluate).
    pub fn check_memory(&mut self, arrangement: &Arrangement) -> Result<()> {
        let numbered = self.numbered(arrangement)?;
        let Some(limit_bytes) = self.problem().memory_limit_bytes else { return Ok(()) };
        let classes = self.classes_of(&numbered)?;
        let model = self.memory_model(&classes, &numbered.order);
        let Peaks { bytes: held, positions } = model.peaks();
        let fullest = (0..held.len()).rev().max_by_key(|&class| held[class]);
        let Some(fullest) = fullest.filter(|&class| held[class] > limit_bytes) else { return Ok(()) };
        let mut by_node = vec![0_u64; numbered.groups.len()];
        model.for_each_buffer(|Held { class, node, bytes, alive: [first, last] }| {
            if usize::from(class) == fullest && (first..=last).contains(&positions[fullest]) {
                by_node[node] = by_node[node].saturating_add(bytes);
            }
        });
        let mut nodes: Vec<usize> = (0..by_node.len()).filter(|&node| by_node[node] > 0).collect();
        nodes.sort_by_key(|&node| std::cmp::Reverse(by_node[node]));
        nodes.truncate(MAX_NAMED_NODES);
        let name = |node: usize| (self.problem().nodes[node].name.clone(), by_node[node]);
        let nodes = nodes.into_iter().map(name).collect();
        Err(Error::MemoryExceeded { limit_bytes, needed_bytes: held[fullest], nodes })
    }

    /// Returns the memory of the fullest rank divided by the limit; 1 if it is within the limit or
    /// there is none. Fails with [`Error::TooManyClasses`].
    pub(crate) fn memory_excess(&mut self, numbered: &NumberedArrangement) -> Result<f64> {
        let Some(limit_bytes) = self.problem().memory_limit_bytes else { return Ok(1.0) };
        if self.max_held_bytes() <= limit_bytes {
            return Ok(1.0);
        }
        let classes = self.classes_of(numbered)?;
        let maximum = self.held(&classes, &numbered.order).into_iter().max().unwrap_or(0);
        Ok(if maximum <= limit_bytes { 1.0 } else { maximum as f64 / limit_bytes.max(1) as f64 })
    }

    /// Returns an upper bound of the memory of any rank in any arrangement.
    fn max_held_bytes(&self) -> u64 {
        memory_model::max_held_bytes(self.problem(), self.structure(), self.max_memory())
    }

    /// Returns the memory of each class in the current arrangement.
    pub(crate) fn held(&self, classes: &Classes, order: &[u32]) -> Vec<u64> {
        self.memory_model(classes, order).peaks().bytes
    }
}
