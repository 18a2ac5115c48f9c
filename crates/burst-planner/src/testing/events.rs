//! The events of an iteration, listed for every rank.

mod gradients;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Arrangement, CostModel, NodeId, NodeSplit, PlanProblem, ShardSize, SynchronizedBytes, TensorLayout,
    Values,
};

/// Lane of a rank.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Lane {
    /// The compute lane.
    Compute,
    /// The communication lane.
    Communication,
}

/// A step or collective. It starts when a lane of all its ranks is free and all events in `after`
/// have ended.
pub(super) struct Event {
    /// The lane on which it runs.
    pub(super) lane: Lane,
    /// The ranks that take part.
    pub(super) ranks: Vec<usize>,
    /// Its duration, microseconds.
    pub(super) duration_us: f64,
    /// Indices of the events that it waits for, which are all before it in the list.
    pub(super) after: Vec<usize>,
}

/// Indices of events.
type Events = Vec<usize>;

/// Returns the steps and collectives of one iteration of an arrangement, each one after all events
/// that it waits for.
pub(super) fn events(problem: &PlanProblem, costs: &dyn CostModel, arrangement: &Arrangement) -> Vec<Event> {
    let mut writer =
        EventWriter { problem, costs, arrangement, events: Vec::new(), last_compute: BTreeMap::new() };
    writer.write();
    writer.events
}

/// Lists the events of an iteration in the order of the ranks' programs.
struct EventWriter<'a> {
    problem: &'a PlanProblem,
    costs: &'a dyn CostModel,
    arrangement: &'a Arrangement,
    events: Vec<Event>,
    /// By rank: index of its last compute event.
    last_compute: BTreeMap<usize, usize>,
}

/// Where a tensor lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Ranks in the order of their samples, and of their parts for the same samples.
    ranks: Vec<usize>,
    /// Number of ranks with the same samples.
    parts: usize,
    /// Values on these.
    values: Values,
}

impl Place {
    fn layout(&self) -> TensorLayout<'_> {
        TensorLayout { ranks: &self.ranks, parts: self.parts, values: self.values }
    }
}

/// Gradients that wait to be reduced.
struct Bucket {
    /// The ranks that hold the parameters.
    ranks: Vec<usize>,
    /// Number of ranks with the same samples.
    parts: usize,
    /// Sum of the sizes of the gradients, bytes.
    bytes: u64,
    /// The nodes that own the parameters.
    nodes: Vec<usize>,
    /// By rank: the events that its gradients wait for.
    ready: BTreeMap<usize, Events>,
}

/// Events by node.
#[derive(Default)]
struct NodeEvents {
    /// By node and rank: its forward step.
    forward: BTreeMap<(usize, usize), usize>,
    /// By node and rank: the events after which the gradients of its parameters and of its inputs
    /// are available.
    gradients: BTreeMap<(usize, usize), usize>,
    /// By node and rank: the event after which the gradients of its inputs are available.
    backward: BTreeMap<(usize, usize), usize>,
    /// By node and place: the transfer of its output there.
    moved: BTreeMap<(usize, Place), usize>,
    /// By node: the transfers of the gradient of its output.
    arrives: BTreeMap<usize, Events>,
    /// By node and rank: the events that its update waits for.
    reduced: BTreeMap<(usize, usize), Events>,
    /// Buckets that are not reduced yet.
    buckets: Vec<Bucket>,
}

