//! Descriptors of the graph API: objects with attributes, which are finalized before they are used.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t,
};

use super::handle::HandleState;
use super::{CudnnFunctions, dnn};
use crate::Result;
use crate::driver::written;
use crate::handle::Raw;

/// Library of a descriptor, and the handle for which it is made, if there is one.
pub(super) struct Owner {
    pub(super) functions: Arc<CudnnFunctions>,
    pub(super) handle: Option<Arc<HandleState>>,
}

/// Descriptor in host memory, destroyed when it is dropped.
pub(super) struct Descriptor {
    owner: Arc<Owner>,
    raw: Raw<c_void>,
}

impl Descriptor {
    /// Creates a descriptor without attributes.
    pub(super) fn new(owner: &Arc<Owner>, kind: cudnnBackendDescriptorType_t) -> Result<Self> {
        // SAFETY: the descriptor is written.
        let raw = written(|raw| unsafe { dnn!(&owner.functions, cudnnBackendCreateDescriptor(kind, raw)) })?;
        Ok(Self { owner: Arc::clone(owner), raw: Raw(raw) })
    }

    /// Sets an attribute to an array of values of the C type of `kind`.
    pub(super) fn set<T>(&self, name: Name, kind: Type, values: &[T]) -> Result<()> {
        let (functions, raw) = (&self.owner.functions, self.raw.0);
        let (count, array) = ((values.len() as u64).cast_signed(), values.as_ptr().cast());
        // SAFETY: the array has that many values. The library checks their type.
        unsafe { dnn!(functions, cudnnBackendSetAttribute(raw, name, kind, count, array)) }
    }

    /// Sets an attribute to descriptors.
    pub(super) fn set_descriptors(&self, name: Name, values: &[&Self]) -> Result<()> {
        let values: Vec<_> = values.iter().map(|value| value.raw.0).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &values)
    }

    /// Checks the attributes and makes the descriptor usable.
    pub(super) fn finalize(&self) -> Result<()> {
        // SAFETY: the descriptor is alive.
        unsafe { dnn!(&self.owner.functions, cudnnBackendFinalize(self.raw.0)) }
    }

    /// Returns at most `N` numbers of an attribute of the C type of `kind`.
    pub(super) fn numbers<T: Copy + Default, const N: usize>(
        &self,
        name: Name,
        kind: Type,
    ) -> Result<Vec<T>> {
        let mut values = [T::default(); N];
        // SAFETY: the array has `N` elements of a type of numbers, for which any bytes are valid.
        let count = unsafe { self.get(name, kind, N, values.as_mut_ptr().cast()) }?;
        Ok(values[..count.min(N)].to_vec())
    }

    /// Returns an attribute that is a list of descriptors of a kind.
    pub(super) fn descriptors(&self, name: Name, kind: cudnnBackendDescriptorType_t) -> Result<Vec<Self>> {
        let list = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
        // SAFETY: nothing is written to an array of no elements.
        let room = unsafe { self.get(name, list, 0, std::ptr::null_mut()) }?;
        let mut descriptors = (0..room).map(|_| Self::new(&self.owner, kind)).collect::<Result<Vec<_>>>()?;
        let mut values: Vec<_> = descriptors.iter().map(|descriptor| descriptor.raw.0).collect();
        // SAFETY: the array has `room` descriptors, which are filled.
        let count = unsafe { self.get(name, list, room, values.as_mut_ptr().cast()) }?;
        descriptors.truncate(count);
        Ok(descriptors)
    }

    /// Copies an attribute that is one descriptor to `to`.
    pub(super) fn fill(&self, name: Name, to: &Self) -> Result<()> {
        let mut value = to.raw.0;
        // SAFETY: the array has one descriptor, which is filled.
        unsafe { self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (&raw mut value).cast()) }.map(drop)
    }

    /// Returns the number of elements of an attribute, and copies `room` of them to `array`.
    ///
    /// # Safety
    /// The array has room for these elements.
    unsafe fn get(&self, name: Name, kind: Type, room: usize, array: *mut c_void) -> Result<usize> {
        let (functions, raw, room) = (&self.owner.functions, self.raw.0, (room as u64).cast_signed());
        // SAFETY: as the caller promises; the count is written.
        let count: i64 = written(|count| unsafe {
            dnn!(functions, cudnnBackendGetAttribute(raw, name, kind, room, count, array))
        })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Returns the owner.
    pub(super) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// Returns cuDNN's pointer, which is valid while this descriptor is alive.
    pub(super) fn raw(&self) -> *mut c_void {
        self.raw.0
    }
}

// SAFETY: shared descriptors are only kept alive; others are used by one thread at a time.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once. Enqueued work does not use it.
        let destroyed = unsafe { dnn!(&self.owner.functions, cudnnBackendDestroyDescriptor(self.raw.0)) };
        // Without a handle there is no place for the error, and no device that it concerns.
        if let Some(handle) = &self.owner.handle {
            handle.stream.context().store_error(destroyed);
        }
    }
}
