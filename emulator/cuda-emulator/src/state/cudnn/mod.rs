//! cuDNN's backend: handles, descriptors, engines, convolutions and attention.
//!
//! A *descriptor* is filled by attributes and then finalised, which checks it. A descriptor that is
//! the value of an attribute is copied, so that it may be destroyed before the other. An *engine*
//! is one of the library's kernels; a heuristic proposes engines for a graph of operations.

mod attention;
mod attributes;
mod compute;
mod convolution;
mod descriptor;
mod engines;
mod evaluate;
mod finalized;
mod nodes;
mod rounding;
mod status;

pub(crate) use attributes::{Kind, Values, type_bytes};
pub(super) use descriptor::Descriptor;
pub(crate) use evaluate::Place;
pub(crate) use finalized::{DeviceProperties, Finalized, Plan, VariantPack};
pub(crate) use status::{CudnnResult, CudnnStatus};

use super::Handle;
use std::collections::{BTreeMap, BTreeSet};

/// All handles and descriptors of cuDNN.
#[derive(Default)]
pub(crate) struct Cudnn {
    /// Handles (`cudnnHandle_t`) that are not destroyed.
    pub(super) handles: BTreeMap<Handle, CudnnHandle>,
    /// Descriptors (`cudnnBackendDescriptor_t`) that are not destroyed.
    pub(super) descriptors: BTreeMap<Handle, Descriptor>,
    /// Plans that have been executed outside captures, with the device. The first execution loads
    /// the code of the plan.
    pub(super) loaded: BTreeSet<(Handle, i32)>,
}

/// Handle of cuDNN (`cudnnHandle_t`).
pub(super) struct CudnnHandle {
    /// Context in which the handle was created.
    pub(super) context: Handle,
    /// Device of the context.
    pub(super) device: i32,
    /// Stream of the executions, 0 for the default stream.
    pub(super) stream: Handle,
}
