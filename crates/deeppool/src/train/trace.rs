//! Times of the steps of the last iterations on all ranks. A launch is one or more steps that were
//! launched together. Ranks exchange times relative to a moment that all of them share: the end of
//! a barrier.

use std::time::{Duration, Instant};

use layer_graph::LayerGraph;
use serde::{Deserialize, Serialize};

use super::TrainConfig;
use super::programs::Programs;
use super::step_times::{Launched, StepTimes};
use crate::program::{Op, Program, RankProgram, Step, StepId};
use crate::timeline::{Origin, Timeline, TimelineEvent, TimelineWork};

/// Launches of the foreground and the background jobs in a rank's last iterations, in the form that
/// ranks exchange.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct RankTrace {
    foreground: Vec<LaunchRecord>,
    /// Launches of each background job of the rank.
    background: Vec<Vec<LaunchRecord>>,
}

/// The iteration, the steps, the time from their start to the shared moment, and their duration.
type LaunchRecord = (u64, Vec<usize>, Duration, Duration);

impl RankTrace {
    /// Converts the recorded launches of a rank: of the foreground, and of each background job from
    /// the foreground's first launch on. `moment` is when this rank left a barrier of all ranks,
    /// after all its launches. Clocks differ by at most the duration of the barrier.
    pub(super) fn new(foreground: &StepTimes, background: &[&StepTimes], moment: Instant) -> Self {
        let from = foreground.all().map(|(_, (_, ran))| ran.began).min();
        let record = |(iteration, (steps, ran)): (u64, &Launched)| {
            let steps = steps.iter().map(|step| step.0).collect();
            (iteration, steps, moment.duration_since(ran.began), ran.ended.duration_since(ran.began))
        };
        let is_beside = |(_, (_, ran)): &(u64, &Launched)| from.is_some_and(|from| ran.began >= from);
        Self {
            foreground: foreground.all().map(record).collect(),
            background: background
                .iter()
                .map(|steps| steps.all().filter(is_beside).map(record).collect())
                .collect(),
        }
    }
}

/// Returns the timeline of all ranks from their traces, indexed by rank. It begins with the first
/// foreground launch of any rank.
pub(super) fn timeline(config: &TrainConfig<'_>, programs: &Programs<'_>, traces: &[RankTrace]) -> Timeline {
    let foreground = traces.iter().flat_map(|trace| &trace.foreground);
    let first = foreground.map(|&(_, _, before, _)| before).max().unwrap_or_default();
    let mut events = Vec::new();
    for (rank, trace) in traces.iter().enumerate() {
        let mut add = |work: TimelineWork, step, label: &str, (before, duration): (Duration, Duration)| {
            let start = first.saturating_sub(before);
            events.push(TimelineEvent { rank, work, step, label: label.into(), start, duration });
        };
        for (iteration, launched, before, duration) in &trace.foreground {
            let program = programs.of_iteration(*iteration);
            let steps = steps_of(program.ranks.get(rank), launched);
            if let (Some(step), Some(&first)) = (steps.first(), launched.first()) {
                let work = work_of(program, step);
                add(work, Some(StepId(first)), &label_of(&steps), (*before, *duration));
            }
        }
        for ((index, job), launches) in config.background_of(rank).zip(&trace.background) {
            let program = job.place_of(rank).and_then(|place| programs.background[index].ranks.get(place));
            for (_, launched, before, duration) in launches {
                let steps = steps_of(program, launched);
                let layers = steps.iter().filter_map(|step| layer_of(job.network, step)).collect();
                let work = TimelineWork::Background { job: job.network.name().into(), layers };
                add(work, None, &label_of(&steps), (*before, *duration));
            }
        }
    }
    Timeline::new(Origin::Measured, events)
}

fn steps_of<'p>(program: Option<&'p RankProgram>, launched: &[usize]) -> Vec<&'p Step> {
    let steps = launched.iter().filter_map(|&index| program?.steps.get(index));
    steps.collect()
}

/// Returns the label of steps that were launched together.
fn label_of(steps: &[&Step]) -> String {
    match steps {
        [] => String::new(),
        [only] => only.label.clone(),
        [first, .., last] => format!("{} .. {} ({} steps)", first.label, last.label, steps.len()),
    }
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
