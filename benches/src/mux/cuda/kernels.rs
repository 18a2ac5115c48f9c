//! The kernels of `kernels.cu`, and their memory.
//!
//! Kernels work in *rounds*: a compute round is some arithmetic of each thread and possibly a read,
//! an exchange round copies one vector of 16 bytes a thread.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use gpu_mux::cuda::{Argument, Context, DeviceBuffer, Function, LaunchShape, Module, Result, Stream};

/// Names of the kernels in the module: compute, exchange and empty.
pub(super) const NAMES: [&str; 3] = ["mux_compute", "mux_exchange", "mux_nothing"];

/// Size in bytes of the memory that kernels access. It exceeds the caches of any GPU so far.
pub(super) const MEMORY_BYTES: usize = 256 << 20;
/// Number of bytes that a thread reads at once.
pub(super) const VECTOR_BYTES: u64 = 16;
/// Number of threads of a block of the compute kernel.
pub(super) const COMPUTE_THREADS: u32 = 1024;
/// Approximately the number of NCCL's channels on a GPU with NVLink.
const EXCHANGE_BLOCKS: u32 = 16;
const EXCHANGE_THREADS: u32 = 512;

/// Number of rounds that take some milliseconds.
const WARM_UP_ROUNDS: u32 = 20_000;

/// The loaded kernels and their memory.
///
/// Graphs that launch them must not outlive this object.
pub(super) struct Kernels {
    compute: Function,
    exchange: Function,
    nothing: Function,
    memory: DeviceBuffer,
    clock: DeviceBuffer,
    /// Number of streaming multiprocessors of the GPU.
    pub(super) multiprocessors: u32,
}

/// Arguments of a launch of the compute kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compute {
    /// Number of thread blocks, one on a multiprocessor at a time.
    pub(super) blocks: u32,
    /// Number of rounds of each thread.
    pub(super) rounds: u32,
    /// Number of vectors that each thread reads in 1024 rounds.
    pub(super) loads: u32,
}

/// Arguments of a launch of the exchange kernel, which models a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Time from the end of the previous exchange to the partners' arrival, for which the kernel
    /// waits.
    pub(super) partners_after: Duration,
    /// Number of rounds of each thread after the partners' arrival: the transfer.
    pub(super) rounds: u32,
}

impl Kernels {
    /// Loads the kernels from PTX and allocates their memory. `memory_bytes` is a power of two.
    ///
    /// # Errors
    /// If a CUDA call fails.
    pub(super) fn load(
        context: &Context,
        ptx: &str,
        multiprocessors: u32,
        memory_bytes: usize,
    ) -> Result<Self> {
        let module = Module::load(context, ptx)?;
        let [compute, exchange, nothing] = NAMES.map(|name| module.function(name));
        Ok(Self {
            compute: compute?,
            exchange: exchange?,
            nothing: nothing?,
            memory: DeviceBuffer::new(context, memory_bytes)?,
            clock: DeviceBuffer::new(context, 16)?,
            multiprocessors,
        })
    }

    /// Enqueues a launch of the compute kernel.
    ///
    /// # Errors
    /// If the launch fails.
    pub(super) fn compute(&self, stream: &Stream, launch: Compute) -> Result<()> {
        let shape = LaunchShape { blocks: launch.blocks, threads: COMPUTE_THREADS, shared_bytes: 0 };
        let arguments = [
            Argument::U32(launch.rounds),
            Argument::U32(launch.loads),
            Argument::U64(self.memory.address()),
            Argument::U64(self.mask()),
            Argument::U64(self.memory.address()),
        ];
        // SAFETY: the arguments are the kernel's; addresses are masked; graphs keep kernel and
        // memory alive.
        unsafe { self.compute.launch(stream, shape, &arguments) }
    }

    /// Enqueues a launch of the exchange kernel.
    ///
    /// # Errors
    /// If the launch fails.
    pub(super) fn exchange(&self, stream: &Stream, launch: Exchange) -> Result<()> {
        let shape = LaunchShape { blocks: EXCHANGE_BLOCKS, threads: EXCHANGE_THREADS, shared_bytes: 0 };
        let half = self.memory.size_bytes() as u64 / 2;
        let arguments = [
            Argument::U64(self.clock.address()),
            Argument::U64(u64::try_from(launch.partners_after.as_nanos()).unwrap_or(u64::MAX)),
            Argument::U32(launch.rounds),
            Argument::U64(self.memory.address()),
            Argument::U64(self.memory.address() + half),
            Argument::U64(self.mask() >> 1),
        ];
        // SAFETY: the arguments are the kernel's; addresses are masked; graphs keep kernel and
        // memory alive.
        unsafe { self.exchange.launch(stream, shape, &arguments) }
    }

    /// Enqueues a launch of the empty kernel.
    ///
    /// # Errors
    /// If the launch fails.
    pub(super) fn nothing(&self, stream: &Stream) -> Result<()> {
        let shape = LaunchShape { blocks: 1, threads: 32, shared_bytes: 0 };
        // SAFETY: the kernel has no arguments and accesses no memory; graphs keep it alive.
        unsafe { self.nothing.launch(stream, shape, &[]) }
    }

    /// Computes on the whole GPU for at least `time`, and waits for it.
    ///
    /// # Errors
    /// If a CUDA call fails.
    pub(super) fn warm_up(&self, stream: &Stream, time: Duration) -> Result<()> {
        let begin = Instant::now();
        let launch = Compute { blocks: self.multiprocessors, rounds: WARM_UP_ROUNDS, loads: 64 };
        while begin.elapsed() < time {
            (0..8).try_for_each(|_| self.compute(stream, launch))?;
            stream.synchronize()?;
        }
        Ok(())
    }

    /// Clears the memory and the recorded end of the last exchange, so that the next exchange
    /// counts from its own start. Waits for it.
    ///
    /// # Errors
    /// If a CUDA call fails.
    pub(super) fn reset(&self, stream: &Stream) -> Result<()> {
        self.clock.fill(stream, 0)?;
        self.memory.fill(stream, 0)?;
        stream.synchronize()
    }

    /// Returns the number of vectors, which is a power of two, minus one.
    fn mask(&self) -> u64 {
        self.memory.size_bytes() as u64 / VECTOR_BYTES - 1
    }
}
