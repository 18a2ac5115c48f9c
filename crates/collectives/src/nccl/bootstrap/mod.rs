//! How ranks connect before NCCL can be used, and what they exchange besides it.
//!
//! Rank 0 listens ([`server`]), the others connect ([`store`]). Both ends prove that they know the job's token without
//! sending it ([`handshake`]). All that they then do is an all-gather of small values: every rank of some set puts a value
//! under a key and gets all values, or learns whose is missing. Rank 0's address comes from torchrun's variables
//! ([`environment`]).

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
