//! Operations that are measured and reported.

use std::fmt;
use std::str::FromStr;

use collectives::{CollectiveKind, Error};
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Name of [`CollOperation::Redistribution`].
const REDISTRIBUTION: &str = "redistribution";

/// Operation of a row of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CollOperation {
    /// A collective.
    Collective(CollectiveKind),
    /// A redistribution of a matrix whose rows are divided evenly among the ranks, to the same
    /// matrix divided by columns. It has [`columns`](CollOperation::columns) columns. The size is
    /// that of the part of one rank.
    Redistribution,
}

impl CollOperation {
    /// Returns the number of columns of the matrix of a redistribution among `ranks` ranks: about
    /// 1024 and a multiple of `ranks`.
    #[must_use]
    pub fn columns(ranks: usize) -> usize {
        let ranks = ranks.max(1);
        (1024 / ranks).max(1) * ranks
    }

    /// Minimum fraction of the size that each link carries, as
    /// [`CollectiveKind::bus_factor`]. That of a redistribution is that of an all-to-all.
    #[must_use]
    pub fn bus_factor(self, ranks: usize) -> Option<f64> {
        match self {
            Self::Collective(collective) => collective.bus_factor(ranks),
            Self::Redistribution => CollectiveKind::AllToAll.bus_factor(ranks),
        }
    }
}

impl fmt::Display for CollOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective(collective) => collective.fmt(f),
            Self::Redistribution => f.write_str(REDISTRIBUTION),
        }
    }
}

impl FromStr for CollOperation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if name == REDISTRIBUTION {
            return Ok(Self::Redistribution);
        }
        name.parse().map(Self::Collective).map_err(|error| match error {
            Error::UnknownCollective { name, mut known } => {
                known.push(REDISTRIBUTION.to_owned());
                Error::UnknownCollective { name, known }
            }
            other => other,
        })
    }
}

impl Serialize for CollOperation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CollOperation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name == REDISTRIBUTION {
            return Ok(Self::Redistribution);
        }
        CollectiveKind::deserialize(name.into_deserializer()).map(Self::Collective)
    }
}