impl EventWriter<'_> {
    fn write(&mut self) {
        let mut known = NodeEvents::default();
        let order = self.arrangement.order.clone();
        for &node in &order {
            self.forward(node, &mut known);
        }
        for (place, &node) in order.iter().enumerate().rev() {
            if self.problem.checkpoints.contains(&NodeId(node)) {
                self.recompute(&order[..=place]);
            }
            if self.learns(node) {
                self.backward(node, &mut known);
            }
        }
        self.finish(&mut known);
    }

    fn ranks(&self, node: usize) -> &[usize] {
        &self.arrangement.ranks[node]
    }

    fn split(&self, node: usize) -> Option<&NodeSplit> {
        self.arrangement.splits[node].map(|split| &self.problem.nodes[node].splits[split])
    }

    fn parts(&self, node: usize) -> usize {
        self.split(node).map_or(1, |split| split.parts)
    }

    /// Returns the number of groups of ranks that sum the gradients of a node's parameters.
    fn sum_groups(&self, node: usize) -> usize {
        if self.split(node).is_some_and(|split| split.sums_parts) { 1 } else { self.parts(node) }
    }

    /// Returns the place of a tensor on the ranks of a node, whose values `of` returns.
    fn place(&self, node: usize, of: impl Fn(&NodeSplit) -> Values) -> Place {
        let values = self.split(node).map_or(Values::Copies, of);
        Place { ranks: self.ranks(node).to_vec(), parts: self.parts(node), values }
    }

    fn synchronized(&self, node: usize) -> Option<SynchronizedBytes> {
        self.split(node).map_or(self.problem.nodes[node].synchronized, |split| split.synchronized)
    }

    fn in_order(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        self.arrangement.order.iter().copied().filter(|&node| is_wanted(node)).collect()
    }

    fn producers(&self, node: usize) -> Vec<usize> {
        self.in_order(|other| self.problem.edges.contains(&(NodeId(other), NodeId(node))))
    }

    fn consumers(&self, node: usize) -> Vec<usize> {
        self.in_order(|other| self.problem.edges.contains(&(NodeId(node), NodeId(other))))
    }

    /// Returns whether the node or a node before it has parameters.
    fn learns(&self, node: usize) -> bool {
        let of = &self.problem.nodes[node];
        of.gradient_bytes > 0
            || of.parameters_of.is_some()
            || self.producers(node).into_iter().any(|producer| self.learns(producer))
    }

    fn owns_parameters(&self, node: usize) -> bool {
        self.problem.nodes[node].gradient_bytes > 0 && self.problem.nodes[node].parameters_of.is_none()
    }

    /// Returns the nodes that use the parameters of a node, including itself.
    fn users(&self, owner: usize) -> Vec<usize> {
        let others = (0..self.problem.nodes.len())
            .filter(|&n| self.problem.nodes[n].parameters_of == Some(NodeId(owner)));
        std::iter::once(owner).chain(others).collect()
    }

    /// Returns all ranks that hold the parameters of a node: the list of its only user, or all
    /// ranks in ascending order.
    fn holders(&self, owner: usize) -> Vec<usize> {
        let users = self.users(owner);
        if users.iter().all(|&user| self.ranks(user) == self.ranks(owner)) {
            return self.ranks(owner).to_vec();
        }
        let all: BTreeSet<usize> = users.iter().flat_map(|&user| self.ranks(user)).copied().collect();
        all.into_iter().collect()
    }

    fn add(&mut self, event: Event) -> usize {
        let number = self.events.len();
        if event.lane == Lane::Compute {
            self.last_compute.extend(event.ranks.iter().map(|&rank| (rank, number)));
        }
        self.events.push(event);
        number
    }

    fn compute(&mut self, rank: usize, us: f64, after: Events) -> usize {
        self.add(Event { lane: Lane::Compute, ranks: vec![rank], duration_us: us, after })
    }

    /// Makes a rank's next compute event wait for these events.
    fn wait(&mut self, rank: usize, after: Events) {
        self.compute(rank, 0.0, after);
    }

    fn transfer(&mut self, producer: usize, from: &Place, to: &Place, after: Events) -> usize {
        let mut ranks = from.ranks.clone();
        ranks.extend(to.ranks.iter().filter(|rank| !from.ranks.contains(rank)));
        let us = match self.costs.splits() {
            Some(costs) if from.parts > 1 || to.parts > 1 => {
                costs.transfer(NodeId(producer), from.layout(), to.layout())
            }
            _ => self.costs.transfer(NodeId(producer), &from.ranks, &to.ranks),
        };
        self.add(Event { lane: Lane::Communication, ranks, duration_us: us, after })
    }

    /// Returns whether the ranks at a place add up what they receive from another one.
    fn adds_up(from: &Place, to: &Place) -> bool {
        let is_all_reduce = from.ranks == to.ranks && from.parts == to.parts && to.values == Values::Copies;
        from.values == Values::Addends && !is_all_reduce
    }

    /// Adds an all-reduce between the ranks that have the same part, unless there is a single one.
    fn reduce(&mut self, bytes: u64, ranks: &[usize], parts: usize, after: Events) -> Option<usize> {
        let of_part = |part: usize| -> Vec<usize> {
            let here = ranks.iter().enumerate().filter(|(place, _)| place % parts == part);
            here.map(|(_, &rank)| rank).collect()
        };
        let took = (0..parts).map(|part| self.costs.all_reduce(bytes, &of_part(part)));
        let event = |us| Event { lane: Lane::Communication, ranks: ranks.to_vec(), duration_us: us, after };
        (ranks.len() > parts).then(|| took.fold(0.0, f64::max)).map(|us| self.add(event(us)))
    }

    /// Returns the last compute events of the ranks.
    fn computed_last(&self, ranks: &[usize]) -> Events {
        ranks.iter().filter_map(|rank| self.last_compute.get(rank).copied()).collect()
    }

    fn steps(&self, node: usize, place: usize, holders: usize) -> crate::StepTimes {
        let parts = self.parts(node);
        let shard_size = if place / parts < self.costs.ranks_with_larger_shard(holders / parts) {
            ShardSize::Larger
        } else {
            ShardSize::Smaller
        };
        let ranks = self.ranks(node).len();
        let steps = match self.arrangement.splits[node] {
            None => self.costs.compute(NodeId(node), ranks, shard_size),
            Some(split) => {
                self.costs.splits().and_then(|costs| costs.compute(NodeId(node), split, ranks, shard_size))
            }
        };
        steps.unwrap_or_default()
    }

    /// Adds an all-reduce that every rank waits for before it computes on.
    fn synchronize(&mut self, bytes: u64, ranks: &[usize], parts: usize, mut after: Events) {
        after.extend(self.computed_last(ranks));
        if let Some(sum) = self.reduce(bytes, ranks, parts, after) {
            for &rank in ranks {
                self.wait(rank, vec![sum]);
            }
        }
    }

    fn move_output(&mut self, node: usize, to: &Place, known: &mut NodeEvents) {
        let computed = self.place(node, |split| split.output);
        let summed = Place { values: Values::Copies, ..computed.clone() };
        // An all-reduce replaces the addends by their sum.
        let sum = known.moved.get(&(node, summed.clone())).filter(|_| computed.values == Values::Addends);
        let forward = || computed.ranks.iter().map(|&rank| known.forward[&(node, rank)]).collect();
        let after: Events = sum.map_or_else(forward, |&sum| vec![sum]);
        let from = if sum.is_some() { summed } else { computed };
        if from != *to && !known.moved.contains_key(&(node, to.clone())) {
            let transfer = self.transfer(node, &from, to, after);
            if Self::adds_up(&from, to) {
                for &rank in &to.ranks {
                    self.wait(rank, vec![transfer]);
                }
            }
            known.moved.insert((node, to.clone()), transfer);
        }
    }

    fn forward(&mut self, node: usize, known: &mut NodeEvents) {
        let input = self.place(node, |split| split.input);
        let ranks = input.ranks.clone();
        let producers = self.producers(node);
        for &producer in &producers {
            self.move_output(producer, &input, known);
        }
        let inputs =
            producers.iter().filter_map(|&producer| known.moved.get(&(producer, input.clone())).copied());
        let inputs: Events = inputs.collect();
        if let Some(bytes) = self.synchronized(node).filter(|bytes| bytes.forward > 0) {
            self.synchronize(bytes.forward, &ranks, input.parts, inputs.clone());
        }
        for (place, &rank) in ranks.iter().enumerate() {
            let us = self.steps(node, place, ranks.len()).forward_us;
            let event = self.compute(rank, us, inputs.clone());
            known.forward.insert((node, rank), event);
        }
        let consumers = self.consumers(node);
        if consumers.len() > 1 {
            for consumer in consumers {
                let to = self.place(consumer, |split| split.input);
                self.move_output(node, &to, known);
            }
        }
    }

    /// Adds the repeated forward steps of nodes since the previous checkpoint. The last node of
    /// `order` is a checkpoint.
    fn recompute(&mut self, order: &[usize]) {
        let before = &order[..order.len() - 1];
        let is_checkpoint = |node: &usize| self.problem.checkpoints.contains(&NodeId(*node));
        let first = before.iter().rposition(is_checkpoint).map_or(0, |last| last + 1);
        let segment = &order[first..];
        let again: Vec<usize> =
            segment.iter().copied().filter(|&node| self.is_needed_again(node, segment)).collect();
        for node in again {
            let ranks = self.ranks(node).to_vec();
            for (place, &rank) in ranks.iter().enumerate() {
                let us = self.steps(node, place, ranks.len()).forward_us;
                self.compute(rank, us, Vec::new());
            }
        }
    }

    /// Returns whether the output of a node in a segment is discarded and read in the backward
    /// pass.
    fn is_needed_again(&self, node: usize, segment: &[usize]) -> bool {
        let of = &self.problem.nodes[node];
        let consumers = self.consumers(node);
        let output = self.place(node, |split| split.output);
        let is_beside =
            |&other: &usize| segment.contains(&other) && self.place(other, |split| split.input) == output;
        let is_gone = !of.is_kept && !consumers.is_empty() && consumers.iter().all(is_beside);
        let reads = of.backward_reads;
        let reads_own = self.learns(node) && (reads.output || reads.saved);
        let reads_input = |other: usize| self.learns(other) && self.problem.nodes[other].backward_reads.input;
        let is_read = |other: usize| reads_input(other) || self.is_needed_again(other, segment);
        is_gone && (reads_own || consumers.into_iter().any(is_read))
    }

    fn backward(&mut self, node: usize, known: &mut NodeEvents) {
        let ranks = self.ranks(node).to_vec();
        let arrives = known.arrives.get(&node).cloned().unwrap_or_default();
        for (place, &rank) in ranks.iter().enumerate() {
            let us = self.steps(node, place, ranks.len()).backward_us;
            let event = self.compute(rank, us, arrives.clone());
            known.gradients.insert((node, rank), event);
        }
        if let Some(bytes) = self.synchronized(node).filter(|bytes| bytes.backward > 0) {
            self.synchronize(bytes.backward, &ranks, self.parts(node), Vec::new());
        }
        for &rank in &ranks {
            known.backward.insert((node, rank), self.last_compute[&rank]);
        }
        for producer in self.producers(node).into_iter().rev() {
            let consumers = self.consumers(producer);
            let is_done =
                |&consumer: &usize| known.backward.contains_key(&(consumer, self.ranks(consumer)[0]));
            if self.learns(producer) && consumers.iter().all(is_done) {
                self.gather(producer, &consumers, known);
            }
        }
        if self.owns_parameters(node) {
            self.fill_bucket(node, known);
        }
    }

    /// Gathers the parts of the gradient of a node's output.
    fn gather(&mut self, node: usize, consumers: &[usize], known: &mut NodeEvents) {
        let is_sum = |split: &NodeSplit| split.output == Values::Addends;
        let own = self.place(node, |split| if is_sum(split) { Values::Copies } else { split.output });
        let mut parts: Vec<(Place, Vec<usize>)> = Vec::new();
        for &consumer in consumers.iter().rev() {
            let place = self.place(consumer, |split| split.input_gradient);
            match parts.iter_mut().find(|(known, _)| *known == place) {
                Some((_, nodes)) => nodes.push(consumer),
                None => parts.push((place, vec![consumer])),
            }
        }
        let mut arrives = Vec::new();
        for (from, nodes) in parts.iter().filter(|(place, _)| *place != own) {
            let after = match nodes[..] {
                [only] => from.ranks.iter().map(|&rank| known.backward[&(only, rank)]).collect(),
                // They are summed first, in the order of the lane.
                _ => self.computed_last(&from.ranks),
            };
            arrives.push(self.transfer(node, from, &own, after));
        }
        if parts.len() > 1 || parts.iter().any(|(from, _)| Self::adds_up(from, &own)) {
            for &rank in &own.ranks {
                self.wait(rank, arrives.clone());
            }
        }
        known.arrives.insert(node, arrives);
    }
}
