//! When the steps of the last iterations ran, on all ranks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use layer_graph::LayerGraph;
use serde::{Deserialize, Serialize};

use super::TrainConfig;
use super::rank::Programs;
use crate::Error;
use crate::program::{Op, Program, RankProgram, Step, StepId};
use crate::runtime::Observer;
use crate::timeline::{Origin, Timeline, TimelineEvent, TimelineWork};

/// A step that has run.
#[derive(Debug, Clone, Copy)]
struct Ran {
    step: StepId,
    began: Instant,
    ended: Instant,
}

/// Remembers the steps of the last iterations of one job.
pub(super) struct StepTimes {
    iterations: usize,
    done: VecDeque<Vec<Ran>>,
    current: Vec<Ran>,
}

impl StepTimes {
    /// Of so many iterations.
    pub(super) fn new(iterations: usize) -> Self {
        Self { iterations, done: VecDeque::new(), current: Vec::new() }
    }

    fn all(&self) -> impl Iterator<Item = &Ran> {
        self.done.iter().flatten().chain(&self.current)
    }
}

impl Observer for StepTimes {
    fn ended(&mut self, step: StepId, began: Instant) {
        if self.iterations > 0 {
            self.current.push(Ran { step, began, ended: Instant::now() });
        }
    }

    fn finished_iteration(&mut self, _iteration: u64, _metrics: Option<[f32; 2]>) -> Result<(), Error> {
        if self.iterations > 0 {
            if self.done.len() == self.iterations {
                self.done.pop_front();
            }
            self.done.push_back(std::mem::take(&mut self.current));
        }
        Ok(())
    }
}

/// What a rank tells the others of its steps: when they began before a moment that all ranks share, and for how long they ran.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct RankTrace {
    foreground: Vec<(usize, Duration, Duration)>,
    background: Vec<(usize, Duration, Duration)>,
}

impl RankTrace {
    /// `moment` is when this rank left a barrier of all ranks, after all that it ran: clocks differ by what a barrier takes at most.
    pub(super) fn new(foreground: &StepTimes, background: Option<&StepTimes>, moment: Instant) -> Self {
        let from = foreground.all().map(|ran| ran.began).min();
        let told =
            |ran: &Ran| (ran.step.0, moment.duration_since(ran.began), ran.ended.duration_since(ran.began));
        let is_beside = |ran: &&Ran| from.is_some_and(|from| ran.began >= from);
        Self {
            foreground: foreground.all().map(told).collect(),
            background: background.into_iter().flat_map(StepTimes::all).filter(is_beside).map(told).collect(),
        }
    }
}

/// The timeline of all ranks.
pub(super) fn timeline(config: &TrainConfig<'_>, programs: &Programs, traces: &[RankTrace]) -> Timeline {
    let foreground = traces.iter().flat_map(|trace| &trace.foreground);
    let first = foreground.map(|&(_, before, _)| before).max().unwrap_or_default();
    let background = config.background.as_ref().zip(programs.background.as_ref());
    let mut events = Vec::new();
    for (rank, trace) in traces.iter().enumerate() {
        let mut add = |work: TimelineWork, step, label: &str, (before, duration): (Duration, Duration)| {
            let start = first.saturating_sub(before);
            events.push(TimelineEvent { rank, work, step, label: label.into(), start, duration });
        };
        for &(index, before, duration) in &trace.foreground {
            if let Some(step) = step_of(programs.training.ranks.get(rank), index) {
                add(work_of(&programs.training, step), Some(StepId(index)), &step.label, (before, duration));
            }
        }
        let Some((job, program)) = background else { continue };
        for &(index, before, duration) in &trace.background {
            if let Some(step) = step_of(program.ranks.first(), index) {
                let work = TimelineWork::Background {
                    job: job.network.name().into(),
                    layers: layer_of(job.network, step).into_iter().collect(),
                };
                add(work, None, &step.label, (before, duration));
            }
        }
    }
    Timeline::new(Origin::Measured, events)
}

fn step_of(program: Option<&RankProgram>, index: usize) -> Option<&Step> {
    program.and_then(|program| program.steps.get(index))
}

fn work_of(program: &Program, step: &Step) -> TimelineWork {
    match step.op {
        Op::Collective(id) => {
            let collective = &program.collectives[id.0];
            TimelineWork::Communication { bytes: collective.bytes(), ranks: collective.ranks.clone() }
        }
        _ => TimelineWork::Compute,
    }
}

fn layer_of(network: &LayerGraph, step: &Step) -> Option<String> {
    match step.op {
        Op::Forward { layer, .. } | Op::Backward { layer, .. } | Op::OptimizerStep { layer, .. } => {
            Some(network.layer(layer).name().to_owned())
        }
        _ => None,
    }
}
