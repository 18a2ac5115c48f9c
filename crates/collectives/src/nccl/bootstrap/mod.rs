//! Connections between ranks before NCCL can be used, and values exchanged over them.
//!
//! Rank 0 listens ([`server`]) and the others connect ([`store`]). Both ends prove that they know
//! the job's token without sending it ([`handshake`]). The connections serve all-gathers of small
//! values: every rank of a set puts a value under a key and gets all values, or the ranks whose
//! values are missing. Rank 0's address comes from torchrun's variables ([`environment`]).

mod environment;
mod gathers;
mod handshake;
mod server;
mod store;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use environment::{Endpoint, Environment, Token};
pub(super) use store::{GatherError, Store};
