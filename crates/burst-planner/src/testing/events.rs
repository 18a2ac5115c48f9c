//! The events of an iteration, listed for every rank.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Arrangement, CostModel, NodeId, PlanProblem, ShardSize};

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

/// Gradients that wait to be reduced.
struct Bucket {
    /// The ranks that hold the parameters.
    ranks: Vec<usize>,
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
    /// By node and list of ranks: the transfer of its output there.
    moved: BTreeMap<(usize, Vec<usize>), usize>,
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

    fn transfer(&mut self, producer: usize, from: &[usize], to: &[usize], after: Events) -> usize {
        let mut ranks = from.to_vec();
        ranks.extend(to.iter().filter(|rank| !from.contains(rank)));
        let us = self.costs.transfer(NodeId(producer), from, to);
        self.add(Event { lane: Lane::Communication, ranks, duration_us: us, after })
    }

    /// Adds an all-reduce, unless there is a single rank.
    fn reduce(&mut self, bytes: u64, ranks: &[usize], after: Events) -> Option<usize> {
        let event = |us| Event { lane: Lane::Communication, ranks: ranks.to_vec(), duration_us: us, after };
        (ranks.len() > 1).then(|| self.add(event(self.costs.all_reduce(bytes, ranks))))
    }

    /// Returns the last compute events of the ranks.
    fn computed_last(&self, ranks: &[usize]) -> Events {
        ranks.iter().filter_map(|rank| self.last_compute.get(rank).copied()).collect()
    }

    fn steps(&self, node: usize, place: usize, holders: usize) -> crate::StepTimes {
        let shard_size = if place < self.costs.ranks_with_larger_shard(holders) {
            ShardSize::Larger
        } else {
            ShardSize::Smaller
        };
        self.costs.compute(NodeId(node), self.ranks(node).len(), shard_size).unwrap_or_default()
    }

    /// Adds an all-reduce that every rank waits for before it computes on.
    fn synchronize(&mut self, bytes: u64, ranks: &[usize], mut after: Events) {
        after.extend(self.computed_last(ranks));
        if let Some(sum) = self.reduce(bytes, ranks, after) {
            for &rank in ranks {
                self.wait(rank, vec![sum]);
            }
        }
    }

    fn move_output(&mut self, node: usize, to: &[usize], known: &mut NodeEvents) {
        let from = self.ranks(node).to_vec();
        if from != to && !known.moved.contains_key(&(node, to.to_vec())) {
            let after = from.iter().map(|&rank| known.forward[&(node, rank)]).collect();
            let transfer = self.transfer(node, &from, to, after);
            known.moved.insert((node, to.to_vec()), transfer);
        }
    }

