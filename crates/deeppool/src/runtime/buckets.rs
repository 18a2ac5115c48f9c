//! Memory of the buffers that a collective transfers as one.
#![allow(unsafe_code)]

use layer_engine::Engine;

use super::{Arena, Backend, RankDevice};
use crate::Error;
use crate::program::{BUCKET_ALIGNMENT, BufferId, RankProgram};

/// Memory of a [bucket](crate::program::Step::writes).
pub(super) struct Bucket<B: Backend> {
    /// The memory from the start of the first buffer to the end of the last one.
    pub(super) whole: B::Buffer,
    /// The elements between buffers, and the number of them.
    pub(super) gaps: Vec<(B::Buffer, usize)>,
}

impl<B: Backend> Bucket<B> {
    /// Returns the memory of the given buffers of a program. They lie one after another in the
    /// arena.
    ///
    /// # Errors
    /// If the arena is shorter.
    pub(super) fn new(arena: &B::Arena, program: &RankProgram, buffers: &[BufferId]) -> Result<Self, Error> {
        let places = buffers.iter().map(|id| {
            let buffer = &program.buffers[id.0];
            let start = buffer.offset.unwrap_or_default();
            start..start + buffer.scalars()
        });
        let places: Vec<_> = places.collect();
        // SAFETY: the dependencies of a step order it with all other uses of its buffers, and the
        // elements between them belong to no buffer that is in use at the same time.
        let part = |start: usize, end: usize| unsafe { arena.part(start, end - start) };
        let mut gaps = Vec::new();
        for pair in places.windows(2) {
            let (start, end) = (pair[0].end, pair[1].start);
            if end > start {
                gaps.push((part(start, end)?, end - start));
            }
        }
        let whole = match (places.first(), places.last()) {
            (Some(first), Some(last)) => part(first.start, last.end)?,
            _ => B::Buffer::default(),
        };
        Ok(Self { whole, gaps })
    }

    /// Sets the elements between buffers to zero, and takes the whole out of this value.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub(super) fn take(&mut self, device: &mut RankDevice<B>) -> Result<B::Buffer, Error> {
        for (gap, elements) in &mut self.gaps {
            device.engine.upload(&[0.0; BUCKET_ALIGNMENT][..*elements], gap, &mut device.queue)?;
        }
        Ok(std::mem::take(&mut self.whole))
    }
}
