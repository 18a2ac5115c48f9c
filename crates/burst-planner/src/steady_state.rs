//! The steady state: the time of an iteration after many others, in which all ranks take the same
//! time. A *class* is a set of ranks that do identical work; one of them is simulated for all.

/// Maximum number of iterations that are simulated to find the steady state.
const MAX_ITERATIONS: usize = 12;
/// Relative tolerance: the steady state is reached if the durations of an iteration on all ranks
/// differ by less.
pub(crate) const STEADY_TOLERANCE: f64 = 1e-9;

/// End times of simulated iterations for each class, microseconds.
#[derive(Debug, Default)]
pub(crate) struct IterationEnds {
    classes: usize,
    /// By iteration and class: the time when both lanes are done. The first row has the start
    /// times.
    ends: Vec<f64>,
}

impl IterationEnds {
    /// Removes all iterations, and starts `classes` classes at time 0.
    pub(crate) fn reset(&mut self, classes: usize) {
        self.classes = classes;
        self.ends.clear();
        self.ends.resize(classes, 0.0);
    }

    /// Adds an iteration with the end time of each class, microseconds.
    pub(crate) fn push(&mut self, ends: impl Iterator<Item = f64>) {
        self.ends.extend(ends);
    }

    fn iterations(&self) -> usize {
        self.ends.len() / self.classes - 1
    }

    fn line(&self, iteration: usize) -> &[f64] {
        &self.ends[iteration * self.classes..(iteration + 1) * self.classes]
    }

    /// Returns the duration of the last iteration for each class.
    fn last_durations(&self) -> impl Iterator<Item = f64> + '_ {
        let [last, before] = [self.iterations(), self.iterations() - 1].map(|at| self.line(at));
        last.iter().zip(before).map(|(last, before)| last - before)
    }

    /// Returns the time from one iteration to the next in the steady state, microseconds, or `None`
    /// if more iterations are needed. Without a steady state after a dozen iterations, returns the
    /// mean of the later ones.
    pub(crate) fn period(&self) -> Option<f64> {
        let (minimum, maximum) =
            self.last_durations().fold((f64::INFINITY, 0.0_f64), |(minimum, maximum), last_durations| {
                (minimum.min(last_durations), maximum.max(last_durations))
            });
        let iterations = self.iterations();
        let latest = |iteration: usize| self.line(iteration).iter().copied().fold(0.0, f64::max);
        let since = |first: usize| (latest(iterations) - latest(first)) / (iterations - first) as f64;
        // All classes start together, or as far apart as they ended: the steady state.
        if maximum - minimum <= STEADY_TOLERANCE * maximum {
            Some(since(iterations - 1))
        } else if iterations >= MAX_ITERATIONS {
            // The mean of the latter half.
            Some(since(iterations.div_ceil(2)))
        } else {
            None
        }
    }

    /// Returns a lower bound of the [period](Self::period) after one iteration, microseconds.
    ///
    /// Each end time is a maximum of sums of start times and durations. So if every class takes at
    /// least some time in one iteration, the mean over later iterations is at least as long.
    pub(crate) fn min_period(&self) -> f64 {
        self.last_durations().fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use crate::evaluator::Evaluator;
    use crate::testing::{Graph, RandomProblem, random_arrangement, random_problem_on};

    #[test]
    fn bounds_after_one_iteration_are_at_most_the_time() {
        let (mut cut_short, mut all) = (0, 0);
        for seed in 0..200 {
            let graph = [Graph::Chain, Graph::Branches, Graph::Dag][seed as usize % 3];
            let RandomProblem { problem, costs, .. } =
                random_problem_on(seed, graph, 2 + seed as usize % 11, 2 + seed as usize % 4);
            let mut evaluator = Evaluator::new(&problem, &costs).expect("a valid problem");
            for draw in 0..10 {
                let arrangement = random_arrangement(&problem, 1000 * seed + draw);
                let numbered = evaluator.numbered(&arrangement).expect("a valid arrangement");
                let (exact, _) = evaluator.time(&numbered).expect("times for all counts");
                let told = RefCell::new(Vec::new());
                let tell = |minimum| {
                    told.borrow_mut().push(minimum);
                    false
                };
                let (same, _) = evaluator.time_with_cutoff(&numbered, tell).expect("times for all counts");
                assert_eq!(same, exact, "seed {seed}, draw {draw}");
                for minimum in told.into_inner() {
                    assert!(
                        minimum.iteration_us <= exact.iteration_us
                            && minimum.gpu_time_us <= exact.gpu_time_us,
                        "seed {seed}, draw {draw}: {minimum:?} is known, and it takes {exact:?}"
                    );
                    assert!(
                        minimum.iteration_us > 0.1 * exact.iteration_us,
                        "seed {seed}, draw {draw}: {minimum:?}"
                    );
                }
                let (minimum, _) =
                    evaluator.time_with_cutoff(&numbered, |_| true).expect("times for all counts");
                cut_short += usize::from(minimum.iteration_us < exact.iteration_us);
                all += 1;
            }
        }
        assert!(cut_short > all / 4, "only {cut_short} of {all} were cut short");
    }
}
