//! The backend whose ranks are processes of Open MPI.
//!
//! It has four layers. Each depends on those before it only:
//!
//! 1. The foreign functions: [`library`] starts and ends MPI and creates communicators, [`abort`]
//!    ends the job.
//! 2. Data: the [`buffers`] of an operation, the [`prepared_call`] for MPI on them, and the
//!    [`transfer`] that executes it. The messages between ranks: a [`header`] before every
//!    operation, small data sent with it ([`eager_all_reduce`]), a [`notice`] if an operation takes
//!    too long, and a [`group_plan`] for a new group. A rank's state of a [`group`] and of an
//!    [`operation`].
//! 3. The [`engine`]: all pending operations of a process, on which every poll makes progress.
//! 4. Users of the engine behind a lock ([`shared_engine`]): [`request`]s, [`group_creation`], the
//!    [`communicator`] and the [`mpi_world`].

mod abort;
mod backoff;
mod buffers;
mod communicator;
mod eager_all_reduce;
mod engine;
mod group;
mod group_creation;
mod group_plan;
mod header;
mod library;
mod message_pool;
mod mpi_world;
mod notice;
mod operation;
mod prepared_call;
mod request;
mod shared_engine;
mod tags;
mod transfer;

pub use communicator::MpiCommunicator;
pub use mpi_world::MpiWorld;
pub use request::{MpiBarrierRequest, MpiExchangeRequest, MpiRequest};
