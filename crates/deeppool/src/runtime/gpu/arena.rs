//! Device memory in which the buffers of a program have fixed places.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};

use collectives::NcclBuffer;
use layer_engine::EngineError;

use crate::Error;
use crate::runtime::Arena;

/// Memory of a GPU in which the buffers of a program have fixed places.
#[derive(Debug)]
pub struct GpuArena {
    pointer: u64,
    elements: usize,
    /// Owner of the memory. Each part of the arena has a handle of it.
    memory: Arc<Mutex<NcclBuffer<f32>>>,
}

impl GpuArena {
    pub(super) fn new(memory: NcclBuffer<f32>) -> Self {
        let (pointer, elements) = (memory.device_pointer(), memory.len());
        Self { pointer, elements, memory: Arc::new(Mutex::new(memory)) }
    }
}

impl Arena for GpuArena {
    type Buffer = NcclBuffer<f32>;

    unsafe fn part(&self, offset: usize, elements: usize) -> Result<NcclBuffer<f32>, Error> {
        let end = offset.saturating_add(elements);
        if end > self.elements {
            let (kernel, operand) = ("arena".to_owned(), "part".to_owned());
            return Err(EngineError::Operand { kernel, operand, expected: end, got: self.elements }.into());
        }
        let pointer = self.pointer + (offset * size_of::<f32>()) as u64;
        // SAFETY: the range is inside the arena, which the buffer keeps, and starts at an element.
        // The caller orders the accesses to parts that overlap.
        Ok(unsafe { NcclBuffer::from_raw(pointer, elements, Arc::clone(&self.memory)) })
    }
}
