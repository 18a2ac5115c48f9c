#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! - [`Group`] and [`Communicator`]: what a rank can do, whatever the backend; [`Request`]: an operation under way.
//! - [`ThreadWorld`]: the backend whose ranks are threads of one process.
#![cfg_attr(feature = "nccl", doc = "- [`NcclWorld`]: the backend whose ranks are GPUs, on [`NcclBuffer`]s.")]
#![cfg_attr(feature = "mpi", doc = "- [`MpiWorld`]: the backend whose ranks are processes, by Open MPI.")]
//! - [`Partition`] and [`Redistribution`]: which samples each rank holds, and what moves when that changes.
//! - [`Bucketing`]: which gradients are reduced together, while others are still computed.
//! - [`LinkModel`]: what communication costs; [`CollectiveKind`]: the operations that cost something.
//! - [`Error`]: what can go wrong, with the rank and the [`Call`] that it concerns.

// The suite of laws in `tests` is also run from within, on an emulated NCCL.
#[cfg(all(test, feature = "nccl"))]
extern crate self as collectives;

mod bucketing;
mod call;
mod communicator;
mod element;
mod error;
mod lengths;
mod link_model;
mod membership;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
mod partition;
mod redistribute;
mod redistribution;
mod request;
mod thread;
mod wait;

#[cfg(feature = "mpi")]
pub use crate::mpi::{MpiBarrierRequest, MpiCommunicator, MpiExchangeRequest, MpiRequest, MpiWorld};
pub use bucketing::{Bucket, Bucketing};
pub use call::{Call, Operation};
pub use communicator::{Communicator, Group};
pub use element::{Element, ElementType, ReduceOp};
pub use error::{Departure, Error, Result};
pub use half::{bf16, f16};
pub use link_model::{Algorithm, CollectiveKind, Fit, LinkModel, Measurement, Traffic};
#[cfg(feature = "nccl")]
pub use nccl::{
    NcclBarrierRequest, NcclBuffer, NcclCommunicator, NcclExchangeRequest, NcclLibrary,
    NcclRedistributionRequest, NcclRequest, NcclStream, NcclWorld,
};
pub use partition::Partition;
pub use redistribute::PendingRedistribution;
pub use redistribution::{Move, Redistribution};
pub use request::{Exchanged, RedistributionRequest, Request};
pub use thread::{
    ThreadBarrierRequest, ThreadCommunicator, ThreadExchangeRequest, ThreadRequest, ThreadWorld,
};
pub use wait::WaitStrategy;
