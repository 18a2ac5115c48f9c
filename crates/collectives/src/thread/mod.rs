//! The backend whose ranks are threads of one process.
//!
//! The calls of an operation are matched and compared in a table of their group ([`group`]). After
//! the last member's call, the operation consists of independent [`units`] of work on the members'
//! buffers ([`exchange`], [`shared_buffer`]). Any member that polls executes the next unit
//! ([`request`]), so no member depends on another to poll. [`liveness`] records the ranks that have
//! ended, and [`parking`] implements waiting. All of it is built on [`sync`], so that a model
//! checker can try every order of events.

mod communicator;
mod exchange;
mod group;
mod liveness;
mod parking;
mod request;
mod shared_buffer;
mod sync;
mod thread_world;
mod units;
mod world_state;

pub use communicator::ThreadCommunicator;
pub use request::{ThreadBarrierRequest, ThreadExchangeRequest, ThreadRedistributionRequest, ThreadRequest};
pub use thread_world::ThreadWorld;
