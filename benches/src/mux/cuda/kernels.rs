//! The kernels, loaded, with the memory that they work on.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use gpu_mux::cuda::{Argument, Context, DeviceBuffer, Function, LaunchShape, Module, Result, Stream};

pub(super) const NAMES: [&str; 3] = ["mux_compute", "mux_exchange", "mux_nothing"];

/// Larger than the caches of any card so far.
pub(super) const MEMORY_BYTES: usize = 256 << 20;
/// What a thread reads at once.
pub(super) const VECTOR_BYTES: u64 = 16;
pub(super) const COMPUTE_THREADS: u32 = 1024;
/// As many blocks as NCCL has channels on a card with NVLink, more or less.
const EXCHANGE_BLOCKS: u32 = 16;
const EXCHANGE_THREADS: u32 = 512;

/// Some milliseconds.
const LOADING_ROUNDS: u32 = 20_000;

/// The kernels of `kernels.cu`.
///
/// Graphs that launch them must not outlive this.
pub(super) struct Kernels {
    compute: Function,
    exchange: Function,
    nothing: Function,
    memory: DeviceBuffer,
    clock: DeviceBuffer,
    pub(super) multiprocessors: u32,
}

/// A launch of the kernel that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compute {
    pub(super) blocks: u32,
    pub(super) rounds: u32,
    /// In so many of 1024 rounds every thread reads a vector.
    pub(super) loads: u32,
}

/// A launch of the kernel that exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    /// How long after the end of the exchange before it the partners come.
    pub(super) partners_after: Duration,
    pub(super) rounds: u32,
}

impl Kernels {
    /// `memory_bytes` is a power of two.
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

    pub(super) fn compute(&self, stream: &Stream, launch: Compute) -> Result<()> {
        let shape = LaunchShape { blocks: launch.blocks, threads: COMPUTE_THREADS, shared_bytes: 0 };
        let arguments = [
            Argument::U32(launch.rounds),
            Argument::U32(launch.loads),
            Argument::U64(self.memory.address()),
            Argument::U64(self.mask()),
            Argument::U64(self.memory.address()),
        ];
        // SAFETY: these are its arguments; places are masked; kernel and memory are kept with the graphs.
        unsafe { self.compute.launch(stream, shape, &arguments) }
    }

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
        // SAFETY: these are its arguments; places are masked; kernel and memory are kept with the graphs.
        unsafe { self.exchange.launch(stream, shape, &arguments) }
    }

    pub(super) fn nothing(&self, stream: &Stream) -> Result<()> {
        let shape = LaunchShape { blocks: 1, threads: 32, shared_bytes: 0 };
        // SAFETY: it has no arguments and touches no memory; the kernel is kept with the graphs.
        unsafe { self.nothing.launch(stream, shape, &[]) }
    }

    /// Lets the whole card compute for at least so long. It waits.
    pub(super) fn load_card(&self, stream: &Stream, time: Duration) -> Result<()> {
        let begin = Instant::now();
        let launch = Compute { blocks: self.multiprocessors, rounds: LOADING_ROUNDS, loads: 64 };
        while begin.elapsed() < time {
            (0..8).try_for_each(|_| self.compute(stream, launch))?;
            stream.synchronize()?;
        }
        Ok(())
    }

    /// Forgets when the last exchange ended, so that the next one counts from its own start. It waits.
    pub(super) fn reset(&self, stream: &Stream) -> Result<()> {
        self.clock.fill(stream, 0)?;
        self.memory.fill(stream, 0)?;
        stream.synchronize()
    }

    /// The number of vectors, which is a power of two, less one.
    fn mask(&self) -> u64 {
        self.memory.size_bytes() as u64 / VECTOR_BYTES - 1
    }
}
