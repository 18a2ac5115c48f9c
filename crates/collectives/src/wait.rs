//! How a rank waits for the others.

use std::thread;

/// What a rank does while it waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitStrategy {
    /// Polls without pause: the fastest where every rank has a core to itself. Where ranks outnumber the cores, it gives
    /// its core away between polls, as Open MPI does: the rank that it waits for may need it.
    Spin,
    /// Polls and gives its core away in between: fast on cores that others use too, but always takes what is left of
    /// them.
    Yield,
    /// Like [`Yield`](WaitStrategy::Yield) for some hundred polls, then sleeps until something happens. The default:
    /// nearly as fast when the others are near, and a long wait leaves the core to background work.
    #[default]
    Park,
}

impl WaitStrategy {
    /// The strategy as a host with so many ranks can afford it.
    pub(crate) fn among(self, ranks: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        match self {
            Self::Spin if ranks > cores => Self::Yield,
            other => other,
        }
    }
}
