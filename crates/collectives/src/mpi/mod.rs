//! Ranks that are processes, by Open MPI.
//!
//! Layers, each of which knows only those before it:
//!
//! 1. The foreign functions: [`library`], which starts and ends MPI and creates communicators, and [`abort`], which ends
//!    the job.
//! 2. Data: the [`buffers`] of an operation, the [`work`] that MPI is to do on them, a [`transfer`] that does it; the
//!    messages between ranks, which are a [`header`] before every operation, data that is sent [`along`] with it where there is
//!    little, a [`notice`] when one takes too long and a [`group_plan`] for a new group; and what a rank knows of a [`group`] and of an [`operation`].
//! 3. The [`engine`]: all that a process has pending, on which every poll works.
//! 4. What uses it behind a lock, [`shared`]: [`request`]s, [`group_creation`], the [`communicator`] and the [`world`].

mod abort;
mod along;
mod backoff;
mod buffers;
mod communicator;
mod engine;
mod group;
mod group_creation;
mod group_plan;
mod header;
mod library;
mod notice;
mod operation;
mod request;
mod shared;
mod spare;
mod tags;
mod transfer;
mod work;
mod world;

pub use communicator::MpiCommunicator;
pub use request::{MpiBarrierRequest, MpiExchangeRequest, MpiRequest};
pub use world::MpiWorld;
