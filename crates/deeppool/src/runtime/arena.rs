//! Memory of a device in which the buffers of a program have fixed places.
#![allow(unsafe_code)]

use std::sync::Arc;

use collectives::{HostArena, HostBuffer};

use crate::Error;

/// Memory of a device in which buffers have fixed places.
pub trait Arena {
    /// A part of the memory.
    type Buffer;

    /// Returns `elements` elements from `offset` on, as a buffer that keeps the arena allocated.
    ///
    /// # Errors
    /// If the arena is shorter.
    ///
    /// # Safety
    /// Parts may overlap. While one of two overlapping parts is written, neither the host nor the
    /// device accesses the other.
    unsafe fn part(&self, offset: usize, elements: usize) -> Result<Self::Buffer, Error>;
}

impl Arena for Arc<HostArena<f32>> {
    type Buffer = HostBuffer<f32>;

    unsafe fn part(&self, offset: usize, elements: usize) -> Result<HostBuffer<f32>, Error> {
        // SAFETY: as the caller promises.
        Ok(unsafe { self.view(offset, elements) }?)
    }
}

#[cfg(feature = "cuda")]
impl Arena for cuda::Buffer<f32> {
    type Buffer = Self;

    unsafe fn part(&self, offset: usize, elements: usize) -> Result<Self, Error> {
        // SAFETY: as the caller promises.
        Ok(unsafe { self.alias(offset..offset.saturating_add(elements)) }?)
    }
}
