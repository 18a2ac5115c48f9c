//! The critical path of an iteration: the steps that determine its time.

use crate::Arrangement;
use crate::evaluator::Evaluator;
use crate::groups::Class;
use crate::iteration::{Event, Recorder};
use crate::{NodeId, Result};

/// Moments that differ by less, relatively, are the same.
const SAME: f64 = 1e-12;

/// A step of the critical path of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PathStep {
    /// What it does.
    pub kind: PathKind,
    /// For which node; the first of several in one all-reduce.
    pub node: Option<NodeId>,
    /// How long it takes, microseconds.
    pub time_us: f64,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathKind {
    /// The forward step of a node.
    Forward,
    /// The forward step of a node once more, for the backward pass.
    Recompute,
    /// The backward step of a node.
    Backward,
    /// The optimiser's step over a node's parameters.
    Update,
    /// A node's output moves to other ranks.
    Activations,
    /// The gradient of a node's output moves to other ranks.
    Gradient,
    /// The gradients of some nodes' parameters are summed.
    AllReduce,
    /// A node's ranks sum up what they normalise by.
    Synchronize,
    /// The norm of all gradients is summed.
    Norm,
    /// The loss is summed.
    Metrics,
    /// What the path is longer than an iteration, since ranks begin the next one before others have ended this one: at most
    /// zero.
    Overlap,
}

/// Everything that happened in one iteration, in the order of the program.
#[derive(Default)]
struct EventLog {
    steps: Vec<LoggedEvent>,
    /// Where the last iteration begins.
    last: usize,
}

struct LoggedEvent {
    kind: PathKind,
    node: Option<usize>,
    classes: Vec<Class>,
    start: f64,
    end: f64,
}

impl Recorder for EventLog {
    fn begin(&mut self) {
        self.last = self.steps.len();
    }

    fn step(&mut self, event: Event<'_>, class: Class, start: f64, end: f64) {
        self.collective(event, &[class], start, end);
    }

    fn collective(&mut self, event: Event<'_>, classes: &[Class], start: f64, end: f64) {
        let (kind, node) = match event {
            Event::Forward(node) => (PathKind::Forward, Some(node)),
            Event::Recompute(node) => (PathKind::Recompute, Some(node)),
            Event::Backward(node) => (PathKind::Backward, Some(node)),
            Event::Update(node) => (PathKind::Update, Some(node)),
            Event::Activations(node) => (PathKind::Activations, Some(node)),
            Event::Gradient(node) => (PathKind::Gradient, Some(node)),
            Event::SynchronizeForward(node) | Event::SynchronizeBackward(node) => {
                (PathKind::Synchronize, Some(node))
            }
            Event::Reduce(nodes) => (PathKind::AllReduce, nodes.first().map(|&node| node as usize)),
            Event::Norm => (PathKind::Norm, None),
            Event::Metrics => (PathKind::Metrics, None),
        };
        self.steps.push(LoggedEvent { kind, node, classes: classes.to_vec(), start, end });
    }
}

impl EventLog {
    /// The path to the end of the last iteration, in the order of time.
    fn path(&self) -> Vec<PathStep> {
        let steps = &self.steps[self.last..];
        let mut path = Vec::new();
        let last = (0..steps.len()).max_by(|&a, &b| steps[a].end.total_cmp(&steps[b].end));
        let mut next = last;
        while let Some(at) = next {
            let LoggedEvent { kind, node, start, end, .. } = steps[at];
            path.push(PathStep { kind, node: node.map(NodeId), time_us: end - start });
            // What a step waits for comes before it in the program.
            let ended = |other: &LoggedEvent| (other.end - start).abs() <= SAME * start;
            let shares =
                |other: &LoggedEvent| other.classes.iter().any(|class| steps[at].classes.contains(class));
            next = (0..at).rev().find(|&before| ended(&steps[before]) && shares(&steps[before]));
        }
        path.retain(|step| step.time_us > 0.0);
        path.reverse();
        path
    }
}

impl Evaluator<'_> {
    /// The critical path of an iteration: the steps, in the order of time, that add up to the
    /// [iteration time](crate::PlanTime::iteration_us).
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn critical_path(&mut self, arrangement: &Arrangement) -> Result<Vec<PathStep>> {
        let numbered = self.numbered(arrangement)?;
        let mut log = EventLog::default();
        let (time, _) = self.run(&numbered, &mut log, |_| false)?;
        let mut path = log.path();
        let overlap = time.iteration_us - path.iter().map(|step| step.time_us).sum::<f64>();
        if overlap.abs() > 1e-9 * time.iteration_us {
            path.push(PathStep { kind: PathKind::Overlap, node: None, time_us: overlap });
        }
        Ok(path)
    }
}
