//! The backend whose ranks are processes with one NVIDIA GPU each.
//!
//! It has three layers. NCCL itself is opened at run time ([`library`]) and called through a table
//! of its functions ([`api`]). [`comm`] owns a handle, polls every call until it completes or times
//! out, and destroys or aborts the handle exactly once. On top, [`communicator`] checks arguments,
//! enqueues operations and records an event in the stream, on which a [`request`] waits. [`group`]
//! converts failures into errors that name ranks, which it learns over the connections of
//! [`bootstrap`]. [`cuda`] wraps the functions of CUDA. All of this is tested without a GPU, on the
//! emulated NCCL and devices of `cuda-emulator`.

mod api;
mod bootstrap;
mod buffer;
mod comm;
mod communicator;
mod cuda;
mod enqueued;
mod group;
mod launch;
mod library;
mod nccl_world;
mod pending_operations;
mod polling;
mod redistribution;
mod request;
#[cfg(test)]
mod tests;

pub use buffer::{NcclBuffer, NcclStream};
pub use communicator::NcclCommunicator;
pub use library::NcclLibrary;
pub use nccl_world::NcclWorld;
pub use request::{NcclBarrierRequest, NcclExchangeRequest, NcclRedistributionRequest, NcclRequest};
