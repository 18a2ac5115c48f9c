//! The CUDA and NCCL operations of a rank, with the memory that they use. Every function that
//! enqueues an operation on a stream returns without waiting for it.
//!
//! *Emulated devices* are GPUs of the emulated CUDA driver, which have a virtual time: there the
//! duration of an operation is set by a model.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use collectives::{
    Communicator, NcclCommunicator, NcclRedistributionRequest, NcclRequest, Redistribution,
    RedistributionBuffers, ReduceOp, Request,
};
use cuda::{Buffer, HostBuffer, Stream};
use layer_engine::{CudaKernel, CudaQueue, LaunchContext};

use super::clock::LaunchTimes;
use super::engine::GpuEngine;
use crate::Error;

/// A CUDA stream on which kernels and copies are enqueued. Clones share the stream.
#[derive(Debug, Clone)]
pub(super) struct KernelQueue {
    queue: Arc<Mutex<CudaQueue>>,
    times: LaunchTimes,
}

/// A prepared kernel with its operands.
#[derive(Debug)]
pub(super) struct KernelCall {
    /// The prepared kernel: one or more launches of GPU functions.
    pub(super) kernel: Arc<CudaKernel>,
    /// Operands that are read, in the order that the kernel's specification defines.
    pub(super) reads: Vec<Buffer<f32>>,
    /// Operands that are written, in the order that the kernel's specification defines.
    pub(super) writes: Vec<Buffer<f32>>,
    /// Duration of the call on emulated devices, divided evenly among its launches. Real GPUs
    /// ignore it.
    pub(super) duration: Duration,
}

impl KernelQueue {
    /// Creates a queue on a stream of the engine's device. `times` sets the durations of launches
    /// on emulated devices.
    ///
    /// # Errors
    /// [`Error::Engine`] if CUDA fails.
    pub(super) fn on(stream: &Stream, engine: &GpuEngine, times: LaunchTimes) -> Result<Self, Error> {
        Ok(Self { queue: Arc::new(Mutex::new(engine.cuda().queue_on(stream)?)), times })
    }

    /// Allocates what these kernels need of the queue, so that no launch waits for it.
    ///
    /// # Errors
    /// [`Error::Engine`] if CUDA fails or lacks memory.
    pub(super) fn prepare_for(&self, kernels: &[Arc<CudaKernel>]) -> Result<(), Error> {
        Ok(lock(&self.queue).prepare_for(kernels.iter().map(|kernel| &**kernel))?)
    }

    /// Enqueues an update of the launch context: the seed, iteration and learning rate that later
    /// kernels and graphs on this queue use.
    ///
    /// # Errors
    /// [`Error::Engine`] if CUDA fails.
    pub(super) fn begin(&self, context: &LaunchContext) -> Result<(), Error> {
        Ok(self.times.each(Duration::ZERO, || lock(&self.queue).set_context(context))?)
    }

