//! The order in which the programs of a rotation are executed. A *rotation* is the programs of
//! consecutive iterations after which the roles of partial backpropagation repeat; without it, one
//! program.

use layer_engine::random::{Purpose, RandomStream};

/// The order in which the programs of [`lower_rotation`](super::lower_rotation) are executed.
///
/// It depends only on the index of the iteration and, if it is random, on the seed of the run. So
/// it is the same on every rank, and after a run is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IterationSchedule {
    count: usize,
    /// Seed of the run, if the order is random.
    seed: Option<u64>,
}

impl IterationSchedule {
    /// Creates the cyclic order of `count` programs: iteration `i` executes program `i` modulo
    /// `count`.
    #[must_use]
    pub fn round_robin(count: usize) -> Self {
        Self { count, seed: None }
    }

    /// Creates the random order of `count` programs: each iteration executes one that is drawn
    /// independently and uniformly. `seed` is the seed of the run.
    #[must_use]
    pub fn random(count: usize, seed: u64) -> Self {
        Self { count, seed: Some(seed) }
    }

    /// Number of programs of the rotation.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the index of the program that an iteration executes. Iterations are numbered from 0
    /// at the beginning of the run.
    #[must_use]
    pub fn program_of(&self, iteration: u64) -> usize {
        match self.seed {
            Some(seed) => RandomStream::new(seed, Purpose::Schedule, iteration, "", 0).below(self.count),
            None => (iteration % self.count.max(1) as u64) as usize,
        }
    }

    /// Returns the number of iterations, beginning with iteration `first`, in which each program is
    /// executed at least `times` times.
    #[cfg(feature = "cuda")]
    pub(crate) fn iterations_until_each(&self, first: u64, times: u64) -> u64 {
        let mut left = vec![times; self.count];
        let mut iteration = first;
        while left.iter().any(|&left| left > 0) {
            let program = &mut left[self.program_of(iteration)];
            *program = program.saturating_sub(1);
            iteration += 1;
        }
        iteration - first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_programs_are_uniform_and_independent() {
        let schedule = IterationSchedule::random(4, 7);
        let mut counts = [0; 4];
        let mut pairs = [[0; 4]; 4];
        for iteration in 0..40_000 {
            counts[schedule.program_of(iteration)] += 1;
            pairs[schedule.program_of(iteration)][schedule.program_of(iteration + 1)] += 1;
        }
        // Five standard deviations.
        assert!(counts.iter().all(|count| (9_567..10_433).contains(count)), "{counts:?}");
        assert!(pairs.as_flattened().iter().all(|count| (2_258..2_742).contains(count)), "{pairs:?}");
        let other = IterationSchedule::random(4, 8);
        assert!((0..100).any(|iteration| schedule.program_of(iteration) != other.program_of(iteration)));
        assert!(
            (0..9)
                .map(|iteration| IterationSchedule::round_robin(3).program_of(iteration))
                .eq([0, 1, 2, 0, 1, 2, 0, 1, 2])
        );
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn execution_counts_match_the_schedule() {
        assert_eq!(IterationSchedule::round_robin(3).iterations_until_each(5, 2), 6);
        let schedule = IterationSchedule::random(3, 1);
        let count = schedule.iterations_until_each(5, 2);
        let of = |program: usize, until: u64| {
            (5..5 + until).filter(|&at| schedule.program_of(at) == program).count()
        };
        assert!((0..3).all(|program| of(program, count) >= 2));
        assert!((0..3).any(|program| of(program, count - 1) < 2));
    }
}
