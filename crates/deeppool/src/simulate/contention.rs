//! Times of the steps of ranks that are cores of one machine, where a rank's steps depend on what
//! the other ranks do meanwhile. A rank is busy while it computes and while a collective that it
//! belongs to transfers.

use std::time::Duration;

use super::SimulateOptions;
use super::jobs::Span;
use super::simulated_ranks::SimulatedRanks;
use super::steps::RankClass;
use super::times::ProgramTimes;
use crate::Error;
use crate::costs::Costs;
use crate::program::{Lane, Program, RankProgram, Step};

/// Maximum number of simulations after which the times of the steps are final. They change little
/// after the second one.
const ROUNDS: usize = 6;

/// Returns the times of ranks that share a machine. The profile has [times of several
/// ranks](layer_profile::ProfileTable::contended), and `times` are those of a simulation without:
///
/// - A step takes the time of the number of ranks that are busy meanwhile; with a background
///   job, of all ranks.
/// - Communication computes: while a collective transfers, its ranks do not compute.
///
/// The intervals in which ranks are busy are known from a simulation, which is repeated with the
/// new times. Up to six simulations of two iterations.
///
/// # Errors
/// As [`RankClass::of_ranks`], and [`Error::Mux`] for invalid device parameters.
pub(super) fn times_of_shared_machine(
    mut times: ProgramTimes,
    program: &Program,
    costs: &Costs<'_>,
    options: &SimulateOptions,
) -> Result<ProgramTimes, Error> {
    let alone = options.clone().without_background().with_iterations(2).unlimited_if_alone();
    for _ in 0..ROUNDS {
        let classes = RankClass::of_ranks(program, costs, &times)?;
        let mut simulated = SimulatedRanks::new(program, &classes, &alone)?;
        simulated.run(alone.warm_up(), alone.iterations())?;
        let (busy, beside) = (Busy::new(program, &simulated), options.has_background());
        let ranks = program.ranks.iter().enumerate();
        let steps = ranks.map(|(index, rank)| busy.step_times(index, rank, costs, beside));
        let steps = steps.collect::<Result<_, _>>()?;
        if steps == times.steps {
            break;
        }
        times.steps = steps;
    }
    Ok(times)
}

/// The intervals in which the ranks were busy in the last iteration of a simulation.
struct Busy {
    /// Interval of each step, by index in [`Program::ranks`], then by step.
    spans: Vec<Vec<Span>>,
    /// Times at which the number of busy ranks changes, ascending, each with the integral of that
    /// number over the time before it, in rank-seconds, and the number from then on.
    changes: Vec<(f64, f64, f64)>,
}

impl Busy {
    fn new(program: &Program, simulated: &SimulatedRanks<'_>) -> Self {
        let mut spans = Vec::new();
        let mut deltas: Vec<(f64, f64)> = Vec::new();
        for rank in &program.ranks {
            let (of_rank, period) = simulated.last_iteration(rank);
            let ranks = rank.represented_ranks.len() as f64;
            for (start, end) in union(&of_rank) {
                // Iterations repeat; those of other ranks may be earlier or later.
                for shift in [-1.0, 0.0, 1.0].map(|iterations| iterations * period.as_secs_f64()) {
                    deltas.extend([(start + shift, ranks), (end + shift, -ranks)]);
                }
            }
            spans.push(of_rank);
        }
        deltas.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut integral, mut count, mut last) = (0.0, 0.0, 0.0);
        let change = |(at, delta): (f64, f64)| {
            integral += count * (at - last);
            (count, last) = (count + delta, at);
            (at, integral, count)
        };
        Self { spans, changes: deltas.into_iter().map(change).collect() }
    }

    /// Returns the integral of the number of busy ranks up to a time, in rank-seconds.
    fn integral(&self, at: f64) -> f64 {
        let next = self.changes.partition_point(|&(change, ..)| change <= at);
        let before = next.checked_sub(1).map(|index| self.changes[index]);
        before.map_or(0.0, |(change, integral, count)| integral + count * (at - change))
    }

    /// Returns the mean number of busy ranks in an interval; 1 for an empty one.
    fn mean(&self, span: Span) -> f64 {
        let (start, end) = (span.start.as_secs_f64(), span.end.as_secs_f64());
        if end > start { (self.integral(end) - self.integral(start)) / (end - start) } else { 1.0 }
    }

    /// Returns the new times of the steps of a rank's program, given by its index. `beside` is
    /// whether there is a background job, with which all ranks always compute.
    fn step_times(
        &self,
        index: usize,
        rank: &RankProgram,
        costs: &Costs<'_>,
        beside: bool,
    ) -> Result<Vec<Duration>, Error> {
        let spans = &self.spans[index];
        let is_transfer = |(step, _): &(&Step, &Span)| step.lane() == Lane::Communication;
        let transfers: Vec<Span> =
            rank.steps.iter().zip(spans).filter(is_transfer).map(|(_, &span)| span).collect();
        let of_step = |(step, &span): (&Step, &Span)| {
            let computing = if beside { f64::INFINITY } else { self.mean(span) };
            let time = costs.compute_time_among(rank, &step.op, computing)?;
            let within =
                |transfer: &Span| transfer.end.min(span.end).saturating_sub(transfer.start.max(span.start));
            let transferring: Duration = transfers.iter().map(within).sum();
            Ok(if time.is_zero() { time } else { time + transferring })
        };
        rank.steps.iter().zip(spans).map(of_step).collect()
    }
}

/// Returns the union of intervals, as disjoint intervals in seconds.
fn union(spans: &[Span]) -> Vec<(f64, f64)> {
    let mut spans: Vec<&Span> = spans.iter().filter(|span| span.end > span.start).collect();
    spans.sort_by_key(|span| span.start);
    let mut union: Vec<(Duration, Duration)> = Vec::new();
    for span in spans {
        match union.last_mut() {
            Some((_, end)) if span.start <= *end => *end = span.end.max(*end),
            _ => union.push((span.start, span.end)),
        }
    }
    union.into_iter().map(|(start, end)| (start.as_secs_f64(), end.as_secs_f64())).collect()
}
