//! Calibration of the kernels' durations on the GPU: finds launches of the replacement kernels that
//! take as long as the workload's kernels. Kernels work in *rounds*: a compute round is some
//! arithmetic of each thread, a copy round copies one vector a thread.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use ::cuda::{Result, Stopwatch, Stream};
use gpu_mux::Kernel;

use super::kernels::{COMPUTE_THREADS, Compute, Exchange, Kernels, VECTOR_BYTES};
use crate::mux::KernelTimeErrors;
use crate::report_file::micros;

/// Number of launches that are timed together, so that launch overhead matters little.
const LAUNCHES_PER_RUN: u32 = 8;
const RUNS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4);
/// Number of rounds of a probe.
const PROBE: u32 = 2_000;
/// Number of corrections by the measured duration of a kernel.
const CORRECTIONS: u32 = 2;
/// Approximate duration of a block of a kernel that fills the device. Multiprocessors change
/// kernels after a block.
const BLOCK: Duration = Duration::from_micros(25);
const MAX_WAVES: u32 = 64;

/// Measured speeds of the GPU, and the launches found with them.
pub(super) struct LaunchCalibration<'a> {
    kernels: &'a Kernels,
    stream: &'a Stream,
    /// Time of one of several consecutive launches of the empty kernel.
    launch: Duration,
    /// Time of a compute round in seconds.
    round_s: f64,
    /// Bandwidth of reads by all multiprocessors in bytes a second.
    bandwidth: f64,
    /// Time of a copy round in seconds.
    copy_round_s: f64,
    launches: HashMap<[u64; 3], Compute>,
    /// Expected and measured duration (in seconds) of each kernel in `launches`.
    took: Vec<(Duration, f64)>,
}

impl<'a> LaunchCalibration<'a> {
    /// Measures the speeds. The stream must have no other work.
    ///
    /// # Errors
    /// If a CUDA call fails.
    pub(super) fn measure(kernels: &'a Kernels, stream: &'a Stream) -> Result<Self> {
        kernels.reset(stream)?;
        let mut found = Self {
            kernels,
            stream,
            launch: Duration::ZERO,
            round_s: 0.0,
            bandwidth: 0.0,
            copy_round_s: 0.0,
            launches: HashMap::new(),
            took: Vec::new(),
        };
        found.launch = found.time(&|stream| kernels.nothing(stream))?;
        let blocks = kernels.multiprocessors;
        let computes = Compute { blocks, rounds: PROBE, loads: 0 };
        found.round_s = found.seconds(&|stream| kernels.compute(stream, computes))? / f64::from(PROBE);
        let reads = Compute { loads: 4096, ..computes };
        let read_bytes =
            f64::from(4 * PROBE) * f64::from(blocks) * f64::from(COMPUTE_THREADS) * VECTOR_BYTES as f64;
        found.bandwidth = read_bytes / found.seconds(&|stream| kernels.compute(stream, reads))?;
        let copies = Exchange { partners_after: Duration::ZERO, rounds: PROBE };
        found.copy_round_s = found.seconds(&|stream| kernels.exchange(stream, copies))? / f64::from(PROBE);
        Ok(found)
    }

    /// Returns a launch that takes as long as `kernel`, a kernel of the workload. Its number of
    /// rounds is corrected by measurements. A kernel that fills the device gets several waves of
    /// blocks, any other kernel gets one.
    ///
    /// # Errors
    /// If a CUDA call fails.
    pub(super) fn compute(&mut self, kernel: &Kernel) -> Result<Compute> {
        let key = [kernel.time().as_nanos() as u64, kernel.share().to_bits(), kernel.memory().to_bits()];
        if let Some(&known) = self.launches.get(&key) {
            return Ok(known);
        }
        let kernels = self.kernels;
        let mut rounds = kernel.time().as_secs_f64() / f64::from(waves(kernel)) / self.round_s;
        for _ in 0..CORRECTIONS {
            let launch = self.launch_of(kernel, rounds);
            let took = self.seconds(&|stream| kernels.compute(stream, launch))?;
            rounds *= kernel.time().as_secs_f64() / took;
        }
        let found = self.launch_of(kernel, rounds);
        let took = self.seconds(&|stream| kernels.compute(stream, found))?;
        self.took.push((kernel.time(), took));
        self.launches.insert(key, found);
        Ok(found)
    }

