//! Times of candidates on the device.

use std::time::Duration;

use cuda::{Buffer, Priority, Stopwatch, Stream};

use super::device::Device;
use super::kernel::CudaKernel;
use super::operand::Operand;
use super::{CudaQueue, allocation_failed, failed};
use crate::EngineError;

/// Number of launches in a graph that is timed, so that the host is faster than the device.
const LAUNCHES: usize = 5;

/// Number of times that a graph is timed. The least time counts.
const RUNS: usize = 3;

/// Operands of a kernel for the time of its preparation. Those that are read hold numbers between
/// -1 and 1: zeros would need less power, and so less time, than training.
pub(super) struct Operands {
    reads: Vec<Buffer<f32>>,
    writes: Vec<Buffer<f32>>,
}

impl Operands {
    /// Allocates these operands.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`], [`EngineError::Cuda`].
    pub(super) fn new(device: &Device, reads: &[Operand], writes: &[Operand]) -> Result<Self, EngineError> {
        let read = |&operand: &Operand| {
            let Operand { elements, storage } = operand;
            let mut state = 1_u32;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            let numbers: Vec<f32> = (0..elements).map(|_| next()).collect();
            let scalars = storage.pack(&numbers);
            Buffer::from_slice(&device.context, &scalars).map_err(allocation_failed(scalars.len()))
        };
        let written = |operand: &Operand| {
            let scalars = operand.scalars();
            Buffer::zeros(&device.context, scalars).map_err(allocation_failed(scalars))
        };
        Ok(Self {
            reads: reads.iter().map(read).collect::<Result<_, _>>()?,
            writes: writes.iter().map(written).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the time of one launch of a kernel on the device.
    ///
    /// # Errors
    /// The error of a launch; [`EngineError::Cuda`].
    pub(super) fn time(&self, device: &Device, kernel: &CudaKernel) -> Result<Duration, EngineError> {
        let stream = Stream::new(&device.context, Priority::Foreground).map_err(failed("create a stream"))?;
        let mut queue = CudaQueue::new(device, &stream)?;
        let mut launches = |queue: &mut CudaQueue| {
            (0..LAUNCHES).try_for_each(|_| queue.launch(kernel, &self.reads, &self.writes))
        };
        let mut least = Duration::MAX;
        replays(&mut queue, &mut launches, &mut |replay| {
            for _ in 0..RUNS {
                least = least.min(replay(1)?);
            }
            Ok(())
        })?;
        Ok(least / LAUNCHES as u32)
    }
}

/// Times runs of `body` as [`Engine::time`](crate::Engine::time) of this engine does: by device
/// events around replays of a graph.
///
/// # Errors
/// Errors of both functions; [`EngineError::Cuda`].
pub(super) fn replays(
    queue: &mut CudaQueue,
    body: &mut dyn FnMut(&mut CudaQueue) -> Result<(), EngineError>,
    measure: &mut dyn FnMut(&mut crate::Stopwatch<'_>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    body(queue)?;
    queue.synchronize()?;
    let stream = queue.stream().clone();
    let mut enqueued = Ok(());
    let captured = stream.capture::<cuda::Error>(|_| {
        enqueued = body(queue);
        Ok(())
    });
    enqueued?;
    let graph = captured.and_then(|graph| graph.instantiate()).map_err(failed("capture a graph"))?;
    let stopwatch = Stopwatch::new(&stream).map_err(failed("create an event"))?;
    let replay = |rounds| {
        let time = stopwatch.time(|stream| (0..rounds).try_for_each(|_| graph.launch(stream)));
        time.map_err(|error| queue.error("replay a graph", error))
    };
    // The first launch of a graph also uploads it to the device.
    replay(1)?;
    measure(&mut |rounds| replay(rounds))
}
