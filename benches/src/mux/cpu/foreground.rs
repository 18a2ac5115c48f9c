//! A rank of a burst-parallel job: some layers on all ranks, some on one, while the others wait.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpu_mux::{JobState, PolledJob, Upcoming};

use super::work::Matrices;

/// A stretch of an iteration: layers of this length, on all ranks or on one. An exchange between all ranks comes after.
struct Stretch {
    layers: u32,
    layer: Duration,
    only: Option<usize>,
}

/// An iteration on `ranks` ranks.
const fn iteration(ranks: usize) -> [Stretch; 4] {
    let us = Duration::from_micros;
    [
        Stretch { layers: 3, layer: us(400), only: None },
        Stretch { layers: 4, layer: us(500), only: Some(0) },
        Stretch { layers: 2, layer: us(400), only: None },
        Stretch { layers: 2, layer: us(500), only: Some(ranks - 1) },
    ]
}

/// How long an iteration computes on one rank or another: what it takes when nothing disturbs it.
pub(super) fn work() -> Duration {
    iteration(1).iter().map(|stretch| stretch.layer * stretch.layers).sum()
}

/// How it is called in reports.
pub(super) const NAME: &str =
    "layers of 0.4 ms on all ranks and of 0.5 ms on one, with exchanges between them";

/// Memory that the ranks share.
pub(super) struct Shared {
    ranks: Vec<Place>,
    /// A rank has failed: the others must not wait for it.
    given_up: AtomicBool,
}

/// Why a rank has ended: another one has.
#[derive(Debug)]
pub(super) struct GivenUp;

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another rank has ended")
    }
}

impl std::error::Error for GivenUp {}

/// A rank's place in the shared memory.
#[derive(Default)]
struct Place {
    /// Exchanges that it has come to.
    arrived: AtomicUsize,
    /// The bits of what it has computed.
    value: AtomicU32,
}

impl Shared {
    pub(super) fn new(ranks: usize) -> Self {
        let ranks = (0..ranks).map(|_| Place::default()).collect();
        Self { ranks, given_up: AtomicBool::new(false) }
    }

    /// Ends all ranks as soon as they wait for another.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks.len()
    }
}

/// What a rank does next in an iteration.
#[derive(Clone, Copy)]
enum RankStep {
    /// Units of work.
    Layer(usize),
    Exchange,
}

/// A rank, from iteration to iteration.
pub(super) struct Rank<'a> {
    shared: &'a Shared,
    number: usize,
    program: Vec<RankStep>,
    matrices: Matrices,
    /// What the last exchange gave.
    input: f32,
    /// Exchanges that are over.
    exchanges: usize,
}

impl<'a> Rank<'a> {
    pub(super) fn new(shared: &'a Shared, number: usize, unit: Duration) -> Self {
        let mut program = Vec::new();
        for stretch in iteration(shared.ranks()) {
            if stretch.only.is_none_or(|only| only == number) {
                let units = (stretch.layer.as_secs_f64() / unit.as_secs_f64()).round().max(1.0);
                program.extend(std::iter::repeat_n(RankStep::Layer(units as usize), stretch.layers as usize));
            }
            program.push(RankStep::Exchange);
        }
        Self { shared, number, program, matrices: Matrices::new(), input: 0.5, exchanges: 0 }
    }

    /// A job of so many iterations, which begins when all ranks have come to it.
    pub(super) fn iterations(&mut self, iterations: usize) -> Iterations<'_, 'a> {
        let times = Vec::with_capacity(iterations);
        Iterations { rank: self, left: iterations, step: None, arrived: false, began: Instant::now(), times }
    }

    fn arrive(&self) {
        self.shared.ranks[self.number].value.store(self.input.to_bits(), Ordering::Relaxed);
        self.shared.ranks[self.number].arrived.store(self.exchanges + 1, Ordering::Release);
    }

    /// Whether all have come. Never waits.
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

/// Some iterations of a rank.
pub(super) struct Iterations<'r, 'a> {
    rank: &'r mut Rank<'a>,
    left: usize,
    /// The place in the program; `None` before the ranks have come together.
    step: Option<usize>,
    arrived: bool,
    began: Instant,
    times: Vec<Duration>,
}

impl Iterations<'_, '_> {
    /// How long each iteration took.
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
                if self.rank.shared.given_up.load(Ordering::Acquire) {
                    return Err(GivenUp.into());
                }
                return Ok(JobState::Communicating(here));
            }
            self.next_step();
        }
        Ok(JobState::Finished)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        if let Some(RankStep::Layer(units)) = self.step.map(|step| self.rank.program[step]) {
            self.rank.input = self.rank.matrices.work(units, self.rank.input);
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
    fn a_rank_that_has_ended_is_not_waited_for() {
        let shared = Shared::new(2);
        let run = |rank, iterations| {
            let mut rank = Rank::new(&shared, rank, Duration::from_micros(400));
            let mut job = rank.iterations(iterations);
            CpuDriver::<Background>::new(Policy::default()).run(&mut job).map(|_| job.into_times().len())
        };
        thread::scope(|scope| {
            let waits = scope.spawn(|| run(0, 9));
            // What it began with the other one it ends.
            assert_eq!(run(1, 2).unwrap(), 2);
            shared.give_up();
            assert!(waits.join().unwrap().unwrap_err().is::<GivenUp>());
        });
    }
}