    /// Returns the errors of the durations of all launches that `compute` has returned. `None` if
    /// it was not called.
    pub(super) fn time_errors(&self) -> Option<KernelTimeErrors> {
        let difference = |&(expected, took): &(Duration, f64)| (took - expected.as_secs_f64()).abs();
        let part = |kernel: &(Duration, f64)| difference(kernel) / kernel.0.as_secs_f64().max(1e-9);
        let max = self.took.iter().max_by(|a, b| part(a).total_cmp(&part(b)))?;
        let all: Duration = self.took.iter().map(|(expected, _)| *expected).sum();
        let total = self.took.iter().map(difference).sum::<f64>() / all.as_secs_f64().max(1e-9);
        Some(KernelTimeErrors { total, max: part(max), max_kernel_us: micros(max.0) })
    }

    /// Returns a launch of the compute kernel with one thread block that takes about `time`.
    pub(super) fn block(&self, time: Duration) -> Compute {
        let rounds = (time.as_secs_f64() / self.round_s).clamp(1.0, f64::from(u32::MAX / 2));
        Compute { blocks: 1, rounds: rounds as u32, loads: 0 }
    }

    /// Returns a launch of the exchange kernel that waits until `partners_after` has passed since
    /// the end of the previous exchange, and then copies for about `transfer`.
    pub(super) fn exchange(&self, transfer: Duration, partners_after: Duration) -> Exchange {
        let rounds = (transfer.as_secs_f64() / self.copy_round_s).round().max(1.0);
        Exchange { partners_after, rounds: rounds as u32 }
    }

    /// Returns the device's time of one of several consecutive launches, minus that of an empty
    /// kernel.
    fn time(&self, enqueue: &dyn Fn(&Stream) -> Result<()>) -> Result<Duration> {
        let all = Stopwatch::new(self.stream)?
            .median(RUNS, |stream| (0..LAUNCHES_PER_RUN).try_for_each(|_| enqueue(stream)))?;
        Ok((all / LAUNCHES_PER_RUN).saturating_sub(self.launch))
    }

    /// Like [`time`](Self::time), in seconds and never zero.
    fn seconds(&self, enqueue: &dyn Fn(&Stream) -> Result<()>) -> Result<f64> {
        Ok(self.time(enqueue)?.as_secs_f64().max(1e-9))
    }

    fn launch_of(&self, kernel: &Kernel, rounds: f64) -> Compute {
        let rounds = rounds.round().clamp(1.0, f64::from(u32::MAX));
        let width = (f64::from(self.kernels.multiprocessors) * kernel.share()).round().max(1.0);
        let blocks = width * f64::from(waves(kernel));
        let bytes = kernel.memory() * self.bandwidth * kernel.time().as_secs_f64();
        let vectors = bytes / (blocks * f64::from(COMPUTE_THREADS) * VECTOR_BYTES as f64);
        Compute {
            blocks: blocks as u32,
            rounds: rounds as u32,
            loads: (vectors * 1024.0 / rounds).round() as u32,
        }
    }
}

/// Returns the number of consecutive thread blocks on each multiprocessor: 1 unless the kernel
/// fills the device.
fn waves(kernel: &Kernel) -> u32 {
    if kernel.share() < 1.0 {
        return 1;
    }
    ((kernel.time().as_secs_f64() / BLOCK.as_secs_f64()).round() as u32).clamp(1, MAX_WAVES)
}
