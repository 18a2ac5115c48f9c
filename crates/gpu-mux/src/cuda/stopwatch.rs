//! How long work takes on the device.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::{Event, Executable, Result, Stream};

/// Two marks around work in a stream.
#[derive(Debug)]
pub struct Stopwatch<'a> {
    stream: &'a Stream,
    start: Event,
    end: Event,
}

impl<'a> Stopwatch<'a> {
    /// A stopwatch for what is put into this stream.
    pub fn new(stream: &'a Stream) -> Result<Self> {
        Ok(Self { stream, start: Event::timed(stream)?, end: Event::timed(stream)? })
    }

    /// The device's time for what `enqueue` puts into the stream: the median of `runs` runs, after one that is not
    /// counted. It waits for them.
    ///
    /// # Errors
    /// What `enqueue` returns; what CUDA says.
    pub fn median(
        &self,
        runs: NonZeroUsize,
        mut enqueue: impl FnMut(&Stream) -> Result<()>,
    ) -> Result<Duration> {
        enqueue(self.stream)?;
        let mut times = (0..runs.get()).map(|_| self.once(&mut enqueue)).collect::<Result<Vec<_>>>()?;
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    fn once(&self, enqueue: &mut impl FnMut(&Stream) -> Result<()>) -> Result<Duration> {
        self.stream.record(&self.start)?;
        enqueue(self.stream)?;
        self.stream.record(&self.end)?;
        self.stream.synchronize()?;
        self.end.since(&self.start)
    }
}

impl Executable {
    /// The device's time for one launch: the median of `runs`, after one that is not counted. It waits for them.
    pub fn median(&self, stream: &Stream, runs: NonZeroUsize) -> Result<Duration> {
        Stopwatch::new(stream)?.median(runs, |stream| self.launch(stream))
    }
}