    /// Enqueues kernels, in order, with the launch context of the last [`begin`](Self::begin).
    ///
    /// # Errors
    /// [`Error::Engine`] if a kernel needs the launch context and there was no `begin`, or if CUDA
    /// fails.
    pub(super) fn launch<'c>(&self, calls: impl IntoIterator<Item = &'c KernelCall>) -> Result<(), Error> {
        let mut queue = lock(&self.queue);
        for KernelCall { kernel, reads, writes, duration } in calls {
            let launches = u32::try_from(kernel.launches()).unwrap_or(u32::MAX).max(1);
            self.times.each(*duration / launches, || queue.launch(kernel, reads, writes))?;
        }
        Ok(())
    }

    /// Enqueues a copy of the whole host buffer `from` to the start of `to`. `from` must not be
    /// written until the copy has finished.
    ///
    /// # Errors
    /// [`Error::Gpu`] if `to` is shorter than the host buffer, or CUDA fails.
    pub(super) fn upload(&self, from: &StagingBuffer, to: &Buffer<f32>) -> Result<(), Error> {
        // SAFETY: the staging buffer is written again when this copy has finished, and stays as
        // long as the work.
        Ok(unsafe { to.enqueue_upload(lock(&self.queue).stream(), &lock(&from.0)) }?)
    }

    /// Enqueues a copy from the start of `from` that fills the host buffer `to`. `to` must not be
    /// read or written until the copy has finished.
    ///
    /// # Errors
    /// [`Error::Gpu`] if `from` is shorter than the host buffer, or CUDA fails.
    pub(super) fn download(&self, from: &Buffer<f32>, to: &StagingBuffer) -> Result<(), Error> {
        // SAFETY: the staging buffer is read when this copy has finished, and stays as long as the
        // work.
        Ok(unsafe { from.enqueue_download(lock(&self.queue).stream(), &mut lock(&to.0)) }?)
    }

    /// Allocates a host buffer of the given number of elements.
    ///
    /// # Errors
    /// [`Error::Gpu`] if CUDA fails or lacks memory.
    pub(super) fn staging_buffer(&self, elements: usize) -> Result<StagingBuffer, Error> {
        let buffer = HostBuffer::zeros(lock(&self.queue).stream().context(), elements)?;
        Ok(StagingBuffer(Arc::new(Mutex::new(buffer))))
    }
}

/// Buffer of page-locked host memory for copies to or from the device. Clones share the memory: the
/// function that enqueues the copy has one, the code that fills or reads the memory has another. A
/// lock prevents concurrent accesses, but it does not wait for enqueued copies.
#[derive(Debug, Clone)]
pub(super) struct StagingBuffer(Arc<Mutex<HostBuffer<f32>>>);

impl StagingBuffer {
    /// Calls `work` with the elements of the buffer, and returns its result. The caller ensures
    /// that no enqueued copy still uses the memory.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut [f32]) -> T) -> T {
        work(lock(&self.0).as_mut_slice())
    }
}

/// The CUDA stream on which a rank enqueues its collectives, with the requests of those that are
/// not known to be complete. Clones share both.
#[derive(Debug, Clone)]
pub(super) struct CommunicationLane {
    times: LaunchTimes,
    nccl: Arc<Mutex<NcclLane>>,
}

#[derive(Debug)]
struct NcclLane {
    stream: Stream,
    pending: VecDeque<PendingCollective>,
}

#[derive(Debug)]
enum PendingCollective {
    InPlace(NcclRequest<f32>),
    Moving(NcclRedistributionRequest<f32>),
}

/// A collective with the lane that it runs on and the memory of this rank that it reads and writes.
#[derive(Debug)]
pub(super) struct CollectiveCall {
    /// The lane on which it is enqueued.
    pub(super) lane: CommunicationLane,
    /// The ranks that take part.
    pub(super) group: NcclCommunicator,
    /// The operation.
    pub(super) operation: CollectiveOperation,
    /// Memory that is set to zero before the operation: the elements between the buffers of a
    /// bucket.
    pub(super) gaps: Vec<Buffer<f32>>,
    /// Duration of the collective on emulated devices.
    pub(super) duration: Duration,
}

/// The operation of a collective.
#[derive(Debug)]
pub(super) enum CollectiveOperation {
    /// Sums the memory over the ranks of the group, in place.
    AllReduce(Buffer<f32>),
    /// Copies the memory of the group's first rank to the others, in place.
    Broadcast(Buffer<f32>),
    /// Sends items of `from` to other ranks, and receives items from them in `to`.
    Redistribute {
        /// The items that each rank sends to each other rank.
        redistribution: Arc<Redistribution>,
        /// The items that the rank holds before; empty if it holds none.
        from: Buffer<f32>,
        /// The items that the rank holds afterwards; empty if it holds none.
        to: Buffer<f32>,
        /// Memory for the items that the rank sends and for those that it receives; empty if they
        /// are consecutive.
        packed: [Buffer<f32>; 2],
        /// Number of scalars of one item.
        item_scalars: usize,
    },
}

