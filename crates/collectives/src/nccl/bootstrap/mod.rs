//! How ranks find each other before NCCL can carry anything, and what they tell each other beside it.
//!
//! Rank 0 listens ([`server`]), the others connect ([`store`]). Both ends prove that they know the job's token without
//! sending it ([`handshake`]). What they then do is always the same: every rank of some set leaves a value under a key,
//! and takes all values, or learns whose is missing. Where to meet comes from torchrun's variables ([`environment`]).

mod environment;
mod handshake;
mod meetings;
mod server;
mod store;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use environment::{Environment, Meeting, Token};
pub(super) use store::{Store, Unmet};
