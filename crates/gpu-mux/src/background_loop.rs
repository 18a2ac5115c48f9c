use std::time::Duration;

use crate::{Error, pieces};

/// The background job of a [`VirtualDriver`](crate::VirtualDriver): the lengths of its tasklets, over and over.
///
/// One lap is usually one training iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundLoop {
    pieces: Vec<Duration>,
}

impl BackgroundLoop {
    /// A loop of tasklets of these lengths. [`Error::EmptyLoop`] when none takes any time.
    pub fn new(pieces: impl IntoIterator<Item = Duration>) -> Result<Self, Error> {
        let pieces: Vec<Duration> = pieces.into_iter().collect();
        if pieces.iter().all(Duration::is_zero) {
            return Err(Error::EmptyLoop);
        }
        Ok(Self { pieces })
    }

    /// A loop of tasklets that are cut to `bound`, if there is one: usually
    /// [`Policy::background_piece`](crate::Policy::background_piece), as [`pieces`](crate::pieces()) does it. A
    /// tasklet is given by its length and its samples; one sample means that it cannot be cut.
    ///
    /// [`Error::EmptyLoop`] when none takes any time.
    pub fn cut(
        tasklets: impl IntoIterator<Item = (Duration, usize)>,
        bound: Option<Duration>,
    ) -> Result<Self, Error> {
        Self::new(tasklets.into_iter().flat_map(|(takes, samples)| {
            pieces(takes, samples, bound.unwrap_or(Duration::MAX)).map(|piece| piece.takes)
        }))
    }

    /// The tasklets of one lap, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Duration] {
        &self.pieces
    }

    /// How long one lap takes on a device of its own.
    #[must_use]
    pub fn lap(&self) -> Duration {
        self.pieces.iter().fold(Duration::ZERO, |lap, &piece| lap.saturating_add(piece))
    }

    /// The length of the `number`-th tasklet, counted over all laps.
    pub(crate) fn piece(&self, number: u64) -> Duration {
        // Never empty, and the remainder is an index.
        self.pieces[(number % self.pieces.len() as u64) as usize]
    }
}
