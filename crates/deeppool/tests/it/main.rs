//! Tests of the library's public interface.

mod background_jobs;
mod buckets;
mod checkpoint;
mod compare;
mod data;
mod documents;
mod gang_windows;
mod gpu_counts;
mod gradients;
mod launch_order;
mod machine;
mod memory;
mod memory_model;
mod micro_batches;
mod plan_file;
mod planning_work;
mod program_export;
mod random_splits;
mod recompute;
mod several_inputs;
mod several_losses;
mod shared_cluster;
mod shared_parameters;
mod sharing;
mod shrunk;
mod split_brute_force;
mod split_gradients;
mod split_memory;
mod splits;

#[cfg(feature = "cuda")]
mod emulated;
#[cfg(feature = "cuda")]
mod gpu_faults;
#[cfg(feature = "cuda")]
mod gpu_image_order;
#[cfg(feature = "cuda")]
mod gpu_losses;
#[cfg(feature = "cuda")]
mod gpu_networks;
#[cfg(feature = "cuda")]
mod gpu_order;
#[cfg(feature = "cuda")]
mod gpu_ownership;
#[cfg(feature = "cuda")]
mod gpu_sharing;
#[cfg(feature = "cuda")]
mod gpu_splits;
#[cfg(feature = "cuda")]
mod shared_streams;
#[cfg(feature = "cuda")]
mod virtual_time;
mod within_memory;
