//! Kinds of operations that the cost model distinguishes.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// Operation among the ranks of a group, as named in costs and measurements.
///
/// Its `bytes` are counted as in nccl-tests: the larger of the send and the receive buffer of one
/// rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum CollectiveKind {
    /// Element-wise reduction. `bytes` is the size of each rank's buffer.
    AllReduce,
    /// Element-wise reduction of which each rank receives one chunk. `bytes` is the size of each
    /// rank's send buffer.
    ReduceScatter,
    /// Concatenation of all ranks' buffers. `bytes` is the size of each rank's receive buffer.
    AllGather,
    /// Copy of one rank's buffer to all ranks. `bytes` is the size of each rank's buffer.
    Broadcast,
    /// Exchange of a chunk between every pair of ranks. `bytes` is the size of each rank's send
    /// buffer, of which each rank gets an equal part, the sender included.
    AllToAll,
    /// Message of `bytes` from one rank to another.
    Send,
    /// Synchronization without bytes.
    Barrier,
}

impl CollectiveKind {
    /// All kinds, in the order of declaration.
    pub const ALL: [Self; 7] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::AllToAll,
        Self::Send,
        Self::Barrier,
    ];

    /// Name of the operation, such as `all-reduce`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all-to-all",
            Self::Send => "send",
            Self::Barrier => "barrier",
        }
    }

    /// Minimum fraction of `bytes` that each link carries among `ranks` ranks, under any algorithm.
    /// `None` for a barrier, which has no bytes.
    ///
    /// The fraction times `bytes` divided by the measured time is the *bus bandwidth* of
    /// nccl-tests, which is compared with a link's bandwidth:
    /// <https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md>.
    #[must_use]
    pub fn bus_factor(self, ranks: usize) -> Option<f64> {
        let others = ranks.saturating_sub(1) as f64 / ranks.max(1) as f64;
        match self {
            Self::AllReduce => Some(2.0 * others),
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => Some(others),
            Self::Broadcast | Self::Send => Some(1.0),
            Self::Barrier => None,
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CollectiveKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|collective| collective.name() == name);
        found.ok_or_else(|| Error::UnknownCollective {
            name: name.to_owned(),
            known: Self::ALL.map(|collective| collective.name().to_owned()).to_vec(),
        })
    }
}
