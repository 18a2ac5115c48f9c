//! Times of the steps of a job's last iterations on one rank.

use std::collections::VecDeque;
use std::time::Instant;

use crate::Error;
use crate::program::StepId;
use crate::runtime::{LossMetrics, Observer, TimeSpan};

/// Steps of a program that were launched together, and the time interval in which they ran.
pub(super) type Launched = (Vec<StepId>, TimeSpan);

/// Observer that records the times of the steps of a job's last iterations.
pub(super) struct StepTimes {
    iterations: usize,
    /// Completed iterations, with their numbers.
    done: VecDeque<(u64, Vec<Launched>)>,
    current: Vec<Launched>,
}

impl StepTimes {
    /// Creates an observer that keeps the last `iterations` completed iterations and the current
    /// one. With 0 it records nothing.
    pub(super) fn new(iterations: usize) -> Self {
        Self { iterations, done: VecDeque::new(), current: Vec::new() }
    }

    /// Returns all recorded launches, oldest first, each with the index of its iteration, from 0.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &Launched)> {
        let next = self.done.back().map_or(0, |(iteration, _)| iteration + 1);
        let done =
            self.done.iter().flat_map(|(iteration, launched)| launched.iter().map(|of| (*iteration, of)));
        done.chain(self.current.iter().map(move |of| (next, of)))
    }
}

impl Observer for StepTimes {
    fn ended(&mut self, steps: &[StepId], ran: TimeSpan) {
        if self.iterations > 0 {
            self.current.push((steps.to_vec(), ran));
        }
    }

    fn finished_iteration(
        &mut self,
        iteration: u64,
        _metrics: &[LossMetrics],
        _at: Instant,
    ) -> Result<(), Error> {
        if self.iterations > 0 {
            if self.done.len() == self.iterations {
                self.done.pop_front();
            }
            self.done.push_back((iteration, std::mem::take(&mut self.current)));
        }
        Ok(())
    }
}
