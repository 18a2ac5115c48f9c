//! Indices of lists of ranks, which are keys of caches.

use rustc_hash::FxHashMap;

/// Index of each list of ranks that was looked up.
#[derive(Default)]
pub(super) struct RankListIndices {
    /// Index of a list of ranks, by its ranges of consecutive ranks: first rank and length.
    known: FxHashMap<Box<[(usize, usize)]>, u32>,
    /// Ranges of the list that is looked up; empty between uses.
    ranges: Vec<(usize, usize)>,
}

impl RankListIndices {
    /// Returns the index of a list of ranks. O(ranks).
    pub(super) fn index(&mut self, ranks: &[usize]) -> u32 {
        self.ranges.clear();
        if is_range(ranks) {
            self.ranges.push((ranks[0], ranks.len()));
        } else {
            let runs = ranks.chunk_by(|a, b| a + 1 == *b);
            self.ranges.extend(runs.map(|run| (run[0], run.len())));
        }
        if let Some(&known) = self.known.get(&self.ranges[..]) {
            return known;
        }
        let index = self.known.len() as u32;
        self.known.insert(self.ranges[..].into(), index);
        index
    }
}

/// Returns whether ranks are consecutive and ascending. Compares all of them, which compiles to
/// vector instructions.
fn is_range(ranks: &[usize]) -> bool {
    let Some(&first) = ranks.first() else { return false };
    ranks.iter().zip(first..).fold(0, |differences, (rank, expected)| differences | (rank ^ expected)) == 0
}
