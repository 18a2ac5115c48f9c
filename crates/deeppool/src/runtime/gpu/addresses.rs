use collectives::NcclBuffer;
use layer_engine::DeviceSlice;

use super::Gpu;
use super::engine::slice;
use crate::program::BufferId;
use crate::runtime::{LoadedProgram, RankState};

/// Addresses of the buffers of a loaded program, by buffer. They are fixed while it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Addresses(Vec<DeviceSlice>);

impl Addresses {
    /// Collects the addresses of all buffers: the state first, then the buffers of the program.
    /// Buffers in shared memory have the address of that memory, and their own number of elements.
    pub(super) fn new(loaded: &LoadedProgram<Gpu>, state: &RankState<Gpu>) -> Self {
        let of_own = |index: usize, buffer: &NcclBuffer<f32>| {
            let spec = &loaded.program().buffers[state.buffers.len() + index];
            // Shared memory has the size of its largest buffer.
            let own = spec.shared.map_or(buffer, |piece| &loaded.shared[piece].memory);
            DeviceSlice { pointer: own.device_pointer(), elements: spec.elements }
        };
        let own = loaded.scratch.iter().enumerate().map(|(index, buffer)| of_own(index, buffer));
        Self(state.buffers.iter().map(slice).chain(own).collect())
    }

    /// Returns the address of a buffer.
    pub(super) fn of(&self, buffer: BufferId) -> DeviceSlice {
        self.0[buffer.0]
    }

    /// Returns the addresses of buffers, in the same order.
    pub(super) fn of_all(&self, buffers: &[BufferId]) -> Vec<DeviceSlice> {
        buffers.iter().map(|&buffer| self.of(buffer)).collect()
    }

    /// Returns the addresses of the first `count` buffers, which are the state.
    pub(super) fn state(&self, count: usize) -> &[DeviceSlice] {
        &self.0[..count]
    }
}
