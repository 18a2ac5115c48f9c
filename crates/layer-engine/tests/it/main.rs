//! Tests of the engines through their public interface.

mod allocations;
#[cfg_attr(not(any(feature = "cuda", feature = "torch")), allow(dead_code))]
mod any_engine;
mod bf16;
mod buffers;
mod errors;
mod forward;
mod gradients;
mod in_place;
#[cfg_attr(not(any(feature = "cuda", feature = "torch")), allow(dead_code))]
mod layer_cases;
mod network;
mod optimizer;
mod random;
mod recompute;
mod sequences;
mod shards;
mod single_layer;
mod splits;
mod threads;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "torch")]
mod torch;
