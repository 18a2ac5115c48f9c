//! Ranks that are processes, started anew by `mpirun` for each turn: none is left that could take a core's time while
//! others are measured.

mod job;
mod launch;
mod open_mpi;
mod rank;

pub(crate) use launch::Mpirun;
pub(crate) use rank::RankArgs;
