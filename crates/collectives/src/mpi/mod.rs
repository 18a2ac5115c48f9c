//! The backend whose ranks are processes of Open MPI.
//!
//! It has four layers. Each depends on those before it only:
//!
//! 1. The foreign functions: [`library`] starts and ends MPI and creates communicators, [`abort`]
//!    ends the job.
//! 2. Data: the [`buffers`] of an operation, the [`prepared_call`] for MPI on them, and the
//!    [`transfer`] that executes it. The messages between ranks: a [`header`] before every
//!    operation, small data sent with it ([`eager_all_reduce`]), a [`notice`] if an operation takes
//!    too long, and a [`group_description`] for a new group. A rank's state of a [`group`] and of
//!    an [`operation`].
//! 3. All [`pending_operations`] of a process, on which every poll makes progress.
//! 4. Users of the pending operations behind a lock ([`shared_operations`]): [`request`]s,
//!    [`redistribution`]s, [`group_creation`], the [`communicator`] and the [`mpi_world`].

mod abort;
mod backoff;
mod buffers;
mod communicator;
mod eager_all_reduce;
mod group;
mod group_creation;
mod group_description;
mod header;
mod library;
mod message_pool;
mod mpi_world;
mod notice;
mod operation;
mod pending_operations;
mod prepared_call;
mod redistribution;
mod request;
mod shared_operations;
mod tags;
mod transfer;

pub use communicator::MpiCommunicator;
pub use mpi_world::MpiWorld;
pub use redistribution::MpiRedistributionRequest;
pub use request::{MpiBarrierRequest, MpiExchangeRequest, MpiRequest};
