//! One iteration of the training program: when each step and each collective starts and ends.
//!
//! This is the definition of the model, written down once: [the page of the model](super) explains it.

use super::activity::Stretches;
use super::costs::StepTimes;
use super::groups::{Class, Classes, GroupId, Member};
use super::problem::{GradientOptions, Structure, TrainingNode};

/// What is evaluated.
pub(super) struct Program<'a> {
    pub(super) nodes: &'a [TrainingNode],
    pub(super) gradients: &'a GradientOptions,
    pub(super) structure: &'a Structure,
    pub(super) order: &'a [u32],
    /// By node: its place in the order.
    pub(super) places: &'a [u32],
    /// By node.
    pub(super) groups: &'a [GroupId],
    /// By node: who holds the parameters that it owns.
    pub(super) parameter_groups: &'a [GroupId],
    pub(super) classes: &'a Classes,
    /// The groups of all parameters together, where their norm is needed.
    pub(super) all_parameters: Option<GroupId>,
}

/// What it costs. Answers are remembered, so asking changes it.
pub(super) trait Prices {
    /// With the larger and the smaller share.
    fn steps(&self, node: usize, group: GroupId) -> [StepTimes; 2];
    fn transfer(&mut self, producer: usize, from: GroupId, to: GroupId) -> f64;
    fn reduce(&mut self, bytes: u64, group: GroupId) -> f64;
    fn size(&self, group: GroupId) -> usize;
}

/// What happened, for whoever wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event<'a> {
    Forward(usize),
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
struct Moved {
    group: GroupId,
    /// When it arrived there, on all ranks.
    at: f64,
}

/// The gradients of nodes with the same ranks that have not been reduced yet.
#[derive(Default)]
struct Bucket {
    group: GroupId,
    bytes: u64,
    nodes: Vec<u32>,
    /// By class.
    ready: Vec<f64>,
}

/// The lanes of all classes, and when what they have computed is there. Kept from one evaluation to the next for its memory.
#[derive(Default)]
pub(super) struct Lanes {
    classes: usize,
    /// By class: when the lane is free.
    pub(super) compute: Vec<f64>,
    communication: Vec<f64>,
    /// By class: what it computed and transferred.
    pub(super) computed: Vec<Stretches>,
    pub(super) transferred: Vec<Stretches>,
    /// By node and class: the ends of its steps.
    forward: Vec<f64>,
    backward: Vec<f64>,
    /// By node and class: when the gradient of its parameters is computed, later when it is reduced.
    reduced: Vec<f64>,
    /// By node: when the gradient of its output has arrived from other ranks; 0 where it comes from none.
    arrives: Vec<f64>,
    /// By node: consumers whose backward step is still to come.
    missing: Vec<u32>,
    /// By node: its output on other groups than its own.
    moved: Vec<Vec<Moved>>,
    buckets: Vec<Bucket>,
    /// Memory of earlier ones.
    spare: Vec<Bucket>,
    /// By class: the end of the backward pass.
    passed: Vec<f64>,
    /// The classes of a collective, with a mark for those that are in already.
    meeting: Vec<Class>,
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
    pub(super) fn run<P: Prices, R: Recorder>(
        &mut self,
        program: &Program<'_>,
        prices: &mut P,
        recorder: &mut R,
    ) {
        self.begin(program);
        recorder.begin();
        let mut run = Run { program, prices, recorder, lanes: self };
        run.forward_pass();
        run.backward_pass();
        run.finish();
        for class in 0..self.classes {
            let end = self.compute[class].max(self.communication[class]);
            (self.compute[class], self.communication[class]) = (end, end);
        }
    }

