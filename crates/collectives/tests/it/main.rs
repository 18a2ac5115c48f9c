//! Tests of collectives on threads and, with the feature, on NCCL; of redistribution, bucketing and
//! the link model.
//!
//! Two test programs are separate: `mpi`, which starts itself under `mpirun`, and `loom`, which
//! needs another build of the crate.

mod arena;
mod bucketing;
mod cluster_links;
mod faults;
mod flows;
mod link_fit;
mod link_groups;
mod link_model;
mod link_traffic;
mod published;
mod readme;
mod redistribution;
#[path = "../suite/mod.rs"]
mod suite;
mod threads;

#[cfg(feature = "nccl")]
mod nccl;
