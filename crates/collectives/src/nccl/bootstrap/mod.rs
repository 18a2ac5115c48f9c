//! Connections between ranks before NCCL can be used, and values exchanged over them.
//!
//! Rank 0 serves a store of values by key ([`server`]), similar to PyTorch's `TCPStore`; the others
//! connect to it ([`store`]). In a *gather*, each of the given ranks puts a value under the same
//! key and gets the values of all, or the ranks whose values are missing. Rank 0's address comes
//! from torchrun's variables ([`environment`]).
//!
//! As in `TCPStore` and NCCL's own bootstrap, nothing is authenticated or encrypted: the ranks'
//! network must be trusted.

mod environment;
mod message;
mod server;
mod store;
#[cfg(test)]
mod tests;

pub(super) use environment::{Endpoint, Environment};
pub(super) use store::{GatherError, Members, Store};