impl CollectiveCall {
    /// Enqueues the collective.
    ///
    /// # Errors
    /// [`Error::Engine`] or [`Error::Collectives`] if CUDA or NCCL fails.
    pub(super) fn start(&self) -> Result<(), Error> {
        let CollectiveCall { lane: CommunicationLane { times, nccl }, group, .. } = self;
        let mut lane = lock(nccl);
        let stream = &mut lane.stream;
        for gap in &self.gaps {
            times.each(Duration::ZERO, || gap.fill_bytes(stream, 0))?;
        }
        let pending = times.each(self.duration, || -> Result<_, Error> {
            Ok(match &self.operation {
                CollectiveOperation::AllReduce(buffer) => PendingCollective::InPlace(
                    group.start_all_reduce(alias(buffer)?, ReduceOp::Sum, stream)?,
                ),
                CollectiveOperation::Broadcast(buffer) => {
                    PendingCollective::InPlace(group.start_broadcast(alias(buffer)?, 0, stream)?)
                }
                CollectiveOperation::Redistribute { redistribution, from, to, packed, item_scalars } => {
                    let packed = [alias(&packed[0])?, alias(&packed[1])?];
                    let buffers = RedistributionBuffers { input: alias(from)?, output: alias(to)?, packed };
                    let moving =
                        group.start_redistribution(redistribution, buffers, *item_scalars, stream)?;
                    PendingCollective::Moving(moving)
                }
            })
        })?;
        lane.pending.push_back(pending);
        Ok(())
    }
}

impl CommunicationLane {
    /// Creates a communication lane on a stream. `times` sets the durations of operations on
    /// emulated devices.
    pub(super) fn on(stream: &Stream, times: LaunchTimes) -> Self {
        let nccl = NcclLane { stream: stream.clone(), pending: VecDeque::new() };
        Self { times, nccl: Arc::new(Mutex::new(nccl)) }
    }

    /// Removes the requests of completed collectives, oldest first, up to the first that is
    /// incomplete. It does not wait.
    ///
    /// # Errors
    /// [`Error::Collectives`] of a collective that failed, or that waited too long for another
    /// rank.
    pub(super) fn check(&self) -> Result<(), Error> {
        let mut lane = lock(&self.nccl);
        while let Some(oldest) = lane.pending.front_mut() {
            let is_complete = match oldest {
                PendingCollective::InPlace(request) => request.test()?,
                PendingCollective::Moving(request) => request.test()?,
            };
            if !is_complete {
                break;
            }
            lane.pending.pop_front();
        }
        Ok(())
    }

    /// Blocks until all started collectives have finished on the device. A collective that waits
    /// for another rank longer than the time-out of the communicator is aborted.
    ///
    /// # Errors
    /// [`Error::Collectives`] of the oldest collective that failed. The function waits for the
    /// others before it returns.
    pub(super) fn finish(&self) -> Result<(), Error> {
        let pending = std::mem::take(&mut lock(&self.nccl).pending);
        let outcomes = pending.into_iter().map(|pending| match pending {
            PendingCollective::InPlace(request) => request.wait().map(drop),
            PendingCollective::Moving(request) => request.wait().map(drop),
        });
        // All of them are awaited.
        let outcomes: Vec<_> = outcomes.collect();
        Ok(outcomes.into_iter().collect::<Result<(), _>>()?)
    }
}

/// Returns another buffer of the same memory, for a launch of the program that it belongs to. Its
/// range is valid, so that there is no error.
pub(super) fn alias(buffer: &Buffer<f32>) -> Result<Buffer<f32>, Error> {
    // SAFETY: launches access a program's buffers in the order of its lanes and their dependencies,
    // and one program at a time uses them.
    Ok(unsafe { buffer.alias(0..buffer.len()) }?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
