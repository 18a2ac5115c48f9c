#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - [`Group`] and [`Communicator`]: the operations of a rank, for any backend; [`Request`]: a
//!   started operation.
//! - [`HostBuffer`]: elements in host memory, owned or a view, for example of a [`HostArena`].
//! - [`ThreadWorld`]: the backend whose ranks are threads of one process.
#![cfg_attr(
    feature = "nccl",
    doc = "- [`NcclWorld`]: the backend whose ranks are GPUs, with [`cuda::Buffer`]s and [`cuda::Stream`]s."
)]
#![cfg_attr(feature = "mpi", doc = "- [`MpiWorld`]: the backend whose ranks are processes of Open MPI.")]
//! - [`Layout`] and [`Redistribution`]: the box of an array that each rank holds, such as samples
//!   or features, and the moves between two layouts.
//! - [`Bucketing`]: groups of gradients that are reduced together while the backward pass
//!   continues.
//! - [`FlowNetwork`]: transfers that share links, in virtual time; [`ClusterLinks`]: the links of a
//!   cluster.
//! - [`LinkModel`]: the time of a [`CollectiveKind`] by group size and bytes.
//! - [`Error`]: the causes of failure, with the rank and the [`Call`] concerned.

// The suite in `tests/suite` also runs inside this crate, on an emulated NCCL.
#[cfg(all(test, feature = "nccl"))]
extern crate self as collectives;

mod bucketing;
mod call;
mod communicator;
mod element;
mod error;
mod flows;
mod host_arena;
mod host_buffer;
mod layout;
mod lengths;
mod link_model;
mod membership;
mod moves;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
mod rank_moves;
mod redistribution;
mod region;
mod request;
mod thread;
mod wait;

#[cfg(feature = "mpi")]
pub use crate::mpi::{
    MpiBarrierRequest, MpiCommunicator, MpiExchangeRequest, MpiRedistributionRequest, MpiRequest, MpiWorld,
};
pub use bucketing::{Bucket, Bucketing};
pub use call::{Call, Operation};
pub use communicator::{Communicator, Group};
pub use element::{Element, ElementType, ReduceOp};
pub use error::{Departure, Error, Result};
pub use flows::{ClusterLink, ClusterLinks, Direction, Flow, FlowId, FlowNetwork};
pub use half::{bf16, f16};
pub use host_arena::HostArena;
pub use host_buffer::HostBuffer;
pub use layout::Layout;
pub use link_model::{Algorithm, CollectiveKind, Fit, LinkModel, Measurement, Traffic};
#[cfg(feature = "nccl")]
pub use nccl::{
    NcclBarrierRequest, NcclCommunicator, NcclExchangeRequest, NcclRedistributionRequest, NcclRequest,
    NcclWorld,
};
pub use redistribution::{Move, Redistribution};
pub use region::{BoxCopy, Region};
pub use request::{Exchanged, RedistributionBuffers, Request};
pub use thread::{
    ThreadBarrierRequest, ThreadCommunicator, ThreadExchangeRequest, ThreadRedistributionRequest,
    ThreadRequest, ThreadWorld,
};
pub use wait::WaitStrategy;
