//! The backend whose ranks are threads of one process.
//!
//! The ranks of an operation meet in a table of their group ([`group`]), where their calls are compared. When the last
//! one has come, the operation is a list of independent pieces of work on the buffers that they left ([`exchange`]).
//! Any member that polls takes the next piece ([`request`]), so nobody depends on somebody else to poll. Who has ended
//! is written down in [`liveness`]; how to wait is decided in [`parking`].

mod communicator;
mod exchange;
mod group;
mod liveness;
mod parking;
mod request;
mod world;

pub use communicator::ThreadCommunicator;
pub use request::{ThreadBarrierRequest, ThreadExchangeRequest, ThreadRequest};
pub use world::ThreadWorld;
