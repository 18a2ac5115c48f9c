//! Simulation of one iteration of the training program: start and end of each step and collective.
//!
//! This is the only definition of the time model. The [crate's page](crate#the-time-of-a-plan)
//! explains it. A *class* is a set of ranks that do identical work; one of them is simulated for
//! all. A *group* is a list of ranks, and a *slot* is the index of a group among those of the
//! arrangement. Nodes are given by their indices in the problem. Times are in microseconds since
//! the start of the first simulated iteration.

mod backward;
mod collective;
mod forward;
mod gradients;

use super::activity::Intervals;
use super::costs::StepTimes;
use super::groups::{Class, Classes, Member, Slot};
use super::node_order::NodeOrder;
use super::problem::{GradientOptions, ProblemGraph};
use super::recompute::Recomputation;
use super::splits::{Layout, NodeTensors};

/// The problem and the arrangement that is simulated.
pub(super) struct Program<'a> {
    /// Options of gradient reduction.
    pub(super) gradients: &'a GradientOptions,
    /// Number of micro-batches of an iteration.
    pub(super) micro_batches: usize,
    /// Graph of the problem.
    pub(super) structure: &'a ProblemGraph,
    /// Order of the nodes in the forward pass.
    pub(super) ordered: &'a NodeOrder,
    /// Nodes whose forward step is repeated in the backward pass.
    pub(super) recomputation: &'a Recomputation,
    /// By node: the slot of the list of ranks that it runs on.
    pub(super) groups: &'a [Slot],
    /// By node: the slot of the list of ranks that sum its metrics.
    pub(super) sum_groups: &'a [Slot],
    /// By node: the slot of the list of ranks that hold the parameters that it owns; the slot of
    /// its own list if it owns none.
    pub(super) parameter_groups: &'a [Slot],
    /// Layouts and sizes of the nodes' tensors.
    pub(super) tensors: NodeTensors<'a>,
    /// Rank classes of the arrangement. Each is simulated as one rank.
    pub(super) classes: &'a Classes,
    /// Slot of the list of all ranks that hold parameters, if the norm of all gradients is needed.
    pub(super) all_parameters: Option<Slot>,
}

/// Durations of the program's steps and collectives, microseconds. Methods take `&mut self` to
/// cache values.
pub(super) trait ProgramCosts {
    /// Returns the step durations of a node with the larger and the smaller shard, in this order.
    fn steps(&self, node: usize, group: Slot) -> &[StepTimes; 2];
    /// Returns the duration of moving the output of node `producer` from one layout to another, or
    /// its gradient.
    fn transfer(&mut self, producer: usize, from: Layout, to: Layout) -> f64;
    /// Returns the duration of an all-reduce of `bytes` bytes over a group, between the ranks with
    /// the same part.
    fn reduce(&mut self, bytes: u64, group: Slot) -> f64;
    /// Returns the number of ranks of a group with the same part, in all replicas.
    fn size(&self, group: Slot) -> usize;
}

/// A step or collective, as reported to a recorder, with the index of its node or nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// The forward step.
    Forward(usize),
    /// The forward step, repeated in the backward pass.
    Recompute(usize),
    /// The backward step.
    Backward(usize),
    /// The optimizer's step over the node's parameters.
    Update(usize),
    /// Transfer of the node's output to another layout.
    Activations(usize),
    /// Transfer of the gradient of the node's output.
    Gradient(usize),
    /// All-reduce of the node's statistics before its forward step.
    SynchronizeForward(usize),
    /// All-reduce of the node's statistics after its backward step.
    SynchronizeBackward(usize),
    /// All-reduce of the gradients of the nodes of a bucket.
    Reduce(&'a [u32]),
    /// All-reduce of the norm of all gradients.
    Norm,
    /// All-reduce of the metrics.
    Metrics,
}

