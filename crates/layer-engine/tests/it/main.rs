//! The engines, as their users call them.

mod allocations;
mod errors;
mod forward;
mod gradients;
mod network;
mod optimizer;
mod random;
mod recompute;
mod sequences;
mod shards;
mod single_layer;
mod threads;

#[cfg(feature = "torch")]
mod torch;
