//! Reuse of message memory. Allocating some kilobytes takes a tenth of the time of a small
//! all-reduce. A *word* of a message has 8 bytes.

use std::sync::Arc;

/// Maximum number of vectors in the pool: those of an all-reduce among a few ranks.
const CAPACITY: usize = 16;

/// Pool of memory that messages have used.
#[derive(Debug, Default)]
pub(super) struct MessagePool(Vec<Vec<u64>>);

impl MessagePool {
    /// Returns an empty vector with room for the given number of words.
    pub(super) fn acquire(&mut self, words: usize) -> Vec<u64> {
        let mut message = self.0.pop().unwrap_or_default();
        message.reserve_exact(words);
        message
    }

    /// Adds a message's memory to the pool, unless the pool is full.
    pub(super) fn recycle(&mut self, mut words: Vec<u64>) {
        if self.0.len() < CAPACITY {
            words.clear();
            self.0.push(words);
        }
    }

    /// Adds the memory of a sent message to the pool, unless it is still in use.
    pub(super) fn recycle_sent(&mut self, message: Arc<Vec<u64>>) {
        if let Ok(words) = Arc::try_unwrap(message) {
            self.recycle(words);
        }
    }
}
