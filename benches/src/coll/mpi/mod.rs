//! Ranks that are processes. `mpirun` starts them for each launch, so that none uses CPU time while
//! others are measured.

mod job;
mod launch;
mod open_mpi;
mod rank;
mod subarrays;

pub(crate) use launch::Mpirun;
pub(crate) use rank::RankArgs;
