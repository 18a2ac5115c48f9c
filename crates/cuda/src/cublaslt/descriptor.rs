//! Descriptors of operations, matrices and preferences.

use std::sync::Arc;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayoutAttribute_t, cudaDataType,
};

use super::{CublasLtFunctions, Handle, lt};
use crate::Result;
use crate::driver::written;

/// Descriptor of cuBLASLt in host memory, destroyed when it is dropped.
pub(super) struct Descriptor<R: Copy> {
    pub(super) handle: Arc<Handle>,
    pub(super) raw: R,
    destroy: unsafe fn(&CublasLtFunctions, R) -> Result<()>,
}

// SAFETY: a descriptor belongs to no thread. Those that are shared are only read, or in a lock.
unsafe impl<R: Copy> Send for Descriptor<R> {}
// SAFETY: as above.
unsafe impl<R: Copy> Sync for Descriptor<R> {}

impl<R: Copy> Drop for Descriptor<R> {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once. Enqueued work does not use it.
        let destroyed = unsafe { (self.destroy)(&self.handle.functions, self.raw) };
        self.handle.context.store_error(destroyed);
    }
}

/// Declares the function that creates a kind of descriptor.
macro_rules! descriptor {
    ($name:ident($($argument:ident: $type:ty),*) -> $raw:ty, $create:ident, $destroy:ident) => {
        impl Descriptor<$raw> {
            pub(super) fn $name(handle: &Arc<Handle>, $($argument: $type),*) -> Result<Self> {
                unsafe fn destroy(functions: &CublasLtFunctions, raw: $raw) -> Result<()> {
                    // SAFETY: as the caller promises.
                    unsafe { lt!(functions, $destroy(raw)) }
                }
                // SAFETY: the descriptor is written.
                let raw = written(|raw| unsafe { lt!(&handle.functions, $create(raw $(, $argument)*)) })?;
                Ok(Self { handle: Arc::clone(handle), raw, destroy })
            }
        }
    };
}
descriptor!(create_operation(compute: cublasComputeType_t, scale: cudaDataType) -> cublasLtMatmulDesc_t,
    cublasLtMatmulDescCreate, cublasLtMatmulDescDestroy);
descriptor!(create_layout(element: cudaDataType, rows: u64, columns: u64, stride: i64)
    -> cublasLtMatrixLayout_t, cublasLtMatrixLayoutCreate, cublasLtMatrixLayoutDestroy);
descriptor!(preference() -> cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceCreate, cublasLtMatmulPreferenceDestroy);

/// Declares the function that sets an attribute of a kind of descriptor.
macro_rules! attributes {
    ($raw:ty, $attribute:ty, $set:ident) => {
        impl Descriptor<$raw> {
            /// Sets an attribute, whose type must be `T`: the library checks its size.
            pub(super) fn set<T>(&self, attribute: $attribute, value: &T) -> Result<()> {
                let value: *const T = value;
                // SAFETY: the value has that size.
                unsafe {
                    lt!(&self.handle.functions, $set(self.raw, attribute, value.cast(), size_of::<T>()))
                }
            }
        }
    };
}
attributes!(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, cublasLtMatmulDescSetAttribute);
attributes!(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatrixLayoutSetAttribute);
attributes!(
    cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatmulPreferenceSetAttribute
);

impl Descriptor<cublasLtMatmulDesc_t> {
    pub(super) fn operation(handle: &Arc<Handle>, compute: cublasComputeType_t) -> Result<Self> {
        Self::create_operation(handle, compute, cudaDataType::CUDA_R_32F)
    }
}

impl Descriptor<cublasLtMatrixLayout_t> {
    /// Creates the layout of `batch` row-major matrices of these sizes, which are columns and rows
    /// of the library.
    pub(super) fn layout(
        handle: &Arc<Handle>,
        element: cudaDataType,
        rows: usize,
        columns: usize,
        batch: usize,
    ) -> Result<Self> {
        use cublasLtMatrixLayoutAttribute_t as Attribute;
        let width = columns as u64;
        let layout = Self::create_layout(handle, element, width, rows as u64, width.cast_signed())?;
        if batch > 1 {
            layout.set(Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &(batch as u32).cast_signed())?;
            let stride = ((rows * columns) as u64).cast_signed();
            layout.set(Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride)?;
        }
        Ok(layout)
    }
}
