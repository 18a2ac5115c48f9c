//! Timing of work on the device by executing it. *CUDA errors* are failed calls of the CUDA driver.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::{Buffer, Event, Result, Stream};

/// Number of timing executions, and the treatment of the memory that they write.
///
/// Timing executes the work. A graph with an optimizer step changes the weights each time, one with
/// a dropout layer advances its random state, and one with a send waits for a receiver. The caller
/// therefore declares that the work has no side effects, or names the memory to restore.
#[derive(Debug, Clone, Copy)]
pub struct TimingRuns<'a> {
    runs: NonZeroUsize,
    restored: &'a [&'a Buffer<f32>],
}

impl TimingRuns<'static> {
    /// Declares work without side effects, which is timed `runs` times: it may be executed any
    /// number of times, as a whole and in part, because no execution reads what an earlier one has
    /// written. The forward pass of an inference request is such work; a training iteration, a
    /// random number generator and a send or receive are not.
    #[must_use]
    pub const fn without_side_effects(runs: NonZeroUsize) -> Self {
        Self { runs, restored: &[] }
    }
}

impl<'a> TimingRuns<'a> {
    /// Declares work whose only side effects are changes of `buffers`, such as weights and
    /// optimizer states, and which is timed `runs` times. The buffers are copied to the host before
    /// the work is executed and restored afterwards, also after an error. Nothing else may use them
    /// meanwhile.
    #[must_use]
    pub const fn restoring(runs: NonZeroUsize, buffers: &'a [&'a Buffer<f32>]) -> Self {
        Self { runs, restored: buffers }
    }

    /// Returns the number of timed executions. One more precedes them as a warm-up.
    #[must_use]
    pub fn runs(&self) -> NonZeroUsize {
        self.runs
    }

    /// Copies the buffers to the host, calls `time` once and then restores the buffers, also if it
    /// fails. Waits for the copies. Returns the result of `time`.
    pub fn with_restored_buffers<T>(&self, stream: &Stream, time: impl FnOnce() -> Result<T>) -> Result<T> {
        let copies = self.restored.iter().map(|buffer| Ok((*buffer, buffer.to_vec(stream)?)));
        let copies = copies.collect::<Result<Vec<_>>>()?;
        let timed = time();
        let restored = copies.iter().map(|(buffer, elements)| buffer.upload(stream, elements));
        let restored = restored.fold(Ok(()), Result::and);
        timed.and_then(|timed| restored.map(|()| timed))
    }
}

/// Timer for work in a stream, with one event before the work and one after it.
#[derive(Debug)]
pub struct Stopwatch<'a> {
    stream: &'a Stream,
    start: Event,
    end: Event,
}

impl<'a> Stopwatch<'a> {
    /// Creates a timer for work in `stream`.
    pub fn new(stream: &'a Stream) -> Result<Self> {
        Ok(Self { stream, start: Event::timed(stream)?, end: Event::timed(stream)? })
    }

    /// Returns the time that the work which `enqueue` puts into the stream takes on the device: the
    /// median of `runs` executions after one for warm-up. Blocks until they are complete.
    ///
    /// # Errors
    /// Errors of `enqueue`; CUDA errors.
    pub fn median(
        &self,
        runs: NonZeroUsize,
        mut enqueue: impl FnMut(&Stream) -> Result<()>,
    ) -> Result<Duration> {
        enqueue(self.stream)?;
        let mut times = (0..runs.get()).map(|_| self.time(&mut enqueue)).collect::<Result<Vec<_>>>()?;
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Returns the time on the device of the work that `enqueue` puts into the stream. Blocks until
    /// it is complete.
    ///
    /// # Errors
    /// Errors of `enqueue`; CUDA errors.
    pub fn time(&self, enqueue: impl FnOnce(&Stream) -> Result<()>) -> Result<Duration> {
        self.stream.record(&self.start)?;
        enqueue(self.stream)?;
        self.stream.record(&self.end)?;
        self.stream.synchronize()?;
        self.end.since(&self.start)
    }
}