    fn begin(&mut self, program: &Program<'_>) {
        let (classes, nodes) = (self.classes, program.nodes.len());
        // What is read was written in the same iteration.
        for by_node in [&mut self.forward, &mut self.backward, &mut self.reduced] {
            by_node.resize(nodes * classes, 0.0);
        }
        self.arrives.clear();
        self.arrives.resize(nodes, 0.0);
        for stretches in [&mut self.computed, &mut self.transferred] {
            stretches.resize_with(classes, Stretches::default);
            stretches.iter_mut().for_each(Stretches::clear);
        }
        let consumers = program.structure.consumers.iter();
        self.missing.clear();
        self.missing.extend(consumers.map(|consumers| consumers.len() as u32));
        self.moved.resize_with(nodes, Vec::new);
        self.moved.iter_mut().for_each(Vec::clear);
        self.buckets.clear();
        self.is_meeting.clear();
        self.is_meeting.resize(classes, false);
    }
}

struct Run<'r, 'a, P, R> {
    program: &'r Program<'a>,
    prices: &'r mut P,
    recorder: &'r mut R,
    lanes: &'r mut Lanes,
}

impl<'a, P: Prices, R: Recorder> Run<'_, 'a, P, R> {
    fn members(&self, group: GroupId) -> &'a [Member] {
        self.program.classes.members(group)
    }

    fn group(&self, node: usize) -> GroupId {
        self.program.groups[node]
    }

    fn at(&self, node: usize, class: Class) -> usize {
        node * self.lanes.classes + usize::from(class)
    }

    fn forward_pass(&mut self) {
        let program = self.program;
        for &node in program.order {
            let node = node as usize;
            let group = self.group(node);
            let producers = &program.structure.producers[node];
            if producers.iter().any(|&producer| self.group(producer) != group) {
                for producer in self.in_order(producers) {
                    self.output_on(producer, group);
                }
            }
            if let Some(bytes) = program.nodes[node].synchronized.filter(|bytes| bytes.forward > 0) {
                self.synchronize(Event::SynchronizeForward(node), group, bytes.forward, |run, _| {
                    run.inputs_there(node)
                });
            }
            let arrived = self.inputs_there(node);
            let times = self.prices.steps(node, group);
            let row = node * self.lanes.classes;
            for &Member { class, share } in self.members(group) {
                let start = arrived.max(self.lanes.compute[usize::from(class)]);
                let end = start + times[share as usize].forward_us;
                self.computed(Event::Forward(node), class, start, end);
                self.lanes.forward[row + usize::from(class)] = end;
            }
            let consumers = &program.structure.consumers[node];
            if consumers.len() > 1 {
                self.spread(node, consumers);
            }
        }
    }

    /// A fork's output goes to all branches at once, in the order in which they come.
    fn spread(&mut self, node: usize, consumers: &[usize]) {
        let own = self.group(node);
        if consumers.iter().all(|&consumer| self.group(consumer) == own) {
            return;
        }
        for consumer in self.in_order(consumers) {
            self.output_on(node, self.group(consumer));
        }
    }

    fn in_order(&self, nodes: &[usize]) -> Vec<usize> {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable_by_key(|&node| self.program.places[node]);
        nodes
    }

    /// When all inputs of a node that come from other groups are there. Those that were computed on the same ranks are,
    /// once the lane is free.
    fn inputs_there(&self, node: usize) -> f64 {
        let group = self.group(node);
        let elsewhere = self.program.structure.producers[node]
            .iter()
            .copied()
            .filter(|&producer| self.group(producer) != group);
        let arrived = elsewhere.filter_map(|producer| {
            self.lanes.moved[producer].iter().find(|moved| moved.group == group).map(|moved| moved.at)
        });
        arrived.fold(0.0, f64::max)
    }

    /// Sees to it that a node's output is on a group; it is moved there once.
    fn output_on(&mut self, node: usize, group: GroupId) {
        let own = self.group(node);
        if own == group || self.lanes.moved[node].iter().any(|moved| moved.group == group) {
            return;
        }
        let forward = node * self.lanes.classes;
        let at = self.transfer(Event::Activations(node), node, own, group, |lanes, class| {
            lanes.forward[forward + usize::from(class)]
        });
        self.lanes.moved[node].push(Moved { group, at });
    }

    /// Moves samples between groups. Ranks that have them arrive when they are `ready`, the others when their lane is free.
    fn transfer(
        &mut self,
        event: Event<'_>,
        producer: usize,
        from: GroupId,
        to: GroupId,
        ready: impl Fn(&Lanes, Class) -> f64,
    ) -> f64 {
        let mut start = 0.0_f64;
        for &Member { class, .. } in self.members(from) {
            start = start.max(ready(self.lanes, class));
            self.meet(class);
        }
        for &Member { class, .. } in self.members(to) {
            self.meet(class);
        }
        let takes = self.prices.transfer(producer, from, to);
        self.communicate(event, start, takes)
    }

    /// Sums over a group, if it has more than one rank.
    fn reduce(
        &mut self,
        event: Event<'_>,
        group: GroupId,
        bytes: u64,
        ready: impl Fn(&Self, Class) -> f64,
    ) -> Option<f64> {
        if self.prices.size(group) < 2 {
            return None;
        }
        let mut start = 0.0_f64;
        for &Member { class, .. } in self.members(group) {
            start = start.max(ready(self, class));
            self.meet(class);
        }
        let takes = self.prices.reduce(bytes, group);
        Some(self.communicate(event, start, takes))
    }

    fn synchronize(
        &mut self,
        event: Event<'_>,
        group: GroupId,
        bytes: u64,
        ready: impl Fn(&Self, Class) -> f64,
    ) {
        let end = self.reduce(event, group, bytes, |run, class| {
            ready(run, class).max(run.lanes.compute[usize::from(class)])
        });
        for &Member { class, .. } in self.members(group) {
            let lane = &mut self.lanes.compute[usize::from(class)];
            *lane = lane.max(end.unwrap_or(0.0));
        }
    }

    fn meet(&mut self, class: Class) {
        if !std::mem::replace(&mut self.lanes.is_meeting[usize::from(class)], true) {
            self.lanes.meeting.push(class);
        }
    }

    /// A collective of the classes that have been told to [`meet`](Self::meet), which starts when all their lanes are free,
    /// not before `start`. Its end.
    fn communicate(&mut self, event: Event<'_>, start: f64, takes: f64) -> f64 {
        let lanes = &mut *self.lanes;
        let free = lanes.meeting.iter().map(|&class| lanes.communication[usize::from(class)]);
        let start = free.fold(start, f64::max);
        let end = start + takes;
        for &class in &lanes.meeting {
            let class = usize::from(class);
            lanes.communication[class] = end;
            lanes.transferred[class].add(start, end);
            lanes.is_meeting[class] = false;
        }
        self.recorder.collective(event, &lanes.meeting, start, end);
        lanes.meeting.clear();
        end
    }

    fn computed(&mut self, event: Event<'_>, class: Class, start: f64, end: f64) {
        self.lanes.compute[usize::from(class)] = end;
        self.lanes.computed[usize::from(class)].add(start, end);
        self.recorder.step(event, class, start, end);
    }

    fn backward_pass(&mut self) {
        let program = self.program;
        for &node in program.order.iter().rev() {
            let node = node as usize;
            if !program.structure.needs_gradient[node] {
                continue;
            }
            let group = self.group(node);
            let times = self.prices.steps(node, group);
            let (row, arrives) = (node * self.lanes.classes, self.lanes.arrives[node]);
            for &Member { class, share } in self.members(group) {
                let start = arrives.max(self.lanes.compute[usize::from(class)]);
                let end = start + times[share as usize].backward_us;
                self.computed(Event::Backward(node), class, start, end);
                self.lanes.backward[row + usize::from(class)] = end;
                self.lanes.reduced[row + usize::from(class)] = end;
            }
            if let Some(bytes) = program.nodes[node].synchronized.filter(|bytes| bytes.backward > 0) {
                self.synchronize(Event::SynchronizeBackward(node), group, bytes.backward, |_, _| 0.0);
                for &Member { class, .. } in self.members(group) {
                    self.lanes.backward[row + usize::from(class)] = self.lanes.compute[usize::from(class)];
                }
            }
            let producers = &program.structure.producers[node];
            if let [producer] = producers[..] {
                self.part_computed(producer);
            } else {
                for producer in self.in_order(producers).into_iter().rev() {
                    self.part_computed(producer);
                }
            }
            if !program.structure.users[node].is_empty() {
                self.add_to_bucket(node);
            }
        }
    }

    /// A consumer of a node has computed its part of the gradient of the node's output.
    fn part_computed(&mut self, node: usize) {
        self.lanes.missing[node] -= 1;
        if self.lanes.missing[node] == 0 && self.program.structure.needs_gradient[node] {
            self.gather_gradient(node);
        }
    }

    /// Brings the gradient of a node's output to its ranks, once all consumers have computed their parts: parts on the same
    /// ranks are summed up there and move together.
    fn gather_gradient(&mut self, node: usize) {
        let program = self.program;
        let own = self.group(node);
        // In the order of their backward steps.
        let consumers = &program.structure.consumers[node];
        if consumers.iter().all(|&consumer| self.group(consumer) == own) {
            return;
        }
        let mut from: Vec<(GroupId, usize, usize)> = Vec::new();
        for consumer in self.in_order(consumers).into_iter().rev() {
            let group = self.group(consumer);
            match from.iter_mut().find(|(known, ..)| *known == group) {
                Some((_, _, parts)) => *parts += 1,
                None => from.push((group, consumer, 1)),
            }
        }
        let mut latest = 0.0_f64;
        for &(group, consumer, parts) in &from {
            if group != own {
                let first = consumer * self.lanes.classes;
                let end = self.transfer(Event::Gradient(node), node, group, own, |lanes, class| {
                    // A sum is a step of the compute lane, which keeps its order.
                    let class = usize::from(class);
                    if parts > 1 { lanes.compute[class] } else { lanes.backward[first + class] }
                });
                latest = latest.max(end);
            }
        }
        self.lanes.arrives[node] = latest;
        if from.len() > 1 {
            for &Member { class, .. } in self.members(own) {
                let lane = &mut self.lanes.compute[usize::from(class)];
                *lane = lane.max(latest);
            }
        }
    }

    /// The gradient of a node's own parameters is there on all ranks that hold them.
    fn add_to_bucket(&mut self, node: usize) {
        let program = self.program;
        let group = program.parameter_groups[node];
        let users = &program.structure.users[node];
        let place = self.lanes.buckets.iter().position(|bucket| bucket.group == group);
        let place = place.unwrap_or_else(|| {
            let mut bucket = self.lanes.spare.pop().unwrap_or_default();
            bucket.ready.clear();
            bucket.ready.resize(self.lanes.classes, 0.0);
            bucket.nodes.clear();
            self.lanes.buckets.push(Bucket { group, bytes: 0, ..bucket });
            self.lanes.buckets.len() - 1
        });
        let is_shared = users.len() > 1;
        for &Member { class, .. } in self.members(group) {
            if !is_shared {
                let ready = self.lanes.reduced[self.at(node, class)];
                let bucket = &mut self.lanes.buckets[place].ready[usize::from(class)];
                *bucket = bucket.max(ready);
                continue;
            }
            let is_on =
                |user: &&usize| self.members(self.group(**user)).iter().any(|member| member.class == class);
            let mut here = users.iter().filter(is_on);
            let ready = match (here.next(), here.next()) {
                (Some(&only), None) => self.lanes.reduced[self.at(only, class)],
                // Summed up in the compute lane.
                _ => self.lanes.compute[usize::from(class)],
            };
            let bucket = &mut self.lanes.buckets[place].ready[usize::from(class)];
            *bucket = bucket.max(ready);
        }
        let bucket = &mut self.lanes.buckets[place];
        bucket.nodes.push(node as u32);
        bucket.bytes = bucket.bytes.saturating_add(program.nodes[node].gradient_bytes);
        if program.gradients.overlap && bucket.bytes >= program.gradients.bucket_bytes {
            let full = self.lanes.buckets.remove(place);
            self.reduce_bucket(&full);
            self.lanes.spare.push(full);
        }
    }

    fn reduce_bucket(&mut self, bucket: &Bucket) {
        let Bucket { group, bytes, nodes, ready } = bucket;
        let end = self.reduce(Event::Reduce(nodes), *group, *bytes, |_, class| ready[usize::from(class)]);
        for &node in nodes {
            for &Member { class, .. } in self.members(*group) {
                let at = self.at(node as usize, class);
                self.lanes.reduced[at] = end.unwrap_or(ready[usize::from(class)]);
            }
        }
    }

    /// What comes after the backward pass: buckets that are not full, the norm, the optimiser, the metrics.
    fn finish(&mut self) {
        let program = self.program;
        self.lanes.passed.clear();
        let passed = self.lanes.compute.iter().map(|&end| if program.gradients.overlap { 0.0 } else { end });
        self.lanes.passed.extend(passed);
        let mut buckets = std::mem::take(&mut self.lanes.buckets);
        for bucket in &mut buckets {
            for (ready, &passed) in bucket.ready.iter_mut().zip(&self.lanes.passed) {
                *ready = ready.max(passed);
            }
            self.reduce_bucket(bucket);
        }
        self.lanes.spare.append(&mut buckets);
        self.lanes.buckets = buckets;
        if let Some(group) = program.all_parameters {
            self.norm(group);
        }
        for &node in program.order.iter().rev() {
            let node = node as usize;
            if program.structure.users[node].is_empty() {
                continue;
            }
            let (times, row) = (self.prices.steps(node, self.group(node)), node * self.lanes.classes);
            for &Member { class, share } in self.members(program.parameter_groups[node]) {
                let reduced = self.lanes.reduced[row + usize::from(class)];
                let start = reduced.max(self.lanes.compute[usize::from(class)]);
                let end = start + times[share as usize].update_us;
                self.computed(Event::Update(node), class, start, end);
            }
        }
        let mut nodes = program.order.iter().rev().map(|&node| node as usize);
        let loss = nodes.find(|&node| program.structure.consumers[node].is_empty());
        if let Some(loss) = loss.filter(|_| program.gradients.metrics_bytes > 0) {
            let (group, bytes) = (self.group(loss), program.gradients.metrics_bytes);
            self.reduce(Event::Metrics, group, bytes, |run, class| {
                run.lanes.forward[run.at(loss, class)].max(run.lanes.passed[usize::from(class)])
            });
        }
    }

    /// All ranks with parameters learn the norm of all gradients, which each node adds to on one of its ranks.
    fn norm(&mut self, group: GroupId) {
        let end = self.reduce(Event::Norm, group, 4, |run, class| {
            run.all_reduced(class).max(run.lanes.compute[usize::from(class)])
        });
        for &Member { class, .. } in self.members(group) {
            let ready = end.unwrap_or_else(|| self.all_reduced(class));
            let lane = &mut self.lanes.compute[usize::from(class)];
            *lane = lane.max(ready);
        }
    }

    /// When the gradients of all parameters on a class are reduced.
    fn all_reduced(&self, class: Class) -> f64 {
        let program = self.program;
        let is_here = |node: &usize| {
            let members = self.members(program.parameter_groups[*node]);
            !program.structure.users[*node].is_empty() && members.iter().any(|member| member.class == class)
        };
        let reduced =
            (0..program.nodes.len()).filter(is_here).map(|node| self.lanes.reduced[self.at(node, class)]);
        reduced.fold(0.0, f64::max)
    }
}