/// Receives every step of every class, and every collective.
pub(super) trait Recorder {
    /// Called at the start of an iteration.
    fn begin(&mut self) {}
    /// Called for every step with its class, start and end.
    fn step(&mut self, _event: Event<'_>, _class: Class, _start: f64, _end: f64) {}
    /// Called for every collective with the classes of all its ranks, its start and its end.
    fn collective(&mut self, _event: Event<'_>, _classes: &[Class], _start: f64, _end: f64) {}
}

impl Recorder for () {}

/// A node's output in another layout.
struct MovedOutput {
    /// Layout that it was moved to.
    layout: Layout,
    /// Time when it has arrived on all ranks.
    at: f64,
}

/// The part of an output's gradient from consumers that compute it in one layout.
#[derive(Clone, Copy)]
struct GradientPart {
    /// Layout of the consumers' gradients.
    layout: Layout,
    /// The last of them in the order, which computes its part first.
    consumer: usize,
    /// Whether there are several.
    is_sum: bool,
}

/// Gradients of nodes on the same ranks that are not reduced yet.
#[derive(Default)]
struct Bucket {
    /// Slot of the list of ranks that hold the parameters.
    group: Slot,
    /// Sum of their sizes, bytes.
    bytes: u64,
    /// Indices of the nodes that own the parameters, in the order of their backward steps.
    nodes: Vec<u32>,
    /// By class: time when gradients of parameters with several users are summed; empty without
    /// such.
    summed: Vec<f64>,
}

/// A lane of a class: it runs one step or collective after another.
#[derive(Default)]
pub(super) struct Lane {
    /// Time when it is free.
    pub(super) free_us: f64,
    /// Intervals in which it was busy in the last iteration.
    pub(super) busy: Intervals,
}

impl Lane {
    /// Adds a step or collective.
    #[inline]
    fn run(&mut self, start: f64, end: f64) {
        self.free_us = end;
        self.busy.add(start, end);
    }

    /// Makes the next step or collective wait until `ready`.
    #[inline]
    fn wait(&mut self, ready: f64) {
        self.free_us = later(self.free_us, ready);
    }
}

/// Lanes of all classes, and the times when results are available. Memory is reused between
/// evaluations.
#[derive(Default)]
pub(super) struct Lanes {
    /// Number of classes.
    classes: usize,
    /// By class: the lane of steps. Lanes after those of the last class are not in use.
    pub(super) compute: Vec<Lane>,
    /// By class: the lane of transfers and other collectives, as many as of steps.
    pub(super) communication: Vec<Lane>,
    /// By node and class: end of its forward step.
    forward: Vec<f64>,
    /// By node and class: end of its backward step.
    backward: Vec<f64>,
    /// By node: end of the all-reduce after its backward step; 0 without one.
    synchronized: Vec<f64>,
    /// By node: time when the gradient of its parameters is reduced.
    reduced: Vec<f64>,
    /// By node: time when the gradient of its output has arrived from other ranks; 0 if it comes
    /// from none.
    arrives: Vec<f64>,
    /// By node: its output in other layouts.
    moved: Vec<Vec<MovedOutput>>,
    /// By node whose output needs no gradient: time when its last transfer of the previous
    /// micro-batch has ended; 0 for other nodes.
    sent: Vec<f64>,
    /// Empty between uses, like the buckets.
    parts: Vec<GradientPart>,
    buckets: Vec<Bucket>,
    /// Buckets whose memory is reused.
    spare: Vec<Bucket>,
    /// By class: end of the backward pass if gradients are reduced after it, otherwise 0.
    backward_end: Vec<f64>,
    /// By node: whether its inputs or its output move between ranks.
    has_transfers: Vec<bool>,
    /// Durations of all collectives of an iteration, in program order. They are the same in every
    /// iteration, so the cost model is queried in the first one.
    durations: Vec<f64>,
    /// Index in `durations` of the next collective.
    next_duration: usize,
    /// Classes of the next collective.
    members: Vec<Class>,
    /// By class: whether it is in `members`.
    is_member: Vec<bool>,
}

impl Lanes {
    /// Prepares the simulation of a program. Sets the time of all lanes to 0.
    pub(super) fn reset(&mut self, program: &Program<'_>) {
        let classes = program.classes.len();
        self.classes = classes;
        let Program { structure, tensors, .. } = program;
        let moves_output = |node: usize| {
            let consumers = &structure.consumers[node];
            consumers.iter().any(|&consumer| tensors.inputs[consumer] != tensors.outputs[node])
                || tensors.are_split
                    && consumers
                        .iter()
                        .any(|&consumer| tensors.input_gradients[consumer] != tensors.output_gradients[node])
        };
        self.has_transfers.clear();
        self.has_transfers.resize(program.groups.len(), false);
        for node in 0..program.groups.len() {
            if moves_output(node) {
                self.has_transfers[node] = true;
                for &consumer in &structure.consumers[node] {
                    self.has_transfers[consumer] = true;
                }
            }
        }
        self.durations.clear();
        for lanes in [&mut self.compute, &mut self.communication] {
            if lanes.len() < classes {
                lanes.resize_with(classes, Lane::default);
            }
            lanes[..classes].iter_mut().for_each(|lane| lane.free_us = 0.0);
        }
    }

    /// Simulates an iteration. Each class starts when it has ended the previous one. Afterwards
    /// both lanes of a class are at the end of its iteration: the maximum of the two.
    pub(super) fn run<P: ProgramCosts, R: Recorder>(
        &mut self,
        program: &Program<'_>,
        costs: &mut P,
        recorder: &mut R,
    ) {
        self.begin(program);
        recorder.begin();
        let mut run = Run { program, costs, recorder, lanes: self };
        for micro_batch in 1..=program.micro_batches {
            run.forward_pass();
            run.backward_pass(micro_batch == program.micro_batches);
            if micro_batch < program.micro_batches {
                run.lanes.next_micro_batch(program);
            }
        }
        run.finish();
        for (compute, communication) in self.compute[..self.classes].iter_mut().zip(&mut self.communication) {
            compute.wait(communication.free_us);
            communication.free_us = compute.free_us;
        }
    }

    fn begin(&mut self, program: &Program<'_>) {
        let (classes, nodes) = (self.classes, program.groups.len());
        // All values that are read are written in the same iteration.
        for by_node_and_class in [&mut self.forward, &mut self.backward] {
            by_node_and_class.resize(nodes * classes, 0.0);
        }
        for by_node in [&mut self.reduced, &mut self.synchronized] {
            by_node.resize(nodes, 0.0);
        }
        self.next_duration = 0;
        self.arrives.clear();
        self.arrives.resize(nodes, 0.0);
        for lanes in [&mut self.compute, &mut self.communication] {
            lanes[..classes].iter_mut().for_each(|lane| lane.busy.clear());
        }
        self.moved.resize_with(nodes, Vec::new);
        self.moved.iter_mut().for_each(Vec::clear);
        self.sent.clear();
        self.sent.resize(nodes, 0.0);
        self.backward_end.clear();
        self.backward_end.resize(classes, 0.0);
        self.is_member.clear();
        self.is_member.resize(classes, false);
    }
}

impl Lanes {
    /// Starts the next micro-batch in the memory of the previous one: a rank communicates for it
    /// once it has computed that one, and recomputes an output once the last one is sent. A
    /// gradient has come back by then.
    fn next_micro_batch(&mut self, program: &Program<'_>) {
        for (communication, compute) in self.communication.iter_mut().zip(&self.compute) {
            communication.wait(compute.free_us);
        }
        for (node, moved) in self.moved.iter_mut().enumerate() {
            let left = moved.drain(..).map(|moved| moved.at).fold(0.0, later);
            self.sent[node] = if program.structure.needs_gradient[node] { 0.0 } else { left };
        }
    }
}

/// Returns the later of two times. Unlike `f64::max`, it does not handle NaN, which times never
/// are.
#[inline]
pub(super) fn later(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

struct Run<'r, 'a, P, R> {
    program: &'r Program<'a>,
    costs: &'r mut P,
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
}

/// Runs a step on all classes of a group, at `ready` or later, and writes its end times to `ends`,
/// by class, unless that is empty. `times` are the durations with the larger and the smaller shard.
#[inline]
fn run_step<R: Recorder>(
    recorder: &mut R,
    lanes: &mut [Lane],
    ends: &mut [f64],
    (event, members): (Event<'_>, &[Member]),
    ready: f64,
    times: [f64; 2],
) {
    for &Member { class, shard_size } in members {
        let lane = &mut lanes[usize::from(class)];
        let start = later(ready, lane.free_us);
        let end = start + times[shard_size as usize];
        lane.run(start, end);
        if let Some(place) = ends.get_mut(usize::from(class)) {
            *place = end;
        }
        recorder.step(event, class, start, end);
    }
}
