//! Buffers of the libtorch engine.

use tch::{Device, Kind, Tensor};

use super::Failure;
use super::moments::Moments;
use super::{ffi, library_error};
use crate::Real;

/// A buffer of a [`TorchEngine`](crate::TorchEngine): an array in the memory of its device.
///
/// A kernel may replace the memory of a buffer that it writes by other memory of the same length,
/// which saves a copy. A captured graph must therefore contain all kernels that write the buffers
/// that it reads, or none of them.
#[derive(Debug)]
pub struct TorchBuffer {
    elements: usize,
    memory: Memory,
}

/// Content of a buffer. `TorchBuffer::flat` converts it to a one-dimensional tensor.
#[derive(Debug)]
pub(super) enum Memory {
    /// A one-dimensional tensor of all elements, or `None` for a default buffer, which has no
    /// memory.
    Flat(Option<Tensor>),
    /// Sums of a batch normalisation over the samples, which are flattened only when a flat tensor
    /// is requested.
    Moments(Moments),
    /// Values that a forward pass saves for its backward pass, in libtorch's shapes. They cannot be
    /// flattened.
    Saved(Vec<Tensor>),
}

impl Default for TorchBuffer {
    fn default() -> Self {
        Self { elements: 0, memory: Memory::Flat(None) }
    }
}

impl TorchBuffer {
    /// Allocates a buffer of `elements` zeros of a data type.
    ///
    /// # Errors
    /// If libtorch cannot allocate the memory.
    pub(super) fn zeros(elements: usize, kind: Kind, device: Device) -> Result<Self, Failure> {
        let flat = Tensor::f_zeros([elements as i64], (kind, device))?;
        Ok(Self { elements, memory: Memory::Flat(Some(flat)) })
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

    /// Returns the content in its current form.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns all elements as a one-dimensional tensor, which shares the memory of the buffer
    /// unless it holds moments.
    ///
    /// # Errors
    /// If the buffer has no memory or holds values saved by a forward pass.
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

    /// Replaces the content by `result`, whose memory the buffer shares if it is contiguous.
    ///
    /// # Errors
    /// If `result` does not have the buffer's number of elements.
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

    /// Replaces the content by the sums of a batch normalisation.
    pub(super) fn put_moments(&mut self, moments: Moments) {
        self.memory = Memory::Moments(moments);
    }

    /// Replaces the content by tensors that a forward pass saves for its backward pass.
    pub(super) fn save(&mut self, tensors: Vec<Tensor>) {
        self.memory = Memory::Saved(tensors);
    }

    /// Copies `host` to the start of the buffer. `kind` is the data type of `host` and of the
    /// buffer.
    ///
    /// # Errors
    /// If libtorch fails.
    pub(super) fn upload<T: Real>(&mut self, host: &[T], kind: Kind, device: Device) -> Result<(), Failure> {
        if !matches!(self.memory, Memory::Flat(Some(_))) {
            self.memory = Self::zeros(self.elements, kind, device)?.memory;
        }
        ffi::copy_from_host(host, kind, &self.flat()?)
    }
}
