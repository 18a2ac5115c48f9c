//! Foreground job of a rank of a burst-parallel job: some layers run on all ranks, some on one
//! while the others wait. A *unit* is one product of small matrices, of which all computation
//! consists; in an *exchange* every rank waits for the results of all others.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpu_mux::{JobState, PolledJob, Upcoming};

use super::matrices::Matrices;

/// A segment of an iteration: layers of one duration on all ranks or on one, followed by an
/// exchange between all ranks.
struct Segment {
    layers: u32,
    layer: Duration,
    only: Option<usize>,
}

/// Returns the segments of an iteration on `ranks` ranks.
const fn iteration(ranks: usize) -> [Segment; 4] {
    let us = Duration::from_micros;
    [
        Segment { layers: 3, layer: us(400), only: None },
        Segment { layers: 4, layer: us(500), only: Some(0) },
        Segment { layers: 2, layer: us(400), only: None },
        Segment { layers: 2, layer: us(500), only: Some(ranks - 1) },
    ]
}

/// Returns the nominal duration of an iteration: the sum of the layers' durations, those on one
/// rank included.
pub(super) fn undisturbed_time() -> Duration {
    iteration(1).iter().map(|segment| segment.layer * segment.layers).sum()
}

/// Description of the foreground job in reports.
pub(super) const NAME: &str =
    "layers of 0.4 ms on all ranks and of 0.5 ms on one, with exchanges between them";

/// Memory shared by the ranks, through which they exchange results.
pub(super) struct Shared {
    ranks: Vec<RankSlot>,
    /// Whether a rank has failed, so that the others must not wait for it.
    failed: AtomicBool,
}

/// Error of a rank that stops because another one has failed.
#[derive(Debug)]
pub(super) struct OtherRankFailed;

impl fmt::Display for OtherRankFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another rank has ended")
    }
}

impl std::error::Error for OtherRankFailed {}

/// Shared memory of one rank.
#[derive(Default)]
struct RankSlot {
    /// Number of exchanges at which it has arrived.
    arrived: AtomicUsize,
    /// Bits of its last result.
    value: AtomicU32,
}

impl Shared {
    /// Creates the memory of `ranks` ranks.
    pub(super) fn new(ranks: usize) -> Self {
        let ranks = (0..ranks).map(|_| RankSlot::default()).collect();
        Self { ranks, failed: AtomicBool::new(false) }
    }

    /// Makes every rank return an error when it would wait for another rank.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Returns the number of ranks.
    pub(super) fn ranks(&self) -> usize {
        self.ranks.len()
    }
}

/// Step of a rank in an iteration.
#[derive(Clone, Copy)]
enum RankStep {
    /// Number of units of arithmetic.
    Layer(usize),
    Exchange,
}

/// State of a rank, which is kept from one job to the next.
pub(super) struct Rank<'a> {
    shared: &'a Shared,
    number: usize,
    program: Vec<RankStep>,
    matrices: Matrices,
    /// Result of the last exchange.
    input: f32,
    /// Number of completed exchanges.
    exchanges: usize,
}

impl<'a> Rank<'a> {
    /// Creates the rank `number`, from 0 to `shared.ranks() - 1`. `unit` is the duration of a unit.
    pub(super) fn new(shared: &'a Shared, number: usize, unit: Duration) -> Self {
        let mut program = Vec::new();
        for segment in iteration(shared.ranks()) {
            if segment.only.is_none_or(|only| only == number) {
                let units = (segment.layer.as_secs_f64() / unit.as_secs_f64()).round().max(1.0);
                let layer = RankStep::Layer(units as usize);
                program.extend(std::iter::repeat_n(layer, segment.layers as usize));
            }
            program.push(RankStep::Exchange);
        }
        Self { shared, number, program, matrices: Matrices::new(), input: 0.5, exchanges: 0 }
    }

    /// Returns a job of `iterations` iterations, which begins when all ranks have arrived.
    pub(super) fn iterations(&mut self, iterations: usize) -> Iterations<'_, 'a> {
        let times = Vec::with_capacity(iterations);
        Iterations { rank: self, left: iterations, step: None, arrived: false, began: Instant::now(), times }
    }

    fn arrive(&self) {
        self.shared.ranks[self.number].value.store(self.input.to_bits(), Ordering::Relaxed);
        self.shared.ranks[self.number].arrived.store(self.exchanges + 1, Ordering::Release);
    }

    /// Returns whether all ranks have arrived, and then completes the exchange. Never waits.
    fn exchange(&mut self) -> bool {
        let next = self.exchanges + 1;
        let all = self.shared.ranks.iter().all(|place| place.arrived.load(Ordering::Acquire) >= next);
        if all {
            let values = self.shared.ranks.iter().map(|place| place.value.load(Ordering::Relaxed));
            self.input = values.map(f32::from_bits).sum::<f32>() / self.shared.ranks() as f32;
            self.exchanges = next;
        }
        all
    }
}

/// A foreground job of a rank with a fixed number of iterations.
pub(super) struct Iterations<'r, 'a> {
    rank: &'r mut Rank<'a>,
    left: usize,
    /// Index in the program. `None` before all ranks have arrived.
    step: Option<usize>,
    arrived: bool,
    began: Instant,
    times: Vec<Duration>,
}

impl Iterations<'_, '_> {
    /// Returns the duration of each completed iteration.
    pub(super) fn into_times(self) -> Vec<Duration> {
        self.times
    }

    fn next_step(&mut self) {
        self.arrived = false;
        let next = self.step.map_or(0, |step| step + 1);
        self.step = Some(next % self.rank.program.len());
        if self.step == Some(0) {
            if next > 0 {
                self.times.push(self.began.elapsed());
                self.left -= 1;
            }
            self.began = Instant::now();
        }
    }
}

impl PolledJob for Iterations<'_, '_> {
    type Error = anyhow::Error;

    fn poll(&mut self) -> anyhow::Result<JobState> {
        while self.left > 0 {
            let here = Upcoming { site: self.step.and_then(|step| u32::try_from(step).ok()), estimate: None };
            if let Some(RankStep::Layer(_)) = self.step.map(|step| self.rank.program[step]) {
                return Ok(JobState::Ready(here));
            }
            if !self.arrived {
                self.rank.arrive();
                self.arrived = true;
            }
            if !self.rank.exchange() {
                if self.rank.shared.failed.load(Ordering::Acquire) {
                    return Err(OtherRankFailed.into());
                }
                return Ok(JobState::Communicating(here));
            }
            self.next_step();
        }
        Ok(JobState::Finished)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        if let Some(RankStep::Layer(units)) = self.step.map(|step| self.rank.program[step]) {
            self.rank.input = self.rank.matrices.multiply_units(units, self.rank.input);
            self.next_step();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use gpu_mux::{CpuDriver, Policy};

    use super::super::background::Background;
    use super::*;

    #[test]
    fn ranks_do_not_wait_for_a_failed_rank() {
        let shared = Shared::new(2);
        let run = |rank, iterations| {
            let mut rank = Rank::new(&shared, rank, Duration::from_micros(400));
            let mut job = rank.iterations(iterations);
            CpuDriver::<Background>::new(Policy::default()).run(&mut job).map(|_| job.into_times().len())
        };
        thread::scope(|scope| {
            let waits = scope.spawn(|| run(0, 9));
            // It completes the iterations that both ranks have begun.
            assert_eq!(run(1, 2).unwrap(), 2);
            shared.fail();
            assert!(waits.join().unwrap().unwrap_err().is::<OtherRankFailed>());
        });
    }
}
