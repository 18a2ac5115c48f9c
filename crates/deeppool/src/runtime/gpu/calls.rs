//! The CUDA and NCCL operations of a rank, on memory with fixed addresses. Every function that
//! enqueues an operation on a stream returns without waiting for it.
//!
//! *Emulated devices* are GPUs of the emulated CUDA driver, which have a virtual time: there the
//! duration of an operation is set by a model. *Packing* copies several buffers into one, so that
//! one collective transfers them all.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use collectives::{
    Communicator, NcclBuffer, NcclCommunicator, NcclExchangeRequest, NcclRequest, NcclStream, Redistribution,
    ReduceOp, Request,
};
use gpu_mux::cuda::Stream;
use layer_engine::{CudaEngine, CudaHostBuffer, CudaKernel, CudaQueue, DeviceSlice, LaunchContext};

use super::clock::LaunchTimes;
use super::engine::GpuEngine;
use crate::Error;

/// A CUDA stream on which kernels and copies are enqueued. Clones share the stream.
#[derive(Debug, Clone)]
pub(super) struct KernelQueue {
    engine: CudaEngine,
    queue: Arc<Mutex<CudaQueue>>,
    times: LaunchTimes,
}

/// A prepared kernel with its operands.
#[derive(Debug, Clone)]
pub(super) struct KernelCall {
    /// The prepared kernel: one or more launches of GPU functions.
    pub(super) kernel: Arc<CudaKernel>,
    /// Device memory of each operand that is read, in the order that the kernel's specification
    /// defines.
    pub(super) reads: Vec<DeviceSlice>,
    /// Device memory of each operand that is written, in the order that the kernel's specification
    /// defines.
    pub(super) writes: Vec<DeviceSlice>,
    /// Duration of the call on emulated devices, divided evenly among its launches. Real GPUs
    /// ignore it.
    pub(super) duration: Duration,
}

impl KernelQueue {
    /// Creates a queue on a stream of the engine's device. The stream must outlive the queue and
    /// its clones. `times` sets the durations of launches on emulated devices.
    ///
    /// # Errors
    /// [`Error::Engine`] if CUDA fails.
    pub(super) fn on(stream: &Stream, engine: &GpuEngine, times: LaunchTimes) -> Result<Self, Error> {
        // SAFETY: the stream is one of the device's primary context, and lives as long as the
        // driver, whose work has the queue.
        let queue = unsafe { engine.cuda().queue_on(stream.as_raw()) }?;
        Ok(Self { engine: engine.cuda().clone(), queue: Arc::new(Mutex::new(queue)), times })
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
    /// Hazard: the operands are raw addresses. The caller must keep their program loaded until the
    /// kernels have finished, although the function is not `unsafe`.
    ///
    /// # Errors
    /// [`Error::Engine`] if CUDA fails.
    pub(super) fn launch(&self, calls: &[KernelCall]) -> Result<(), Error> {
        let mut queue = lock(&self.queue);
        // Hazard: without `begin`, the optimiser runs with a learning rate of 0, and no error is
        // returned.
        let context = queue.context().unwrap_or(LaunchContext { seed: 0, iteration: 0, learning_rate: 0.0 });
        for KernelCall { kernel, reads, writes, duration } in calls {
            let launches = u32::try_from(kernel.launches()).unwrap_or(u32::MAX).max(1);
            // SAFETY: the operands are buffers of a program that stays loaded as long as its works;
            // the order of the queues prevents conflicting accesses.
            let enqueue = || unsafe { self.engine.enqueue_raw(kernel, reads, writes, &context, &mut queue) };
            self.times.each(*duration / launches, enqueue)?;
        }
        Ok(())
    }

    /// Enqueues a copy of the whole host buffer `from` to the start of the device memory `to`.
    /// `from` must not be written until the copy has finished.
    ///
    /// # Errors
    /// [`Error::Engine`] if `to` is shorter than the host buffer, or CUDA fails.
    pub(super) fn upload(&self, from: &SharedHostBuffer, to: DeviceSlice) -> Result<(), Error> {
        // SAFETY: the staging buffer is written again when this copy has finished, and both stay as
        // long as the work.
        Ok(unsafe { self.engine.enqueue_upload(&lock(&from.0), to, &mut lock(&self.queue)) }?)
    }

    /// Enqueues a copy from the start of the device memory `from` that fills the host buffer `to`.
    /// `to` must not be read or written until the copy has finished.
    ///
    /// # Errors
    /// [`Error::Engine`] if `from` is shorter than the host buffer, or CUDA fails.
    pub(super) fn download(&self, from: DeviceSlice, to: &SharedHostBuffer) -> Result<(), Error> {
        // SAFETY: the staging buffer is read when this copy has finished, and both stay as long as
        // the work.
        Ok(unsafe { self.engine.enqueue_download(from, &mut lock(&to.0), &mut lock(&self.queue)) }?)
    }

    /// Allocates a host buffer of the given number of elements (`f32`).
    ///
    /// # Errors
    /// [`Error::Engine`] if CUDA fails or lacks memory.
    pub(super) fn host_buffer(&self, elements: usize) -> Result<SharedHostBuffer, Error> {
        Ok(SharedHostBuffer(Arc::new(Mutex::new(self.engine.host_memory(elements)?))))
    }
}

/// Buffer of page-locked host memory for copies to or from the device. Clones share the memory: the
/// function that enqueues the copy has one, the code that fills or reads the memory has another. A
/// lock prevents concurrent accesses, but it does not wait for enqueued copies.
#[derive(Debug, Clone)]
pub(super) struct SharedHostBuffer(Arc<Mutex<CudaHostBuffer>>);

impl SharedHostBuffer {
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
    kernels: KernelQueue,
    nccl: Arc<Mutex<NcclLane>>,
}

#[derive(Debug)]
struct NcclLane {
    stream: NcclStream,
    pending: VecDeque<PendingCollective>,
}

#[derive(Debug)]
enum PendingCollective {
    InPlace(NcclRequest<f32>),
    Exchange(NcclExchangeRequest<f32>),
}

/// A collective with the device memory of this rank that it reads and writes.
#[derive(Debug, Clone)]
pub(super) enum CollectiveCall {
    /// Sums the memory over the ranks of the group, in place.
    AllReduce(DeviceSlice),
    /// Copies the memory of the group's first rank to the others, in place.
    Broadcast(DeviceSlice),
    /// Sends samples of `from` to other ranks, and receives samples from them in `to`.
    Redistribute {
        /// The samples that each rank sends to each other rank.
        redistribution: Arc<Redistribution>,
        /// The samples that the rank holds before; empty if it holds none.
        from: DeviceSlice,
        /// The samples that the rank holds afterwards; empty if it holds none.
        to: DeviceSlice,
        /// Number of elements of one sample.
        sample_elements: usize,
    },
}

impl CommunicationLane {
    /// Creates a communication lane on a stream of the engine's device, on which packing kernels
    /// run too. The stream must outlive the lane and its clones. `times` sets the durations of
    /// operations on emulated devices.
    ///
    /// # Errors
    /// [`Error::Engine`] or [`Error::Collectives`] if CUDA or NCCL fails.
    pub(super) fn on(stream: &Stream, engine: &GpuEngine, times: LaunchTimes) -> Result<Self, Error> {
        let kernels = KernelQueue::on(stream, engine, times)?;
        // SAFETY: as for the queue of kernels.
        let stream = unsafe { NcclStream::borrow(engine.device(), stream.as_raw()) }?;
        let nccl = Arc::new(Mutex::new(NcclLane { stream, pending: VecDeque::new() }));
        Ok(Self { kernels, nccl })
    }

