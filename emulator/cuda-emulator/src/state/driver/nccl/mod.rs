//! Calls of NCCL. The ranks of a communicator are in this process, on one or several threads. The
//! operations that a rank enqueues together form a batch.

mod comms;
mod deadlock;
mod order;
mod run;

pub(crate) use comms::RankParameters;
