//! Times of the steps of a program in a measured timeline.

use std::collections::HashMap;
use std::time::Duration;

use layer_graph::{LayerGraph, LayerId};

use crate::program::{BufferId, CollectiveId, Contents, Op, Program, RankProgram, Step};
use crate::timeline::{Timeline, TimelineEvent};

/// Part of a training iteration to which a compute step belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Forward steps.
    Forward,
    /// Backward steps, with the sums of gradients.
    Backward,
    /// Optimiser steps.
    Update,
}

/// Times of the steps of a program in the iterations of a measured timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedTimes<'p> {
    program: &'p Program,
    /// Intervals of the steps, by index in [`Program::ranks`], by iteration, by step. A step
    /// without an event has an empty interval.
    spans: Vec<Vec<Vec<(Duration, Duration)>>>,
}

/// A collective in one iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservedCollective {
    /// Time from the arrival of the last rank to the end on the last rank, without the time in
    /// which a rank computed meanwhile.
    pub transfer: Duration,
    /// Time from the arrival of the last rank to the end on the last rank.
    pub elapsed: Duration,
    /// Time from the arrival of the first rank to that of the last one.
    pub wait: Duration,
}

impl<'p> ObservedTimes<'p> {
    /// Collects the steps of a timeline that was measured while the program ran, with one program
    /// for each rank. Iterations that are not complete on all ranks are left out, and so are the
    /// background jobs. O(events).
    #[must_use]
    pub fn new(program: &'p Program, timeline: &Timeline) -> Self {
        let mut events: Vec<Vec<Vec<&TimelineEvent>>> =
            program.ranks.iter().map(|rank| vec![Vec::new(); rank.steps.len()]).collect();
        for event in timeline.events() {
            let rank = program.ranks.iter().position(|rank| rank.rank == event.rank);
            if let (Some(rank), Some(step)) = (rank, event.step) {
                if let Some(of_step) = events[rank].get_mut(step.0) {
                    of_step.push(event);
                }
            }
        }
        let counts = events.iter().flatten().map(Vec::len).filter(|&count| count > 0);
        let iterations = counts.min().unwrap_or(0);
        let spans = events.iter().map(|of_rank| {
            let span = |events: &Vec<&TimelineEvent>, iteration: usize| {
                let event = events.get(iteration);
                event.map_or((Duration::ZERO, Duration::ZERO), |of| (of.start, of.start + of.duration))
            };
            let of_iteration = |iteration| of_rank.iter().map(|events| span(events, iteration)).collect();
            (0..iterations).map(of_iteration).collect()
        });
        Self { spans: spans.collect(), program }
    }

    /// Number of iterations.
    #[must_use]
    pub fn iterations(&self) -> usize {
        self.spans.first().map_or(0, Vec::len)
    }

    /// Returns the times of all compute steps by layer and phase, summed over the steps of an
    /// iteration: one value for each rank that has the layer, and iteration. Steps that are of no
    /// layer, such as a sum of gradients, count for the layer whose buffer they write.
    #[must_use]
    pub fn layers(&self, network: &LayerGraph) -> HashMap<(LayerId, Phase), Vec<Duration>> {
        let mut times: HashMap<_, Vec<Duration>> = HashMap::new();
        for (rank, iterations) in self.program.ranks.iter().zip(&self.spans) {
            let places: Vec<_> = rank.steps.iter().map(|step| place(network, rank, step)).collect();
            for spans in iterations {
                let mut sums: HashMap<(LayerId, Phase), Duration> = HashMap::new();
                for (place, &(start, end)) in places.iter().zip(spans) {
                    if let Some(place) = place {
                        *sums.entry(*place).or_default() += end.saturating_sub(start);
                    }
                }
                for (place, sum) in sums {
                    times.entry(place).or_default().push(sum);
                }
            }
        }
        times
    }

    /// Returns the longest time that a rank computed in each iteration.
    #[must_use]
    pub fn longest_computing(&self) -> Vec<Duration> {
        let computing = |rank: usize, iteration: usize| {
            let steps = self.program.ranks[rank].steps.iter().zip(&self.spans[rank][iteration]);
            let computes = steps.filter(|(step, _)| !matches!(step.op, Op::Collective(_)));
            computes.map(|(_, (start, end))| end.saturating_sub(*start)).sum::<Duration>()
        };
        let ranks = 0..self.program.ranks.len();
        let longest = |iteration| ranks.clone().map(|rank| computing(rank, iteration)).max();
        (0..self.iterations()).filter_map(longest).collect()
    }

    /// Returns each collective of the program with its times, by iteration.
    #[must_use]
    pub fn collectives(&self) -> Vec<Vec<ObservedCollective>> {
        let ids = (0..self.program.collectives.len()).map(CollectiveId);
        ids.map(|id| (0..self.iterations()).filter_map(|at| self.collective(id, at)).collect()).collect()
    }

    fn collective(&self, id: CollectiveId, iteration: usize) -> Option<ObservedCollective> {
        let mut own: Vec<(usize, (Duration, Duration))> = Vec::new();
        for (index, rank) in self.program.ranks.iter().enumerate() {
            let step = rank.steps.iter().position(|step| step.op == Op::Collective(id));
            own.extend(step.map(|step| (index, self.spans[index][iteration][step])));
        }
        let arrivals = || own.iter().map(|(_, (start, _))| *start);
        let (first, last) = (arrivals().min()?, arrivals().max()?);
        let end = own.iter().map(|(_, (_, end))| *end).max()?;
        let computed = |&(index, _): &(usize, _)| {
            let steps = self.program.ranks[index].steps.iter().zip(&self.spans[index][iteration]);
            let computes = steps.filter(|(step, _)| !matches!(step.op, Op::Collective(_)));
            let within =
                |(_, span): (_, &(Duration, Duration))| span.1.min(end).saturating_sub(span.0.max(last));
            computes.map(within).sum::<Duration>()
        };
        let computed = own.iter().map(computed).max().unwrap_or_default();
        let elapsed = end.saturating_sub(last);
        let transfer = elapsed.saturating_sub(computed);
        Some(ObservedCollective { transfer, elapsed, wait: last.saturating_sub(first) })
    }
}

/// Returns the median, the middle value or the lower of the two; zero if there are no values.
pub(super) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Returns the layer and the phase for which a compute step counts; `None` for a collective.
fn place(network: &LayerGraph, rank: &RankProgram, step: &Step) -> Option<(LayerId, Phase)> {
    let written = || step.writes.first().map(|&BufferId(id)| rank.buffers[id].contents);
    let place = match &step.op {
        Op::Forward { layer, .. } => (*layer, Phase::Forward),
        Op::Backward { layer, .. } | Op::ScaleGradient { layer, .. } => (*layer, Phase::Backward),
        Op::OptimizerStep { layer, .. } => (*layer, Phase::Update),
        Op::LoadBatch { .. } => match written()? {
            Contents::Operand(layer, _) | Contents::Moved(layer) => (layer, Phase::Forward),
            _ => return None,
        },
        Op::SumGradients | Op::SumAddends { .. } | Op::AddGradient => match written()? {
            Contents::Operand(layer, _) | Contents::Moved(layer) => (layer, Phase::Backward),
            _ => return None,
        },
        Op::SquaredNorm | Op::Collective(_) => return None,
    };
    // An input layer computes nothing: its samples are loaded for the first layer that reads them.
    if network.is_input(place.0) {
        let (reader, _) = network.consumers(place.0).first().copied()?;
        return Some((reader, place.1));
    }
    Some(place)
}
