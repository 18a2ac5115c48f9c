//! The operations that have a cost.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// An operation between the ranks of a group, as costs and measurements name it.
///
/// Its `bytes` are counted as nccl-tests counts them: the larger of the send and the receive buffer of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum CollectiveKind {
    /// `bytes` are each rank's buffer.
    AllReduce,
    /// `bytes` are each rank's send buffer; it receives one part in `ranks` of them.
    ReduceScatter,
    /// `bytes` are each rank's receive buffer; it sends one part in `ranks` of them.
    AllGather,
    /// `bytes` are each rank's buffer.
    Broadcast,
    /// `bytes` are each rank's send buffer, of which each rank gets an equal part (its own rank as well).
    AllToAll,
    /// A message of `bytes` from one rank to another.
    Send,
    /// No bytes.
    Barrier,
}

impl CollectiveKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::AllToAll,
        Self::Send,
        Self::Barrier,
    ];

    /// Its name, such as `all-reduce`.
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

    /// What part of `bytes` each link has to carry at least, whatever the algorithm; `None` where there are none.
    ///
    /// This times `bytes` by the time taken is nccl-tests' *bus bandwidth*, which is compared with a link's bandwidth:
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
