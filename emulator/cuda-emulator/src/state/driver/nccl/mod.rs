//! Operations of NCCL.

mod comms;
mod deadlock;
mod order;
mod run;

pub(crate) use comms::InitRank;
