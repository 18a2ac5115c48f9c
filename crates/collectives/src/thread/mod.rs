//! The backend whose ranks are threads of one process.
//!
//! The ranks of an operation meet in a table of their group ([`group`]), where their calls are compared. When the last
//! one has come, the operation is a number of independent [`units`] of work on the buffers that they left
//! ([`exchange`], [`shared`]). Any member that polls takes the next unit ([`request`]), so nobody depends on somebody
//! else to poll. Who has ended is written down in [`liveness`]; how to wait is decided in [`parking`]. All of it is
//! built on [`sync`], so that a model checker can take it through every order of events.

mod communicator;
mod exchange;
mod group;
mod liveness;
mod parking;
mod request;
mod shared;
mod sync;
mod units;
mod world;

pub use communicator::ThreadCommunicator;
pub use request::{ThreadBarrierRequest, ThreadExchangeRequest, ThreadRequest};
pub use world::ThreadWorld;
