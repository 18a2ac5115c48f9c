//! One iteration of the training program: when each step and each collective starts and ends.
//!
//! This is the definition of the model, written down once: [the page of the model](super) explains it.

mod backward;
mod collective;
mod forward;
mod gradients;

use super::activity::Intervals;
use super::costs::StepTimes;
use super::groups::{Class, Classes, Member, Slot};
use super::node_order::NodeOrder;
use super::problem::{GradientOptions, Node, ProblemGraph};
use super::recompute::Recomputation;

/// What is evaluated.
pub(super) struct Program<'a> {
    pub(super) nodes: &'a [Node],
    pub(super) gradients: &'a GradientOptions,
    pub(super) micro_batches: usize,
    pub(super) structure: &'a ProblemGraph,
    pub(super) ordered: &'a NodeOrder,
    pub(super) recomputation: &'a Recomputation,
    /// By node.
    pub(super) groups: &'a [Slot],
    /// By node: who holds the parameters that it owns.
    pub(super) parameter_groups: &'a [Slot],
    pub(super) classes: &'a Classes,
    /// The groups of all parameters together, where their norm is needed.
    pub(super) all_parameters: Option<Slot>,
}

/// What it costs. Answers are remembered, so asking changes it.
pub(super) trait ProgramCosts {
    /// With the larger and the smaller share.
    fn steps(&self, node: usize, group: Slot) -> &[StepTimes; 2];
    fn transfer(&mut self, producer: usize, from: Slot, to: Slot) -> f64;
    fn reduce(&mut self, bytes: u64, group: Slot) -> f64;
    fn size(&self, group: Slot) -> usize;
}

/// What happens in an iteration, as a recorder is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event<'a> {
    Forward(usize),
    Recompute(usize),
    Backward(usize),
    Update(usize),
    Activations(usize),
    Gradient(usize),
    SynchronizeForward(usize),
    SynchronizeBackward(usize),
    Reduce(&'a [u32]),
    Norm,
    Metrics,
}

