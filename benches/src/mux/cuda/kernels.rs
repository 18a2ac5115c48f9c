//! The kernels of `kernels.cu`, and their memory.
//!
//! Kernels work in *rounds*: a compute round is some arithmetic of each thread and possibly a read,
//! an exchange round copies one vector of 16 bytes a thread.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use ::cuda::{Argument, Buffer, Context, Kernel, LaunchShape, Module, Result, Stream};

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
pub(super) struct Kernels {
    compute: Kernel,
    exchange: Kernel,
    nothing: Kernel,
    memory: Buffer<u8>,
    /// End of the last exchange, and number of its blocks that are done.
    clock: Buffer<u64>,
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
        let [compute, exchange, nothing] = NAMES.map(|name| module.kernel(name));
        Ok(Self {
            compute: compute?,
            exchange: exchange?,
            nothing: nothing?,
            memory: Buffer::uninitialized(context, memory_bytes)?,
            clock: Buffer::uninitialized(context, 2)?,
            multiprocessors,
        })
    }

    /// Enqueues a launch of the compute kernel.
    ///
    /// # Errors
    /// If the launch fails.
    pub(super) fn compute(&self, stream: &Stream, launch: Compute) -> Result<()> {
        let shape = LaunchShape::linear(launch.blocks, COMPUTE_THREADS);
        let arguments = [
            launch.rounds.into(),
            launch.loads.into(),
            (&self.memory).into(),
            self.mask().into(),
            (&self.memory).into(),
        ];
        // SAFETY: the arguments are the kernel's; addresses are masked.
        unsafe { self.compute.launch(stream, shape, &arguments) }
    }

    /// Enqueues a launch of the exchange kernel.
    ///
    /// # Errors
    /// If the launch fails.
    pub(super) fn exchange(&self, stream: &Stream, launch: Exchange) -> Result<()> {
        let shape = LaunchShape::linear(EXCHANGE_BLOCKS, EXCHANGE_THREADS);
        let arguments = [
            (&self.clock).into(),
            u64::try_from(launch.partners_after.as_nanos()).unwrap_or(u64::MAX).into(),
            launch.rounds.into(),
            (&self.memory).into(),
            Argument::element(&self.memory, self.memory.len() / 2),
            (self.mask() >> 1).into(),
        ];
        // SAFETY: the arguments are the kernel's; addresses are masked.
        unsafe { self.exchange.launch(stream, shape, &arguments) }
    }

    /// Enqueues a launch of the empty kernel.
    ///
    /// # Errors
    /// If the launch fails.
    pub(super) fn nothing(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the kernel has no arguments and accesses no memory.
        unsafe { self.nothing.launch(stream, LaunchShape::linear(1, 32), &[]) }
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
        self.clock.fill_bytes(stream, 0)?;
        self.memory.fill_bytes(stream, 0)?;
        stream.synchronize()
    }

    /// Returns the number of vectors, which is a power of two, minus one.
    fn mask(&self) -> u64 {
        self.memory.size_bytes() as u64 / VECTOR_BYTES - 1
    }
}
