//! cuBLASLt: handles, descriptors, and products D = epilogue(alpha x op(A) x op(B) + beta x C).

mod algorithms;
mod attributes;
mod matrix;
mod problem;
mod product;
mod status;

pub(crate) use algorithms::{Algorithm, AlgorithmBytes, Limits};
pub(crate) use attributes::{Attributes, DescriptorKind};
pub(crate) use matrix::Matrix;
pub(crate) use problem::{Operands, Problem};
pub(crate) use product::product;
pub(crate) use status::CublasStatus;

use super::{Handle, LibraryResult};
use std::collections::BTreeMap;

/// Result of a function of cuBLASLt.
pub(crate) type CublasResult<T> = LibraryResult<T, CublasStatus>;

/// Objects of cuBLASLt that are not destroyed.
#[derive(Default)]
pub(crate) struct CublasLt {
    /// Device of each handle (`cublasLtHandle_t`).
    pub(super) handles: BTreeMap<Handle, i32>,
    /// Descriptions of products, layouts and preferences, by handle.
    pub(super) descriptors: BTreeMap<Handle, Attributes>,
}

impl CublasLt {
    /// Returns all objects, which the caller has to destroy.
    pub(super) fn objects(&self) -> impl Iterator<Item = Handle> {
        self.handles.keys().chain(self.descriptors.keys()).copied()
    }
}
