//! Policies, iterations and GPU options of a measurement.

use clap::Args;
use gpu_mux::Policy;

/// Options of the GPU that no policy contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only GPUs have these options"))]
pub(crate) struct GpuOptions {
    /// On a GPU, the foreground's stream holds back enqueued background work (stream memory
    /// operations)
    #[arg(long)]
    pub(crate) gate: bool,
    /// On a GPU, the background runs on at most about N multiprocessors (a green context)
    #[arg(long, value_name = "N")]
    pub(crate) background_multiprocessors: Option<u32>,
}

/// Policies and number of iterations that a device measures.
pub(crate) struct BenchTask<'a> {
    /// Policies to measure, with their names.
    pub(crate) policies: &'a [(String, Policy)],
    /// Number of foreground iterations for each policy.
    pub(crate) iterations: usize,
}