    /// Enqueues the kernels `pack`, then a collective of the group of ranks, then the kernels
    /// `unpack`. Both lists of kernels may be empty. `duration` is that of the collective on
    /// emulated devices.
    ///
    /// # Errors
    /// [`Error::Engine`] or [`Error::Collectives`] if CUDA or NCCL fails.
    pub(super) fn start(
        &self,
        group: &NcclCommunicator,
        (call, duration): (&CollectiveCall, Duration),
        pack: &[KernelCall],
        unpack: &[KernelCall],
    ) -> Result<(), Error> {
        self.kernels.launch(pack)?;
        let mut lane = lock(&self.nccl);
        let stream = &mut lane.stream;
        let start = || -> Result<PendingCollective, Error> {
            Ok(match call {
                CollectiveCall::AllReduce(slice) => PendingCollective::InPlace(group.start_all_reduce(
                    buffer(*slice),
                    ReduceOp::Sum,
                    stream,
                )?),
                CollectiveCall::Broadcast(slice) => {
                    PendingCollective::InPlace(group.start_broadcast(buffer(*slice), 0, stream)?)
                }
                CollectiveCall::Redistribute { redistribution, from, to, sample_elements } => {
                    PendingCollective::Exchange(group.start_redistribution_in_place(
                        redistribution,
                        buffer(*from),
                        buffer(*to),
                        *sample_elements,
                        stream,
                    )?)
                }
            })
        };
        let pending = self.kernels.times.each(duration, start)?;
        lane.pending.push_back(pending);
        drop(lane);
        self.kernels.launch(unpack)
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
                PendingCollective::Exchange(request) => request.test()?,
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
            PendingCollective::Exchange(request) => request.wait().map(drop),
        });
        // All of them are awaited.
        let outcomes: Vec<_> = outcomes.collect();
        Ok(outcomes.into_iter().collect::<Result<(), _>>()?)
    }
}

/// Returns memory with a fixed address as a buffer of NCCL.
fn buffer(slice: DeviceSlice) -> NcclBuffer<f32> {
    // SAFETY: it is a buffer of a program that stays loaded as long as its works, and the order of
    // the queues gives it to one at a time.
    unsafe { NcclBuffer::from_raw(slice.pointer, slice.elements, ()) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
