//! Backends and implementations that are measured.

use std::fmt;

use clap::ValueEnum;
use collectives::WaitStrategy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Ranks that are threads of this process
    /// Ranks that are threads of this process
    Threads,
    /// Ranks of `collectives` that are processes (feature `mpi`)
    Mpi,
    /// For comparison: Open MPI's own blocking operations (feature `mpi`)
    OpenMpi,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    Spin,
    Yield,
    Park,
}

impl Wait {
    pub(crate) fn strategy(self) -> WaitStrategy {
        match self {
            Self::Spin => WaitStrategy::Spin,
            Self::Yield => WaitStrategy::Yield,
            Self::Park => WaitStrategy::Park,
        }
    }

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
    /// Threads that copy memory and never wait for each other.
    Copy,
    Threads(Wait),
    Mpi(Wait),
    /// Open MPI, which chooses how to wait.
    OpenMpi,
}

impl Implementation {
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Copy => "memory copy",
            Self::Threads(_) => "threads",
            Self::Mpi(_) => "mpi",
            Self::OpenMpi => "open-mpi",
        }
    }

    pub(crate) fn wait(self) -> Option<Wait> {
        match self {
            Self::Copy | Self::OpenMpi => None,
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
