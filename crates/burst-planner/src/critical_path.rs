//! The critical path of an iteration.

use crate::evaluator::Evaluator;
use crate::groups::Class;
use crate::iteration::{Event, Recorder};
use crate::{Arrangement, NodeId, Result};

/// Times that differ by less, relatively, are equal.
const RELATIVE_TOLERANCE: f64 = 1e-12;

/// A step or collective on the critical path.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PathStep {
    /// Kind of the step or collective.
    pub kind: PathKind,
    /// The node, or the first node of an all-reduce of several nodes' gradients. `None` for
    /// [`PathKind::Norm`], [`PathKind::Metrics`] and [`PathKind::Overlap`].
    pub node: Option<NodeId>,
    /// Its duration, microseconds. At most 0 for [`PathKind::Overlap`].
    pub time_us: f64,
}

/// Kind of a [`PathStep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathKind {
    /// The forward step of a node.
    Forward,
    /// The forward step of a node, repeated in the backward pass.
    Recompute,
    /// The backward step of a node.
    Backward,
    /// The optimizer's step over a node's parameters.
    Update,
    /// Transfer of a node's output to other ranks.
    Activations,
    /// Transfer of the gradient of a node's output.
    Gradient,
    /// All-reduce of the gradients of nodes' parameters.
    AllReduce,
    /// All-reduce of a node's statistics, for synchronized normalization.
    Synchronize,
    /// All-reduce of the norm of all gradients.
    Norm,
    /// All-reduce of the loss and other metrics.
    Metrics,
    /// Difference between the iteration time and the path's length, at most 0: ranks start the next
    /// iteration before others have ended this one.
    Overlap,
}

/// The steps and collectives of the recorded iterations, in program order.
#[derive(Default)]
struct EventLog {
    steps: Vec<LoggedEvent>,
    /// Index of the first event of the last iteration.
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
    /// Returns the critical path of the last iteration, in order of time.
    fn path(&self) -> Vec<PathStep> {
        let steps = &self.steps[self.last..];
        let mut path = Vec::new();
        let last = (0..steps.len()).max_by(|&a, &b| steps[a].end.total_cmp(&steps[b].end));
        let mut next = last;
        while let Some(at) = next {
            let LoggedEvent { kind, node, start, end, .. } = steps[at];
            path.push(PathStep { kind, node: node.map(NodeId), time_us: end - start });
            // Events that a step waits for precede it in the program.
            let ended = |other: &LoggedEvent| (other.end - start).abs() <= RELATIVE_TOLERANCE * start;
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
    /// Returns the critical path of an iteration, in order of time. The durations add up to the
    /// [iteration time](crate::PlanTime::iteration_us).
    ///
    /// # Errors
    /// Those of [`evaluate`](Self::evaluate).
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
