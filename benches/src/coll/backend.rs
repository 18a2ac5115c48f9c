//! Backends and implementations that are measured.
//!
//! A *backend* is a library whose collectives are measured; an *implementation* is a backend with
//! the way in which its ranks wait for each other.

use std::fmt;

use clap::ValueEnum;
use collectives::WaitStrategy;

/// Backend that the user selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Ranks that are threads of this process
    Threads,
    /// Ranks of `collectives` that are processes (feature `mpi`)
    Mpi,
    /// For comparison: Open MPI's own blocking operations (feature `mpi`)
    OpenMpi,
}

/// Way in which ranks wait for each other: polling without a pause (spin), yielding the core
/// between polls (yield), or sleeping after some hundred polls (park).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    Spin,
    Yield,
    Park,
}

impl Wait {
    /// Returns the wait strategy of `collectives` of the same name.
    pub(crate) fn strategy(self) -> WaitStrategy {
        match self {
            Self::Spin => WaitStrategy::Spin,
            Self::Yield => WaitStrategy::Yield,
            Self::Park => WaitStrategy::Park,
        }
    }

    /// Returns the name in options and reports, such as `spin`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Park => "park",
        }
    }
}

/// An implementation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Implementation {
    /// Threads that copy memory and never wait for each other, as a reference for the all-reduce
    /// and the redistribution.
    Copy,
    /// The same in the pieces of a redistribution, as a reference for it.
    StridedCopy,
    /// Ranks of the crate `collectives` that are threads of this process.
    Threads(Wait),
    /// Ranks of the crate `collectives` that are MPI processes.
    Mpi(Wait),
    /// Open MPI's own blocking operations. The library chooses how to wait.
    OpenMpi,
}

impl Implementation {
    /// Returns the name of the backend in reports, such as `open-mpi`.
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Copy => "memory copy",
            Self::StridedCopy => "strided copy",
            Self::Threads(_) => "threads",
            Self::Mpi(_) => "mpi",
            Self::OpenMpi => "open-mpi",
        }
    }

    /// Returns the way in which ranks wait. `None` if they never wait or if the library chooses.
    pub(crate) fn wait(self) -> Option<Wait> {
        match self {
            Self::Copy | Self::StridedCopy | Self::OpenMpi => None,
            Self::Threads(wait) | Self::Mpi(wait) => Some(wait),
        }
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend())?;
        self.wait().map_or(Ok(()), |wait| write!(f, ", {}", wait.name()))
    }
}
