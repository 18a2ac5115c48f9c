//! Primary contexts, and the context that is current on a thread.

use super::Handle;
use std::collections::{BTreeMap, BTreeSet};

/// The contexts of all devices.
#[derive(Default)]
pub(crate) struct Contexts {
    pub(super) primary: BTreeMap<i32, Primary>,
    /// Those of green contexts too, with their devices.
    pub(super) alive: BTreeMap<Handle, i32>,
    /// Those that are neither primary nor green.
    pub(super) created: BTreeSet<Handle>,
}

pub(super) struct Primary {
    pub(super) handle: Handle,
    pub(super) retained: usize,
}

impl Contexts {
    /// Contexts that the caller has to destroy.
    pub(super) fn created(&self) -> impl Iterator<Item = Handle> {
        self.created.iter().copied()
    }

    /// Devices whose primary context is retained, and how often.
    pub(super) fn retained(&self) -> impl Iterator<Item = (i32, usize)> {
        self.primary.iter().map(|(device, primary)| (*device, primary.retained))
    }
}
