//! Who does the work that is measured.

use std::fmt;

use clap::ValueEnum;
use collectives::WaitStrategy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Ranks that are threads of this process
    Threads,
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

/// One side of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Threads that copy memory and never wait for each other.
    Copy,
    Threads(Wait),
}

impl Lane {
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Copy => "memory copy",
            Self::Threads(_) => "threads",
        }
    }

    pub(crate) fn wait(self) -> Option<Wait> {
        match self {
            Self::Copy => None,
            Self::Threads(wait) => Some(wait),
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend())?;
        self.wait().map_or(Ok(()), |wait| write!(f, ", {}", wait.name()))
    }
}
