//! How many rounds of the kernels are how long on this card.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use gpu_mux::Kernel;
use gpu_mux::cuda::{Result, Stopwatch, Stream};

use super::kernels::{COMPUTE_THREADS, Compute, Exchange, Kernels, VECTOR_BYTES};
use crate::mux::KernelsOff;
use crate::report_file::micros;

/// Launches that are timed together, so that what a launch costs shows little.
const REPEATED: u32 = 8;
const RUNS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4);
/// Rounds of the probes.
const PROBE: u32 = 2_000;
/// Corrections by what a kernel was measured to take.
const CORRECTIONS: u32 = 2;
/// How long a block of a kernel that fills the device takes, about: the grain in which multiprocessors change hands.
const BLOCK: Duration = Duration::from_micros(25);
const MOST_WAVES: u32 = 64;

/// What was found out about the card.
pub(super) struct Rounds<'a> {
    kernels: &'a Kernels,
    stream: &'a Stream,
    /// One launch after another of nothing.
    launch: Duration,
    /// A round that computes, in seconds.
    round_s: f64,
    /// What all multiprocessors read together, in bytes by second.
    bandwidth: f64,
    /// A round of copying, in seconds.
    copy_round_s: f64,
    known: HashMap<[u64; 3], Compute>,
    /// What the kernels that are known should take, and do.
    took: Vec<(Duration, f64)>,
}

impl<'a> Rounds<'a> {
    /// Measures the card. The stream has nothing else to do.
    pub(super) fn measure(kernels: &'a Kernels, stream: &'a Stream) -> Result<Self> {
        kernels.reset(stream)?;
        let mut found = Self {
            kernels,
            stream,
            launch: Duration::ZERO,
            round_s: 0.0,
            bandwidth: 0.0,
            copy_round_s: 0.0,
            known: HashMap::new(),
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

    /// The launch that takes as long as a workload's kernel, by what was measured. What fills the device has several
    /// waves of blocks, anything else one.
    pub(super) fn compute(&mut self, kernel: &Kernel) -> Result<Compute> {
        let key = [kernel.time().as_nanos() as u64, kernel.share().to_bits(), kernel.memory().to_bits()];
        if let Some(&known) = self.known.get(&key) {
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
        self.known.insert(key, found);
        Ok(found)
    }

    /// How far the kernels are from those of the workload; `None` before there are any.
    pub(super) fn off(&self) -> Option<KernelsOff> {
        let difference = |&(expected, took): &(Duration, f64)| (took - expected.as_secs_f64()).abs();
        let part = |kernel: &(Duration, f64)| difference(kernel) / kernel.0.as_secs_f64().max(1e-9);
        let farthest = self.took.iter().max_by(|a, b| part(a).total_cmp(&part(b)))?;
        let all: Duration = self.took.iter().map(|(expected, _)| *expected).sum();
        let together = self.took.iter().map(difference).sum::<f64>() / all.as_secs_f64().max(1e-9);
        Some(KernelsOff { together, farthest: part(farthest), farthest_us: micros(farthest.0) })
    }

    /// A block that computes for about `time`.
    pub(super) fn block(&self, time: Duration) -> Compute {
        let rounds = (time.as_secs_f64() / self.round_s).clamp(1.0, f64::from(u32::MAX / 2));
        Compute { blocks: 1, rounds: rounds as u32, loads: 0 }
    }

    /// The launch that transfers as long as a workload's communication once its partners are there.
    pub(super) fn exchange(&self, transfer: Duration, partners_after: Duration) -> Exchange {
        let rounds = (transfer.as_secs_f64() / self.copy_round_s).round().max(1.0);
        Exchange { partners_after, rounds: rounds as u32 }
    }

    /// The device's time for one of several launches that follow each other, less that of nothing.
    fn time(&self, enqueue: &dyn Fn(&Stream) -> Result<()>) -> Result<Duration> {
        let all = Stopwatch::new(self.stream)?
            .median(RUNS, |stream| (0..REPEATED).try_for_each(|_| enqueue(stream)))?;
        Ok((all / REPEATED).saturating_sub(self.launch))
    }

    /// The same, never none.
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

/// One block after another on each multiprocessor, for a kernel that has blocks for all of them.
fn waves(kernel: &Kernel) -> u32 {
    if kernel.share() < 1.0 {
        return 1;
    }
    ((kernel.time().as_secs_f64() / BLOCK.as_secs_f64()).round() as u32).clamp(1, MOST_WAVES)
}
