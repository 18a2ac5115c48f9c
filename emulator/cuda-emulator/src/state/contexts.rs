//! The contexts of all devices.

use super::Handle;
use std::collections::{BTreeMap, BTreeSet};

/// The contexts of all devices.
#[derive(Default)]
pub(crate) struct Contexts {
    /// Primary contexts that are retained, by device.
    pub(super) primary: BTreeMap<i32, Primary>,
    /// Device of each context that is not destroyed, including the contexts of green contexts.
    pub(super) alive: BTreeMap<Handle, i32>,
    /// Contexts made by `cuCtxCreate` that are not destroyed.
    pub(super) created: BTreeSet<Handle>,
}

/// Primary context of a device.
pub(super) struct Primary {
    /// Handle of the context.
    pub(super) handle: Handle,
    /// Reference count: calls that retained it minus calls that released it.
    pub(super) retained: usize,
}

impl Contexts {
    /// Returns the contexts made by `cuCtxCreate`, which the caller has to destroy.
    pub(super) fn created(&self) -> impl Iterator<Item = Handle> {
        self.created.iter().copied()
    }

    /// Returns the devices whose primary context is retained, with the reference counts.
    pub(super) fn retained(&self) -> impl Iterator<Item = (i32, usize)> {
        self.primary.iter().map(|(device, primary)| (*device, primary.retained))
    }
}
