//! What ranks hold, and whether they have room for it.

use crate::groups::Classes;
use crate::memory_model;
use crate::{Arrangement, Evaluator};
use crate::{Error, Result};

/// An error names so many nodes.
const MAX_NAMED_NODES: usize = 3;

impl Evaluator<'_> {
    /// What each rank holds, bytes: what its nodes need by the [costs](crate::CostModel::memory), parameters with their state, copies
    /// of outputs and gradients that come from other ranks, and buckets in which gradients are reduced together.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
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

    /// Whether every rank has room for what it holds.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`] where one has not, and as [`evaluate`](Self::evaluate).
    pub fn check_memory(&mut self, arrangement: &Arrangement) -> Result<()> {
        let numbered = self.numbered(arrangement)?;
        let Some(limit_bytes) = self.problem().memory_limit_bytes else { return Ok(()) };
        let classes = self.classes_of(&numbered)?;
        let held = self.held(&classes, &numbered.order);
        let fullest = (0..held.len()).rev().max_by_key(|&class| held[class]);
        let Some(fullest) = fullest.filter(|&class| held[class] > limit_bytes) else { return Ok(()) };
        let mut by_node = vec![0_u64; numbered.groups.len()];
        self.memory_model(&classes, &numbered.order).each(|class, node, bytes| {
            if usize::from(class) == fullest {
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

    /// By how much the fullest rank of the arrangement that was evaluated last is above the limit: 1 where nothing is.
    pub(crate) fn memory_excess(&self, classes: &Classes, order: &[u32]) -> f64 {
        let Some(limit_bytes) = self.problem().memory_limit_bytes else { return 1.0 };
        if self.max_held_bytes() <= limit_bytes {
            return 1.0;
        }
        let most = self.held(classes, order).into_iter().max().unwrap_or(0);
        if most <= limit_bytes { 1.0 } else { most as f64 / limit_bytes.max(1) as f64 }
    }

    /// No rank holds more, whatever is on it.
    fn max_held_bytes(&self) -> u64 {
        memory_model::max_held_bytes(self.problem(), self.structure(), self.max_memory())
    }

    /// By class.
    fn held(&self, classes: &Classes, order: &[u32]) -> Vec<u64> {
        let mut held = vec![0_u64; classes.len()];
        self.memory_model(classes, order).each(|class, _, bytes| {
            let held = &mut held[usize::from(class)];
            *held = held.saturating_add(bytes);
        });
        held
    }
}
