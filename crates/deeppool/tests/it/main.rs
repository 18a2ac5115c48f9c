//! The library and its command, as their users meet them.

mod buckets;
mod checkpoint;
mod compare;
mod data;
mod gpu_counts;
mod launch_order;
mod memory;
mod micro_batches;
mod plan_file;
mod program_export;
mod shared_parameters;

#[cfg(feature = "cli")]
mod background_jobs;
#[cfg(feature = "cli")]
mod cli;
#[cfg(all(feature = "cli", feature = "mpi"))]
mod cluster;
#[cfg(feature = "cli")]
mod command;
#[cfg(all(feature = "cli", any(feature = "mpi", feature = "cuda")))]
mod comparison;
#[cfg(feature = "cuda")]
mod emulated;
#[cfg(feature = "cli")]
mod epochs;
#[cfg(all(feature = "cli", feature = "mpi"))]
mod faults;
#[cfg(feature = "cli")]
mod files;
#[cfg(feature = "cuda")]
mod gpu_faults;
#[cfg(feature = "cuda")]
mod gpu_networks;
#[cfg(feature = "cuda")]
mod gpu_order;
#[cfg(feature = "cuda")]
mod gpu_sharing;
#[cfg(all(feature = "cli", feature = "cuda"))]
mod gpus;
mod gradients;
#[cfg(all(feature = "cli", feature = "mpi"))]
mod hosts;
#[cfg(feature = "cli")]
mod job_script;
#[cfg(feature = "cli")]
mod memory_limit;
#[cfg(all(feature = "cli", feature = "mpi"))]
mod mpi;
#[cfg(feature = "cli")]
mod opaque;
#[cfg(feature = "cli")]
mod pages;
#[cfg(feature = "cli")]
mod partial;
#[cfg(feature = "cli")]
mod perfetto;
#[cfg(feature = "cli")]
mod profile;
mod recompute;
#[cfg(all(feature = "cli", feature = "mpi"))]
mod setup;
#[cfg(feature = "cuda")]
mod shared_streams;
#[cfg(feature = "cuda")]
mod shrunk;
#[cfg(feature = "cli")]
mod simulate;
#[cfg(all(feature = "cli", feature = "mpi"))]
mod slurm;
#[cfg(feature = "cli")]
mod to_accuracy;
#[cfg(feature = "cli")]
mod train_runs;
#[cfg(feature = "cli")]
mod training_page;
#[cfg(feature = "cli")]
mod training_problem;
#[cfg(feature = "cuda")]
mod virtual_time;
#[cfg(feature = "cli")]
mod weights;