    fn forward(&mut self, node: usize, known: &mut NodeEvents) {
        let ranks = self.ranks(node).to_vec();
        let producers = self.producers(node);
        for &producer in &producers {
            self.move_output(producer, &ranks, known);
        }
        let inputs =
            producers.iter().filter_map(|&producer| known.moved.get(&(producer, ranks.clone())).copied());
        let inputs: Events = inputs.collect();
        if let Some(bytes) = self.problem.nodes[node].synchronized.filter(|bytes| bytes.forward > 0) {
            self.synchronize(bytes.forward, &ranks, inputs.clone());
        }
        for (place, &rank) in ranks.iter().enumerate() {
            let us = self.steps(node, place, ranks.len()).forward_us;
            let event = self.compute(rank, us, inputs.clone());
            known.forward.insert((node, rank), event);
        }
        let consumers = self.consumers(node);
        if consumers.len() > 1 {
            for consumer in consumers {
                let to = self.ranks(consumer).to_vec();
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
        let is_beside = |&other: &usize| segment.contains(&other) && self.ranks(other) == self.ranks(node);
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
        if let Some(bytes) = self.problem.nodes[node].synchronized.filter(|bytes| bytes.backward > 0) {
            self.synchronize(bytes.backward, &ranks, Vec::new());
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
        let own = self.ranks(node).to_vec();
        let mut parts: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        for &consumer in consumers.iter().rev() {
            let ranks = self.ranks(consumer);
            match parts.iter_mut().find(|(known, _)| known == ranks) {
                Some((_, nodes)) => nodes.push(consumer),
                None => parts.push((ranks.to_vec(), vec![consumer])),
            }
        }
        let mut arrives = Vec::new();
        for (ranks, nodes) in parts.iter().filter(|(ranks, _)| *ranks != own) {
            let after = match nodes[..] {
                [only] => ranks.iter().map(|&rank| known.backward[&(only, rank)]).collect(),
                // They are summed first, in the order of the lane.
                _ => self.computed_last(ranks),
            };
            arrives.push(self.transfer(node, ranks, &own, after));
        }
        if parts.len() > 1 {
            for &rank in &own {
                self.wait(rank, arrives.clone());
            }
        }
        known.arrives.insert(node, arrives);
    }

    fn fill_bucket(&mut self, node: usize, known: &mut NodeEvents) {
        let (ranks, users) = (self.holders(node), self.users(node));
        let place = known.buckets.iter().position(|bucket| bucket.ranks == ranks).unwrap_or_else(|| {
            let (ranks, nodes) = (ranks.clone(), Vec::new());
            known.buckets.push(Bucket { ranks, bytes: 0, nodes, ready: BTreeMap::new() });
            known.buckets.len() - 1
        });
        for &rank in &ranks {
            let here: Vec<usize> =
                users.iter().copied().filter(|&user| self.ranks(user).contains(&rank)).collect();
            let ready = match here[..] {
                [only] => vec![known.gradients[&(only, rank)]],
                _ => self.computed_last(&[rank]),
            };
            known.buckets[place].ready.entry(rank).or_default().extend(ready);
        }
        let bucket = &mut known.buckets[place];
        bucket.nodes.push(node);
        bucket.bytes = bucket.bytes.saturating_add(self.problem.nodes[node].gradient_bytes);
        if self.problem.gradients.overlap && bucket.bytes >= self.problem.gradients.bucket_bytes {
            let full = known.buckets.remove(place);
            self.reduce_bucket(&full, known);
        }
    }

    fn reduce_bucket(&mut self, bucket: &Bucket, known: &mut NodeEvents) {
        let after = bucket.ready.values().flatten().copied().collect();
        let sum = self.reduce(bucket.bytes, &bucket.ranks, after);
        for &node in &bucket.nodes {
            for (&rank, ready) in &bucket.ready {
                known.reduced.insert((node, rank), sum.map_or_else(|| ready.clone(), |sum| vec![sum]));
            }
        }
    }

    fn finish(&mut self, known: &mut NodeEvents) {
        let all: Vec<usize> = (0..self.problem.gpus).collect();
        // Without overlap a rank communicates once it has computed all gradients.
        let passed = |writer: &Self, rank: usize| {
            if writer.problem.gradients.overlap { Vec::new() } else { writer.computed_last(&[rank]) }
        };
        let passed: Vec<Events> = all.iter().map(|&rank| passed(self, rank)).collect();
        for mut bucket in std::mem::take(&mut known.buckets) {
            for (&rank, ready) in &mut bucket.ready {
                ready.extend(&passed[rank]);
            }
            self.reduce_bucket(&bucket, known);
        }
        if self.problem.gradients.clip_norm {
            let here =
                |rank: usize| known.reduced.iter().filter(move |((_, r), _)| *r == rank).flat_map(|(_, e)| e);
            let ranks: Vec<usize> = all.iter().copied().filter(|&rank| here(rank).next().is_some()).collect();
            let after = ranks.iter().flat_map(|&rank| here(rank).copied()).collect();
            self.synchronize(4, &ranks, after);
        }
        let order = self.arrangement.order.clone();
        for &node in order.iter().rev() {
            if !self.owns_parameters(node) {
                continue;
            }
            let holders = self.holders(node);
            for (place, &rank) in holders.iter().enumerate() {
                let us = self.steps(node, place, holders.len()).update_us;
                self.compute(rank, us, known.reduced[&(node, rank)].clone());
            }
        }
        let loss = order.iter().rev().copied().find(|&node| self.consumers(node).is_empty());
        if let Some(loss) = loss.filter(|_| self.problem.gradients.metrics_bytes > 0) {
            let ranks = self.ranks(loss).to_vec();
            let ready = |&rank: &usize| [vec![known.forward[&(loss, rank)]], passed[rank].clone()].concat();
            let after = ranks.iter().flat_map(ready).collect();
            self.reduce(self.problem.gradients.metrics_bytes, &ranks, after);
        }
    }
}
