//! Strategies for waiting on other ranks.

use std::thread;

/// Behaviour of a rank while it waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitStrategy {
    /// Polls without a pause. Fastest if every rank has a core to itself. If there are more ranks
    /// than cores, the rank yields its core between polls, as in Open MPI, because the awaited rank
    /// may need it.
    Spin,
    /// Polls and yields its core between polls. Fast on shared cores, but it uses all CPU time that
    /// other threads leave.
    Yield,
    /// Behaves like [`Yield`](WaitStrategy::Yield) for some hundred polls, then sleeps until an
    /// event. The default: nearly as fast as `Yield` for short waits, and a long wait leaves the
    /// core to background work.
    #[default]
    Park,
}

impl WaitStrategy {
    /// Returns the strategy for a host on which `ranks` ranks run: `Spin` becomes `Yield` if there
    /// are more ranks than cores available to this process.
    pub(crate) fn for_ranks(self, ranks: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        match self {
            Self::Spin if ranks > cores => Self::Yield,
            other => other,
        }
    }
}
