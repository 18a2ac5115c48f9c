//! Memory of messages that is used again: to allocate some kilobytes takes a tenth of a small all-reduce.

use std::sync::Arc;

/// The most vectors that are kept: those of an all-reduce among a few ranks.
const KEPT: usize = 16;

/// Empty vectors that messages have used.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Vec<u64>>);

impl Spare {
    /// An empty vector with room for so many words.
    pub(super) fn take(&mut self, words: usize) -> Vec<u64> {
        let mut taken = self.0.pop().unwrap_or_default();
        taken.reserve_exact(words);
        taken
    }

    /// Keeps a message's memory, unless enough is kept.
    pub(super) fn keep(&mut self, mut words: Vec<u64>) {
        if self.0.len() < KEPT {
            words.clear();
            self.0.push(words);
        }
    }

    /// Keeps the memory of a message that has been sent, if nobody else has it any more.
    pub(super) fn keep_sent(&mut self, message: Arc<Vec<u64>>) {
        if let Ok(words) = Arc::try_unwrap(message) {
            self.keep(words);
        }
    }
}
