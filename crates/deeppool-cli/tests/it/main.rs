//! Tests that run the `deeppool` command.

mod background_jobs;
mod book;
mod checkpoint_folders;
mod cli;
mod command;
mod epochs;
mod files;
mod job_script;
mod kineto;
mod launchers;
mod left_out;
mod memory_limit;
mod opaque;
mod pages;
mod partial;
mod perfetto;
mod precision;
mod problem;
mod profile;
mod prove;
mod readme;
mod several_losses;
mod simulate;
mod small_networks;
mod splits;
mod to_accuracy;
mod train_runs;
mod training_page;
mod unreadable;
mod weights;

mod comparison;

#[cfg(feature = "cuda")]
mod gpus;
mod hf;

#[cfg(feature = "mpi")]
mod cluster;
mod cluster_jobs;
#[cfg(feature = "mpi")]
mod faults;
#[cfg(feature = "mpi")]
mod hosts;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "mpi")]
mod setup;
#[cfg(feature = "mpi")]
mod slurm;
