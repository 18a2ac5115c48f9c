//! Green contexts: contexts on a part of a device's multiprocessors. They have no effect on virtual
//! times.

use super::{CallError, CallResult, Code, Handle};
use std::collections::{BTreeMap, BTreeSet};

/// Granularity of partitions, as on compute capability 9.0.
const STEP: u32 = 8;
/// Mark of resources that come from this driver.
const ORIGIN: [u8; 8] = *b"fakecuda";

/// Memory layout of `CUdevResource`: a number of multiprocessors, the only kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Resource {
    kind: u32,
    origin: [u8; 8],
    padding: [u8; 84],
    multiprocessors: u32,
    min_partition: u32,
    alignment: u32,
    oversize: [u8; 36],
}

impl Resource {
    /// Creates a resource of the given number of multiprocessors. A resource of 0 multiprocessors
    /// is invalid. It stands for the empty remainder of a split.
    pub(super) fn new(multiprocessors: u32) -> Self {
        Self {
            kind: u32::from(multiprocessors > 0),
            origin: ORIGIN,
            padding: [0; 84],
            multiprocessors,
            min_partition: STEP,
            alignment: STEP,
            oversize: [0; 36],
        }
    }

    /// Implements `cuDevSmResourceSplitByCount`: splits the resource into at most `wanted` equal
    /// groups, and returns the groups and the remainder. The number of multiprocessors of a group
    /// is `min_count` rounded up to a multiple of 8. It is an error if the resource is smaller than
    /// one group.
    pub(crate) fn split(self, wanted: usize, min_count: u32) -> CallResult<(Vec<Resource>, Resource)> {
        self.check()?;
        let size = min_count.max(1).next_multiple_of(STEP);
        let possible = self.multiprocessors / size;
        if possible == 0 {
            let text = format!(
                "{} multiprocessors cannot be split into groups of {min_count}",
                self.multiprocessors
            );
            return Err(CallError::misuse(Code::INVALID_RESOURCE_CONFIGURATION, text));
        }
        let groups = wanted.min(possible as usize);
        let rest = self.multiprocessors - groups as u32 * size;
        Ok((vec![Resource::new(size); groups], Resource::new(rest)))
    }

    /// Checks that the resource was made by this driver and is not empty.
    pub(super) fn check(&self) -> CallResult<()> {
        if self.kind == 1 && self.origin == ORIGIN {
            return Ok(());
        }
        Err(CallError::misuse(
            Code::INVALID_RESOURCE_TYPE,
            "the resource does not consist of multiprocessors of this driver",
        ))
    }
}

/// Green contexts that are not destroyed.
#[derive(Default)]
pub(crate) struct GreenContexts {
    /// Context (`CUcontext`) of each green context, by the handle of the green context.
    pub(super) alive: BTreeMap<Handle, Handle>,
    /// Contexts that `cuCtxFromGreenCtx` has returned.
    pub(super) converted: BTreeSet<Handle>,
}

impl GreenContexts {
    /// Returns the handles of the green contexts that are not destroyed, in ascending order.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.alive.keys().copied()
    }

    /// Returns whether this is the context of a green context.
    pub(super) fn is_context(&self, context: Handle) -> bool {
        self.alive.values().any(|own| *own == context)
    }

    /// Returns whether this is the context of a green context for which `cuCtxFromGreenCtx` was not
    /// called. CUDA refuses to change kernels captured in its streams (observed on an H200 with
    /// driver 580).
    pub(super) fn is_unconverted(&self, context: Handle) -> bool {
        self.is_context(context) && !self.converted.contains(&context)
    }
}
