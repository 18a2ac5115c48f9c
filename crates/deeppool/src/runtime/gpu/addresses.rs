//! The device addresses of the buffers of a loaded program. *State* is the buffers that outlive an
//! iteration: parameters, velocities and running statistics.

use collectives::NcclBuffer;
use layer_engine::DeviceSlice;

use super::Gpu;
use super::engine::slice;
use crate::program::BufferId;
use crate::runtime::{LoadedProgram, RankState};

/// Device address and number of elements of each buffer of a loaded program, by buffer id. They do
/// not change while the program is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Addresses(Vec<DeviceSlice>);

impl Addresses {
    /// Collects the addresses of all buffers of a program and of its state. A buffer in shared
    /// memory (used by several buffers one after another) has the address of that memory, and its
    /// own number of elements.
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

    /// Returns the address and the number of elements of a buffer.
    pub(super) fn of(&self, buffer: BufferId) -> DeviceSlice {
        self.0[buffer.0]
    }

    /// Returns the addresses of some buffers, in the given order.
    pub(super) fn of_all(&self, buffers: &[BufferId]) -> Vec<DeviceSlice> {
        buffers.iter().map(|&buffer| self.of(buffer)).collect()
    }

    /// Returns the addresses of the state, which is the first `count` buffers.
    pub(super) fn state(&self, count: usize) -> &[DeviceSlice] {
        &self.0[..count]
    }
}
