//! The backend whose ranks are processes with an NVIDIA GPU each.
//!
//! Three layers. NCCL itself is opened at run time ([`library`]) and called through a table of its functions ([`api`]).
//! [`comm`] owns one handle, polls every call until it is through or late, and destroys or aborts the handle exactly
//! once. On top, [`communicator`] checks arguments, enqueues and marks the place in the stream that a [`request`] waits
//! for; [`group`] turns failures into errors that name ranks, which it learns over the connections of [`bootstrap`].
//! What is needed of CUDA is in [`cuda`]. All of this is tested without a GPU, on the emulated NCCL and devices of `cuda-emulator`.

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
mod pause;
mod redistribute;
mod request;
#[cfg(test)]
mod tests;
mod world;

pub use buffer::{NcclBuffer, NcclStream};
pub use communicator::NcclCommunicator;
pub use library::NcclLibrary;
pub use request::{NcclBarrierRequest, NcclExchangeRequest, NcclRedistributionRequest, NcclRequest};
pub use world::NcclWorld;
