//! The backend whose ranks are processes with one NVIDIA GPU each.
//!
//! [`comm`] owns a handle of NCCL, polls every call until it completes or times out, and destroys
//! or aborts the handle exactly once. On top, [`communicator`] checks arguments, enqueues
//! operations and records an event in the stream, on which a [`request`] waits. [`group`] converts
//! failures into errors that name ranks, which it learns over the connections of [`bootstrap`]. All
//! of this is tested without a GPU, on the emulated NCCL and devices of `cuda-emulator`.

mod bootstrap;
mod comm;
mod communicator;
mod enqueued;
mod group;
mod launch;
mod nccl_world;
mod polling;
mod redistribution;
mod request;
#[cfg(test)]
mod tests;

pub use communicator::NcclCommunicator;
pub use nccl_world::NcclWorld;
pub use request::{NcclBarrierRequest, NcclExchangeRequest, NcclRedistributionRequest, NcclRequest};
