//! The decisions that the alternatives of a region are made of.

/// The empty trace.
pub(super) const NOTHING: u32 = u32::MAX;

/// Decisions, shared between alternatives: a forest whose leaves are decisions. Parts stand before what is made of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Traces {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Entry {
    /// The node takes the option.
    Option { node: u32, option: u32 },
    /// The branch of the region is the first of a new wave, or the next of the wave begun last.
    Placed { region: u32, branch: u32, is_first: bool },
    /// The one, then the other.
    Both(u32, u32),
}

impl Traces {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn push(&mut self, entry: Entry) -> u32 {
        self.entries.push(entry);
        // Searches are bounded below 2^32 entries.
        (self.entries.len() - 1) as u32
    }

    pub(super) fn both(&mut self, one: u32, other: u32) -> u32 {
        match (one, other) {
            (NOTHING, trace) | (trace, NOTHING) => trace,
            _ => self.push(Entry::Both(one, other)),
        }
    }

    /// Forgets what was recorded from entry `mark` on, but for what `roots` are made of; roots are renumbered. Linear time.
    pub(super) fn keep_only<'t>(&mut self, mark: usize, roots: impl Iterator<Item = &'t mut u32>) {
        let roots: Vec<&mut u32> =
            roots.filter(|root| **root != NOTHING && **root as usize >= mark).collect();
        let mut number = vec![NOTHING; self.entries.len() - mark];
        for root in &roots {
            number[**root as usize - mark] = 0;
        }
        for index in (mark..self.entries.len()).rev() {
            if let (0, Entry::Both(one, other)) = (number[index - mark], self.entries[index]) {
                for part in [one, other] {
                    if part as usize >= mark {
                        number[part as usize - mark] = 0;
                    }
                }
            }
        }
        let mut next = mark;
        for index in mark..self.entries.len() {
            if number[index - mark] == NOTHING {
                continue;
            }
            let moved = |part: u32| if part as usize >= mark { number[part as usize - mark] } else { part };
            self.entries[next] = match self.entries[index] {
                Entry::Both(one, other) => Entry::Both(moved(one), moved(other)),
                leaf => leaf,
            };
            number[index - mark] = next as u32;
            next += 1;
        }
        self.entries.truncate(next);
        for root in roots {
            *root = number[*root as usize - mark];
        }
    }

    /// The decisions of a trace, in the order in which they were put together.
    pub(super) fn leaves(&self, trace: u32) -> Vec<Entry> {
        let mut leaves = Vec::new();
        let mut open = vec![trace];
        while let Some(trace) = open.pop() {
            match self.entries.get(trace as usize) {
                Some(&Entry::Both(one, other)) => open.extend([other, one]),
                Some(&leaf) => leaves.push(leaf),
                None => {}
            }
        }
        leaves
    }
}
