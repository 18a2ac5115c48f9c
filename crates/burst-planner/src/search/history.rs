//! The decisions that partial choices are made of.

/// One decision of a complete choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) variable: u32,
    /// An option of the node.
    pub(crate) value: u32,
}

/// A forest of pairs whose leaves are single decisions. Entries are numbered from 0, leaves first.
///
/// Partial choices share their parts, so that one more costs a pair and not a list.
pub(crate) struct History {
    leaves: Vec<Decision>,
    pairs: Vec<(u32, u32)>,
}

/// A state of the history to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(usize);

impl History {
    pub(crate) fn new(leaves: Vec<Decision>) -> Self {
        Self { leaves, pairs: Vec::new() }
    }

    /// Records that two partial choices were put together.
    pub(crate) fn join(&mut self, left: u32, right: u32) -> u32 {
        self.pairs.push((left, right));
        // Searches are bounded far below 2^32 pairs.
        (self.leaves.len() + self.pairs.len() - 1) as u32
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.pairs.len())
    }

    /// Forgets what was recorded since, but for what `entries` are made of; they are numbered anew.
    pub(crate) fn keep_only<'e>(&mut self, mark: Mark, entries: impl Iterator<Item = &'e mut u32>) {
        let settled = self.leaves.len() + mark.0;
        let mut parts_of = Vec::new();
        let mut kept = Vec::new();
        for entry in entries {
            let mut parts = Vec::new();
            let mut open = vec![*entry];
            while let Some(entry) = open.pop() {
                if (entry as usize) < settled {
                    parts.push(entry);
                } else {
                    let (left, right) = self.pairs[entry as usize - self.leaves.len()];
                    open.extend([left, right]);
                }
            }
            kept.push(entry);
            parts_of.push(parts);
        }
        self.forget(mark);
        for (entry, parts) in kept.into_iter().zip(parts_of) {
            let joined = parts.into_iter().reduce(|all, part| self.join(all, part));
            *entry = joined.unwrap_or(*entry);
        }
    }

    /// How many pairs were recorded since.
    pub(crate) fn since(&self, mark: Mark) -> usize {
        self.pairs.len() - mark.0
    }

    /// Forgets what was recorded since.
    pub(crate) fn forget(&mut self, mark: Mark) {
        self.pairs.truncate(mark.0);
    }

    /// The decisions behind an entry, in no particular order.
    pub(crate) fn decisions(&self, entry: u32) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let mut open = vec![entry as usize];
        while let Some(entry) = open.pop() {
            if let Some(&decision) = self.leaves.get(entry) {
                decisions.push(decision);
            } else {
                let (left, right) = self.pairs[entry - self.leaves.len()];
                open.extend([left as usize, right as usize]);
            }
        }
        decisions
    }
}
