//! Collectives on threads and, where the feature is on, on NCCL; redistribution, buckets, what links cost.
//!
//! Programs of their own are `mpi`, which starts itself under `mpirun`, and `loom`, for which the crate is built another way.

mod bucketing;
mod faults;
mod link_fit;
mod link_model;
mod readme;
mod redistribution;
#[path = "../suite/mod.rs"]
mod suite;
mod threads;

#[cfg(feature = "nccl")]
mod nccl;
