//! The operations of launch units, on memory with fixed addresses.
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

/// A stream of the device on which kernels and copies are enqueued. Clones share the stream.
#[derive(Debug, Clone)]
pub(super) struct KernelQueue {
    engine: CudaEngine,
    queue: Arc<Mutex<CudaQueue>>,
    times: LaunchTimes,
}

/// A kernel with its operands.
#[derive(Debug, Clone)]
pub(super) struct KernelCall {
    /// The prepared kernel.
    pub(super) kernel: Arc<CudaKernel>,
    /// Device memory of each operand that is read, in the order of the kernel specification.
    pub(super) reads: Vec<DeviceSlice>,
    /// Device memory of each operand that is written, in the same order.
    pub(super) writes: Vec<DeviceSlice>,
    /// Modelled duration of the call on emulated devices, spread evenly over its launches. It has
    /// no effect on real GPUs.
    pub(super) takes: Duration,
}

impl KernelQueue {
    /// Creates a queue on a stream of the driver, which must outlive it. `times` sets the durations
    /// of launches on emulated devices.
    pub(super) fn on(stream: &Stream, engine: &GpuEngine, times: LaunchTimes) -> Result<Self, Error> {
        // SAFETY: the stream is one of the device's primary context, and lives as long as the
        // driver, whose work has the queue.
        let queue = unsafe { engine.cuda().queue_on(stream.as_raw()) }?;
        Ok(Self { engine: engine.cuda().clone(), queue: Arc::new(Mutex::new(queue)), times })
    }

    /// Sets the seed, iteration and learning rate of the kernels and graphs that are launched on
    /// this queue from now on. The update is enqueued: the host does not wait for it.
    pub(super) fn begin(&self, context: &LaunchContext) -> Result<(), Error> {
        Ok(self.times.each(Duration::ZERO, || lock(&self.queue).set_context(context))?)
    }

    /// Enqueues kernels with the launch context of the last [`begin`](Self::begin), without waiting
    /// for them.
    ///
    /// Hazard: the operands are raw addresses. The caller must keep their program loaded until the
    /// kernels have finished, although the function is not `unsafe`.
    pub(super) fn launch(&self, calls: &[KernelCall]) -> Result<(), Error> {
        let mut queue = lock(&self.queue);
        // Hazard: without `begin`, the optimiser runs with a learning rate of 0, and no error is
        // returned.
        let context = queue.context().unwrap_or(LaunchContext { seed: 0, iteration: 0, learning_rate: 0.0 });
        for KernelCall { kernel, reads, writes, takes } in calls {
            let launches = u32::try_from(kernel.launches()).unwrap_or(u32::MAX).max(1);
            // SAFETY: the operands are buffers of a program that stays loaded as long as its works;
            // the order of the queues keeps apart what would disturb each other.
            let enqueue = || unsafe { self.engine.enqueue_raw(kernel, reads, writes, &context, &mut queue) };
            self.times.each(*takes / launches, enqueue)?;
        }
        Ok(())
    }

    /// Enqueues a copy of the whole host buffer to the start of `to`, without waiting for it.
    /// `from` must not be written until the copy has finished.
    ///
    /// # Errors
    /// If `to` is shorter than the host buffer, or CUDA fails.
    pub(super) fn upload(&self, from: &SharedHostBuffer, to: DeviceSlice) -> Result<(), Error> {
        // SAFETY: the staging buffer is written again when this copy has finished, and both stay as
        // long as the work.
        Ok(unsafe { self.engine.enqueue_upload(&lock(&from.0), to, &mut lock(&self.queue)) }?)
    }

    /// Enqueues a copy of the start of `from` to the host buffer, which it fills, without waiting
    /// for it. `to` must not be read or written until the copy has finished.
    ///
    /// # Errors
    /// If `from` is shorter than the host buffer, or CUDA fails.
    pub(super) fn download(&self, from: DeviceSlice, to: &SharedHostBuffer) -> Result<(), Error> {
        // SAFETY: the staging buffer is read when this copy has finished, and both stay as long as
        // the work.
        Ok(unsafe { self.engine.enqueue_download(from, &mut lock(&to.0), &mut lock(&self.queue)) }?)
    }

    /// Allocates a page-locked host buffer of the given number of elements.
    pub(super) fn host_buffer(&self, elements: usize) -> Result<SharedHostBuffer, Error> {
        Ok(SharedHostBuffer(Arc::new(Mutex::new(self.engine.host_memory(elements)?))))
    }
}

/// Page-locked host memory for copies to or from the device. Clones share the memory: one is kept
/// by the function that enqueues the copy, another by the host code that fills or reads the memory.
/// The lock does not wait for enqueued copies.
#[derive(Debug, Clone)]
pub(super) struct SharedHostBuffer(Arc<Mutex<CudaHostBuffer>>);

impl SharedHostBuffer {
    /// Calls `work` with the elements while the buffer is locked, and returns its result. The
    /// caller ensures that no enqueued copy still uses the memory.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut [f32]) -> T) -> T {
        work(lock(&self.0).as_mut_slice())
    }
}

/// The stream on which a rank enqueues its collectives, with the requests of those that may be
/// incomplete. Clones share both.
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

/// A collective with its buffers.
#[derive(Debug, Clone)]
pub(super) enum CollectiveCall {
    /// Sums the memory over the ranks of the group, in place.
    AllReduce(DeviceSlice),
    /// Copies the memory of the group's first rank to the others, in place.
    Broadcast(DeviceSlice),
    /// Sends samples of `from` to other ranks, and receives samples from them in `to`, as the
    /// redistribution says.
    Redistribute {
        /// The samples that each rank sends to each other rank.
        redistribution: Arc<Redistribution>,
        /// The rank's samples before; empty if it has none.
        from: DeviceSlice,
        /// The rank's samples afterwards; empty if it has none.
        to: DeviceSlice,
        /// Number of elements of a sample.
        sample_elements: usize,
    },
}

impl CommunicationLane {
    /// Creates a communication lane on a stream of the driver, which must outlive it. Kernels that
    /// pack and unpack buffers run on the same stream.
    pub(super) fn on(stream: &Stream, engine: &GpuEngine, times: LaunchTimes) -> Result<Self, Error> {
        let kernels = KernelQueue::on(stream, engine, times)?;
        // SAFETY: as for the queue of kernels.
        let stream = unsafe { NcclStream::borrow(engine.device(), stream.as_raw()) }?;
        let nccl = Arc::new(Mutex::new(NcclLane { stream, pending: VecDeque::new() }));
        Ok(Self { kernels, nccl })
    }

    /// Enqueues a collective of the group, after the kernels `pack` and before the kernels
    /// `unpack`, which may be empty. It does not wait for any of them. `takes` is the modelled
    /// duration of the collective on emulated devices.
    pub(super) fn start(
        &self,
        group: &NcclCommunicator,
        (call, takes): (&CollectiveCall, Duration),
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
        let pending = self.kernels.times.each(takes, start)?;
        lane.pending.push_back(pending);
        drop(lane);
        self.kernels.launch(unpack)
    }

    /// Forgets the requests of completed collectives, oldest first, up to the first that is
    /// incomplete. It does not wait.
    ///
    /// # Errors
    /// That of a collective that failed, or for which a rank is missing.
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

    /// Blocks until the device has finished all collectives that were started. A collective for
    /// which a rank is missing is aborted after the time-out of the communicator.
    ///
    /// # Errors
    /// That of the oldest collective that failed. The others are awaited all the same.
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
