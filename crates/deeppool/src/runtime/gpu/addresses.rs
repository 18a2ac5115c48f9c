//! The device addresses of the buffers of a loaded program. *State* is the buffers that outlive an
//! iteration: parameters, velocities and running statistics.

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
    /// Collects the addresses of all buffers of a program and of its state.
    pub(super) fn new(loaded: &LoadedProgram<Gpu>, state: &RankState<Gpu>) -> Self {
        Self(state.buffers.iter().chain(&loaded.scratch).map(slice).collect())
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
