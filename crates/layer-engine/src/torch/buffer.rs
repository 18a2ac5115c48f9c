use tch::{Device, Kind, Tensor};

use super::Failure;
use super::moments::Moments;
use super::{ffi, library_error};
use crate::Real;

/// Memory of a [`TorchEngine`](crate::TorchEngine).
///
/// A kernel may put other memory of the same length into a buffer that it writes to, which saves a copy. A graph that is
/// captured therefore has to contain all kernels that write to the buffers that it reads, or none of them.
#[derive(Debug)]
pub struct TorchBuffer {
    elements: usize,
    memory: Memory,
}

#[derive(Debug)]
pub(super) enum Memory {
    /// A tensor of one dimension and of all elements; none for a buffer without elements.
    Flat(Option<Tensor>),
    /// Sums over the samples, which are only flattened where a flat buffer is asked for.
    Moments(Moments),
    /// What a forward pass keeps for its backward pass, in shapes of libtorch's choice.
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

    /// Takes new memory: what is there may be memory of another buffer as well.
    pub(super) fn reuse(&mut self, elements: usize, kind: Kind, device: Device) -> Result<(), Failure> {
        *self = Self::default();
        let flat = Tensor::f_empty([elements as i64], (kind, device))?;
        *self = Self { elements, memory: Memory::Flat(Some(flat)) };
        Ok(())
    }

    /// Elements of the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether it holds no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// All elements, in one dimension.
    pub(super) fn flat(&self) -> Result<Tensor, Failure> {
        match &self.memory {
            Memory::Flat(Some(flat)) => Ok(flat.shallow_clone()),
            Memory::Flat(None) => Err(library_error("a buffer without memory was read")),
            Memory::Moments(moments) => moments.flatten(),
            Memory::Saved(_) => {
                Err(library_error("what a forward pass saved is for its backward pass alone"))
            }
        }
    }

    /// Puts a result of the buffer's length in the place of what was there.
    pub(super) fn put(&mut self, result: &Tensor) -> Result<(), Failure> {
        // Contiguous as it mostly is, this makes no copy.
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
