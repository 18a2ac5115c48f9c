//! The backend whose ranks are threads of one process.
//!
//! The calls of an operation are matched and compared in a table of their group ([`group`]). Once the last member has
//! called it, the operation is a number of independent [`units`] of work on the members' buffers ([`exchange`],
//! [`shared`]). Any member that polls takes the next unit ([`request`]), so no member depends on another to poll. Ranks
//! that have ended are recorded in [`liveness`]; how to wait is decided in [`parking`]. All of it is built on [`sync`], so
//! that a model checker can take it through every order of events.

mod communicator;
mod exchange;
mod group;
mod liveness;
mod parking;
mod ranks;
mod request;
mod shared;
mod sync;
mod units;
mod world;

pub use communicator::ThreadCommunicator;
pub use request::{ThreadBarrierRequest, ThreadExchangeRequest, ThreadRequest};
pub use world::ThreadWorld;