/// Is told every step on every class, and every collective.
pub(super) trait Recorder {
    /// An iteration begins.
    fn begin(&mut self) {}
    fn step(&mut self, _event: Event<'_>, _class: Class, _start: f64, _end: f64) {}
    fn collective(&mut self, _event: Event<'_>, _classes: &[Class], _start: f64, _end: f64) {}
}

impl Recorder for () {}

/// A node's output that was moved to another group.
struct MovedOutput {
    group: Slot,
    /// When it arrived there, on all ranks.
    at: f64,
}

/// What consumers on one group contribute to the gradient of a node's output.
#[derive(Clone, Copy)]
struct GradientPart {
    group: Slot,
    /// The last of them in the order, which is the first to compute its part.
    consumer: usize,
    /// Whether there are several of them.
    is_sum: bool,
}

/// The gradients of nodes with the same ranks that have not been reduced yet.
#[derive(Default)]
struct Bucket {
    group: Slot,
    bytes: u64,
    nodes: Vec<u32>,
    /// By class: when the gradients of parameters that several nodes use are summed up; empty without such.
    summed: Vec<f64>,
}

/// The lanes of all classes, and when what they have computed is there. Kept from one evaluation to the next for its memory.
#[derive(Default)]
pub(super) struct Lanes {
    classes: usize,
    /// By class: when the lane is free.
    pub(super) compute: Vec<f64>,
    communication: Vec<f64>,
    /// By class: what it computed and transferred.
    pub(super) computed: Vec<Intervals>,
    pub(super) transferred: Vec<Intervals>,
    /// By node and class: the ends of its steps.
    forward: Vec<f64>,
    backward: Vec<f64>,
    /// By node: the end of what its ranks sum up after its backward step; 0 where they do not.
    synchronized: Vec<f64>,
    /// By node: when the gradient of its parameters is reduced.
    reduced: Vec<f64>,
    /// By node: when the gradient of its output has arrived from other ranks; 0 where it comes from none.
    arrives: Vec<f64>,
    /// By node: its output on other groups than its own.
    moved: Vec<Vec<MovedOutput>>,
    /// By node whose output needs no gradient: when what was sent of it in the micro-batch before has left; 0 for other nodes.
    sent: Vec<f64>,
    /// Empty between uses, like the buckets.
    parts: Vec<GradientPart>,
    buckets: Vec<Bucket>,
    /// Memory of earlier ones.
    spare: Vec<Bucket>,
    /// By class: the end of the backward pass, where gradients are not reduced before it; else 0.
    passed: Vec<f64>,
    /// The classes of a collective, with a mark for those that are in already.
    members: Vec<Class>,
    is_meeting: Vec<bool>,
}

impl Lanes {
    /// All lanes free at 0.
    pub(super) fn reset(&mut self, classes: usize) {
        self.classes = classes;
        for lane in [&mut self.compute, &mut self.communication] {
            lane.clear();
            lane.resize(classes, 0.0);
        }
    }

    /// Runs an iteration that each class begins when it has ended the one before, and gives each class's end: its entry of
    /// both lanes.
    pub(super) fn run<P: ProgramCosts, R: Recorder>(
        &mut self,
        program: &Program<'_>,
        prices: &mut P,
        recorder: &mut R,
    ) {
        self.begin(program);
        recorder.begin();
        let mut run = Run { program, prices, recorder, lanes: self };
        for micro_batch in 1..=program.micro_batches {
            run.forward_pass();
            run.backward_pass(micro_batch == program.micro_batches);
            if micro_batch < program.micro_batches {
                run.lanes.next_micro_batch(program);
            }
        }
        run.finish();
        for class in 0..self.classes {
            let end = later(self.compute[class], self.communication[class]);
            (self.compute[class], self.communication[class]) = (end, end);
        }
    }

    fn begin(&mut self, program: &Program<'_>) {
        let (classes, nodes) = (self.classes, program.nodes.len());
        // What is read was written in the same iteration.
        for by_node_and_class in [&mut self.forward, &mut self.backward] {
            by_node_and_class.resize(nodes * classes, 0.0);
        }
        for by_node in [&mut self.reduced, &mut self.synchronized] {
            by_node.resize(nodes, 0.0);
        }
        self.arrives.clear();
        self.arrives.resize(nodes, 0.0);
        for stretches in [&mut self.computed, &mut self.transferred] {
            if stretches.len() < classes {
                stretches.resize_with(classes, Intervals::default);
            }
            stretches[..classes].iter_mut().for_each(Intervals::clear);
        }
        self.moved.resize_with(nodes, Vec::new);
        self.moved.iter_mut().for_each(Vec::clear);
        self.sent.clear();
        self.sent.resize(nodes, 0.0);
        self.passed.clear();
        self.passed.resize(classes, 0.0);
        self.is_meeting.clear();
        self.is_meeting.resize(classes, false);
    }
}

impl Lanes {
    /// The next micro-batch uses the memory of the one before: a rank communicates for it when it has computed that, and computes an
    /// output again when the last one has left. Where there is a gradient, that has come back since.
    fn next_micro_batch(&mut self, program: &Program<'_>) {
        for (communication, &compute) in self.communication.iter_mut().zip(&self.compute) {
            *communication = later(*communication, compute);
        }
        for (node, moved) in self.moved.iter_mut().enumerate() {
            let left = moved.drain(..).map(|moved| moved.at).fold(0.0, later);
            self.sent[node] = if program.structure.needs_gradient[node] { 0.0 } else { left };
        }
    }
}

/// Of two moments the later one. `f64::max` looks at what is not a number, too, which times never are.
#[inline]
pub(super) fn later(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

struct Run<'r, 'a, P, R> {
    program: &'r Program<'a>,
    prices: &'r mut P,
    recorder: &'r mut R,
    lanes: &'r mut Lanes,
}

impl<'a, P: ProgramCosts, R: Recorder> Run<'_, 'a, P, R> {
    #[inline]
    fn members(&self, group: Slot) -> &'a [Member] {
        self.program.classes.members(group)
    }

    #[inline]
    fn group(&self, node: usize) -> Slot {
        self.program.groups[node]
    }

    fn at(&self, node: usize, class: Class) -> usize {
        node * self.lanes.classes + usize::from(class)
    }

    #[inline]
    fn computed(&mut self, event: Event<'_>, class: Class, start: f64, end: f64) {
        self.lanes.compute[usize::from(class)] = end;
        self.lanes.computed[usize::from(class)].add(start, end);
        self.recorder.step(event, class, start, end);
    }
}
