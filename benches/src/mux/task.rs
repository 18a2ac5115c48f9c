use clap::Args;
use gpu_mux::Policy;

/// What a card does besides what the policies ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "there is no card that could do it"))]
pub(crate) struct CardOptions {
    /// On a card, the foreground's own stream holds back background that is in flight (stream memory operations)
    #[arg(long)]
    pub(crate) gate: bool,
    /// On a card, the background runs on at most about so many multiprocessors (a green context)
    #[arg(long, value_name = "N")]
    pub(crate) background_multiprocessors: Option<u32>,
}

/// What every device is asked to measure.
pub(crate) struct Task<'a> {
    /// By name.
    pub(crate) policies: &'a [(String, Policy)],
    pub(crate) iterations: usize,
}
