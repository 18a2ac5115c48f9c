//! A transfer over links.

use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Result};

/// A transfer over one or more links of a [`FlowNetwork`](crate::FlowNetwork).
///
/// A flow consists of connections that all have the same rate, such as the rings of an all-reduce.
/// Its volume is the number of bytes of one connection, and its rate is that of one connection.
/// Alone, it takes a given duration. Its maximum rate is the volume divided by this duration. Cheap
/// to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    owner: usize,
    alone: Duration,
    /// Maximum rate of a connection in bytes per second; 0 if the flow has no bytes or no duration.
    max_rate: f64,
    uses: Arc<[LinkUse]>,
}

/// Use of one link by a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LinkUse {
    /// Index of the link.
    pub(super) link: usize,
    /// Number of bytes over the link for each byte of a connection.
    pub(super) factor: f64,
}

/// Identifier of a flow in a [`FlowNetwork`](crate::FlowNetwork). Flows are numbered in the order
/// of their starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub(super) u64);

impl Flow {
    /// Creates a flow of owner 0 that takes the duration `alone` if no other owner's flow slows it
    /// down.
    ///
    /// `connection_bytes` is the volume of one connection. `link_bytes` are the bytes that the
    /// flow sends over each link, by index of the link; links that are listed several times add up.
    /// Without bytes or without a duration, the flow uses no links.
    ///
    /// # Errors
    /// [`Error::BadFlow`] for a number of bytes that is negative or not finite.
    pub fn new(alone: Duration, connection_bytes: f64, link_bytes: &[(usize, f64)]) -> Result<Self> {
        let mut of_links = link_bytes.to_vec();
        of_links.sort_unstable_by_key(|&(link, _)| link);
        for bytes in of_links.iter().map(|&(_, bytes)| bytes).chain([connection_bytes]) {
            if !(bytes.is_finite() && bytes >= 0.0) {
                return Err(Error::BadFlow { reason: format!("{bytes} bytes of a flow") });
            }
        }
        if alone.is_zero() || connection_bytes == 0.0 {
            return Ok(Self { owner: 0, alone, max_rate: 0.0, uses: Arc::new([]) });
        }
        let uses = of_links.chunk_by(|a, b| a.0 == b.0).map(|of_link| {
            let bytes: f64 = of_link.iter().map(|&(_, bytes)| bytes).sum();
            LinkUse { link: of_link[0].0, factor: bytes / connection_bytes }
        });
        let uses = uses.filter(|of_link| of_link.factor > 0.0).collect();
        Ok(Self { owner: 0, alone, max_rate: connection_bytes / alone.as_secs_f64(), uses })
    }

    /// Sets the owner. Flows of one owner do not slow each other down: their durations alone are
    /// assumed to include it.
    #[must_use]
    pub fn with_owner(self, owner: usize) -> Self {
        Self { owner, ..self }
    }

    /// Number of the owner.
    #[must_use]
    pub fn owner(&self) -> usize {
        self.owner
    }

    /// Duration at the maximum rate.
    #[must_use]
    pub fn alone(&self) -> Duration {
        self.alone
    }

    /// Maximum rate of a connection in bytes per second; 0 for a flow that uses no links.
    #[must_use]
    pub fn max_rate(&self) -> f64 {
        self.max_rate
    }

    /// Returns the links that the flow uses, ascending, each with the number of bytes over the
    /// link for each byte of a connection.
    #[must_use]
    pub fn uses(&self) -> impl ExactSizeIterator<Item = (usize, f64)> {
        self.uses.iter().map(|of_link| (of_link.link, of_link.factor))
    }
}
