//! Identities of objects, by which work that was prepared for one is recognized.

use std::sync::atomic::{AtomicU64, Ordering};

/// Identity of an object of this process. No other object has it, even after it is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(u64);

impl Identity {
    /// Returns an identity that no object has.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
