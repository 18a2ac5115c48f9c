use tch::{Device, Kind, Tensor};

use super::Failure;
use super::moments::Moments;
use super::{ffi, library_error};
use crate::Real;

/// Memory of a [`TorchEngine`](crate::TorchEngine).
///
/// A kernel may replace the memory of a buffer that it writes by other memory of the same length,
/// which saves a copy. A captured graph must therefore contain all kernels that write the buffers
/// that it reads, or none of them.
#[derive(Debug)]
pub struct TorchBuffer {
    elements: usize,
    memory: Memory,
}

#[derive(Debug)]
pub(super) enum Memory {
    /// A one-dimensional tensor of all elements, or `None` for a buffer without elements.
    Flat(Option<Tensor>),
    /// Sums over the samples, which are flattened only when a flat buffer is requested.
    Moments(Moments),
    /// Values that a forward pass saves for its backward pass, in libtorch's shapes.
    Saved(Vec<Tensor>),
}

impl Default for TorchBuffer {
    fn default() -> Self {
        Self { elements: 0, memory: Memory::Flat(None) }
    }
}

impl TorchBuffer {
    pub(super) fn zeros(elements: usize, kind: Kind, device: Device) -> Result<Self, Failure> {
        let flat = Tensor::f_zeros([elements as i64], (kind, device))?;
        Ok(Self { elements, memory: Memory::Flat(Some(flat)) })
    }

    /// Allocates new memory, because the current memory may be shared with another buffer.
    pub(super) fn reuse(&mut self, elements: usize, kind: Kind, device: Device) -> Result<(), Failure> {
        *self = Self::default();
        let flat = Tensor::f_empty([elements as i64], (kind, device))?;
        *self = Self { elements, memory: Memory::Flat(Some(flat)) };
        Ok(())
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Returns whether the buffer has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns all elements in one dimension.
    pub(super) fn flat(&self) -> Result<Tensor, Failure> {
        match &self.memory {
            Memory::Flat(Some(flat)) => Ok(flat.shallow_clone()),
            Memory::Flat(None) => Err(library_error("a buffer without memory was read")),
            Memory::Moments(moments) => moments.flatten(),
            Memory::Saved(_) => {
                Err(library_error("only the backward pass can read what its forward pass saved"))
            }
        }
    }

    /// Replaces the content by a result of the buffer's length.
    pub(super) fn put(&mut self, result: &Tensor) -> Result<(), Failure> {
        // No copy if the result is contiguous, which is the usual case.
        let flat = result.f_contiguous()?.f_view([-1])?;
        if flat.numel() != self.elements {
            let problem = format!("{} elements were computed, {} expected", flat.numel(), self.elements);
            return Err(library_error(&problem));
        }
        self.memory = Memory::Flat(Some(flat));
        Ok(())
    }

    pub(super) fn put_moments(&mut self, moments: Moments) {
        self.memory = Memory::Moments(moments);
    }

    pub(super) fn save(&mut self, tensors: Vec<Tensor>) {
        self.memory = Memory::Saved(tensors);
    }

    pub(super) fn upload<T: Real>(&mut self, host: &[T], kind: Kind, device: Device) -> Result<(), Failure> {
        if !matches!(self.memory, Memory::Flat(Some(_))) {
            self.memory = Self::zeros(self.elements, kind, device)?.memory;
        }
        ffi::copy_from_host(host, kind, &self.flat()?)
    }
}
