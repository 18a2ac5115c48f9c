//! The time model once more, slow and obvious: every step on every rank is an event, and every iteration is gone through.
//!
//! It shares the costs with [`Evaluator`](crate::Evaluator), and no code: each checks the other.

use std::collections::BTreeMap;

use crate::{Activity, Arrangement, Result, Share, TrainingCosts, TrainingProblem};

/// So many iterations are gone through. The latter half is timed; it is a multiple of all short periods.
const ITERATIONS: usize = 240;

/// What [`slow_time`] says.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowTime {
    /// From one iteration to the next, microseconds.
    pub iteration_us: f64,
    /// The time in which ranks are active, of all together, GPU-microseconds.
    pub gpu_time_us: f64,
    /// Where the time of each rank goes.
    pub activity: Vec<Activity>,
}

#[derive(Clone, Copy, PartialEq)]
enum Lane {
    Compute,
    Communication,
}

/// Something that occupies a lane of some ranks from when they all are free, and all events that it comes `after` have ended.
struct Event {
    lane: Lane,
    ranks: Vec<usize>,
    us: f64,
    after: Vec<usize>,
}

/// Events by their place in the list.
type Events = Vec<usize>;

/// Evaluates an arrangement rank by rank and event by event. O(iterations x events x ranks): for small problems.
///
/// # Errors
/// What [`TrainingProblem::validate`] and [`Arrangement::validate`] report, and [`NoTimes`](crate::Error::NoTimes).
pub fn slow_time(
    problem: &TrainingProblem,
    costs: &dyn TrainingCosts,
    arrangement: &Arrangement,
) -> Result<SlowTime> {
    problem.validate()?;
    arrangement.validate(problem)?;
    for (index, (node, ranks)) in problem.nodes.iter().zip(&arrangement.ranks).enumerate() {
        if [Share::Larger, Share::Smaller]
            .iter()
            .any(|&share| costs.compute(index, ranks.len(), share).is_none())
        {
            return Err(crate::Error::NoTimes { node: node.name.clone(), gpus: ranks.len() });
        }
    }
    let mut writer =
        Writer { problem, costs, arrangement, events: Vec::new(), last_compute: BTreeMap::new() };
    writer.write();
    Ok(go_through(&writer.events, problem.gpus))
}

fn go_through(events: &[Event], gpus: usize) -> SlowTime {
    let mut begins = vec![0.0; gpus];
    let mut latest = Vec::new();
    let mut spans: Vec<Vec<(Lane, f64, f64)>> = Vec::new();
    for _ in 0..ITERATIONS {
        let mut free = [begins.clone(), begins.clone()];
        let mut ends: Vec<f64> = Vec::new();
        spans = vec![Vec::new(); gpus];
        for event in events {
            let lane = event.lane as usize;
            let waits =
                event.ranks.iter().map(|&rank| free[lane][rank]).chain(event.after.iter().map(|&e| ends[e]));
            let start = waits.fold(0.0, f64::max);
            let end = start + event.us;
            for &rank in &event.ranks {
                free[lane][rank] = end;
                spans[rank].push((event.lane, start, end));
            }
            ends.push(end);
        }
        begins = free[0].iter().zip(&free[1]).map(|(a, b)| a.max(*b)).collect();
        latest.push(begins.iter().copied().fold(0.0, f64::max));
    }
    let half = ITERATIONS / 2;
    let iteration_us = (latest[ITERATIONS - 1] - latest[half - 1]) / half as f64;
    let activity: Vec<Activity> = spans.iter().map(|spans| activity(spans, iteration_us)).collect();
    SlowTime { iteration_us, gpu_time_us: activity.iter().map(Activity::active_us).sum(), activity }
}

/// Looks at every stretch between two ends of spans.
fn activity(spans: &[(Lane, f64, f64)], iteration_us: f64) -> Activity {
    let mut ends: Vec<f64> = spans.iter().flat_map(|&(_, start, end)| [start, end]).collect();
    ends.sort_by(f64::total_cmp);
    let mut activity = Activity::default();
    for pair in ends.windows(2) {
        let covered =
            |lane| spans.iter().any(|&(l, start, end)| l == lane && start <= pair[0] && pair[1] <= end);
        if covered(Lane::Compute) {
            activity.computing_us += pair[1] - pair[0];
        } else if covered(Lane::Communication) {
            activity.communicating_us += pair[1] - pair[0];
        }
    }
    activity.idle_us = (iteration_us - activity.active_us()).max(0.0);
    activity
}

/// Writes down the events of an iteration, in the order in which ranks come to them.
struct Writer<'a> {
    problem: &'a TrainingProblem,
    costs: &'a dyn TrainingCosts,
    arrangement: &'a Arrangement,
    events: Vec<Event>,
    /// By rank.
    last_compute: BTreeMap<usize, usize>,
}

/// Gradients that wait to be reduced.
struct Bucket {
    ranks: Vec<usize>,
    bytes: u64,
    nodes: Vec<usize>,
    /// By rank.
    ready: BTreeMap<usize, Events>,
}

/// What is known by node while the events are written.
#[derive(Default)]
struct Known {
    forward: BTreeMap<(usize, usize), usize>,
    /// When the gradient of the node's own parameters is there, and when that of its inputs is.
    gradients: BTreeMap<(usize, usize), usize>,
    backward: BTreeMap<(usize, usize), usize>,
    moved: BTreeMap<(usize, Vec<usize>), usize>,
    /// The transfers that bring the gradient of a node's output.
    arrives: BTreeMap<usize, Events>,
    /// What the update of a node waits for on a rank.
    reduced: BTreeMap<(usize, usize), Events>,
    buckets: Vec<Bucket>,
}

impl Writer<'_> {
    fn write(&mut self) {
        let mut known = Known::default();
        let order = self.arrangement.order.clone();
        for &node in &order {
            self.forward(node, &mut known);
        }
        for &node in order.iter().rev() {
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
        self.in_order(|other| self.problem.edges.contains(&(other, node)))
    }

    fn consumers(&self, node: usize) -> Vec<usize> {
        self.in_order(|other| self.problem.edges.contains(&(node, other)))
    }

    /// Whether the node or anything before it has parameters.
    fn learns(&self, node: usize) -> bool {
        let of = &self.problem.nodes[node];
        of.gradient_bytes > 0
            || of.parameters_of.is_some()
            || self.producers(node).into_iter().any(|producer| self.learns(producer))
    }

    fn owns_parameters(&self, node: usize) -> bool {
        self.problem.nodes[node].gradient_bytes > 0 && self.problem.nodes[node].parameters_of.is_none()
    }

    /// The nodes that use the parameters of a node, which is one of them.
    fn users(&self, owner: usize) -> Vec<usize> {
        let others =
            (0..self.problem.nodes.len()).filter(|&n| self.problem.nodes[n].parameters_of == Some(owner));
        std::iter::once(owner).chain(others).collect()
    }

    /// All ranks that hold the parameters of a node.
    fn holders(&self, owner: usize) -> Vec<usize> {
        let mut ranks = Vec::new();
        for user in self.users(owner) {
            for &rank in self.ranks(user) {
                if !ranks.contains(&rank) {
                    ranks.push(rank);
                }
            }
        }
        ranks
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
        self.add(Event { lane: Lane::Compute, ranks: vec![rank], us, after })
    }

    /// A rank computes nothing more until these have ended.
    fn wait(&mut self, rank: usize, after: Events) {
        self.compute(rank, 0.0, after);
    }

    fn transfer(&mut self, producer: usize, from: &[usize], to: &[usize], after: Events) -> usize {
        let mut ranks = from.to_vec();
        ranks.extend(to.iter().filter(|rank| !from.contains(rank)));
        let us = self.costs.transfer(producer, from, to);
        self.add(Event { lane: Lane::Communication, ranks, us, after })
    }

    /// Nothing where there is one rank.
    fn reduce(&mut self, bytes: u64, ranks: &[usize], after: Events) -> Option<usize> {
        let event = |us| Event { lane: Lane::Communication, ranks: ranks.to_vec(), us, after };
        (ranks.len() > 1).then(|| self.add(event(self.costs.reduce(bytes, ranks))))
    }

    /// What was computed last on the ranks.
    fn computed_last(&self, ranks: &[usize]) -> Events {
        ranks.iter().filter_map(|rank| self.last_compute.get(rank).copied()).collect()
    }

    fn steps(&self, node: usize, place: usize, holders: usize) -> crate::StepTimes {
        let share = if place < self.costs.larger_shares(holders) { Share::Larger } else { Share::Smaller };
        self.costs.compute(node, self.ranks(node).len(), share).unwrap_or_default()
    }

    /// A reduction that every rank waits for before it computes on.
    fn synchronize(&mut self, bytes: u64, ranks: &[usize], mut after: Events) {
        after.extend(self.computed_last(ranks));
        if let Some(sum) = self.reduce(bytes, ranks, after) {
            for &rank in ranks {
                self.wait(rank, vec![sum]);
            }
        }
    }

    fn move_output(&mut self, node: usize, to: &[usize], known: &mut Known) {
        let from = self.ranks(node).to_vec();
        if from != to && !known.moved.contains_key(&(node, to.to_vec())) {
            let after = from.iter().map(|&rank| known.forward[&(node, rank)]).collect();
            let transfer = self.transfer(node, &from, to, after);
            known.moved.insert((node, to.to_vec()), transfer);
        }
    }

    fn forward(&mut self, node: usize, known: &mut Known) {
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

    fn backward(&mut self, node: usize, known: &mut Known) {
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

    /// Brings the parts of the gradient of a node's output together.
    fn gather(&mut self, node: usize, consumers: &[usize], known: &mut Known) {
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
                // They are added up first, in the order of the lane.
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

    fn fill_bucket(&mut self, node: usize, known: &mut Known) {
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

    fn reduce_bucket(&mut self, bucket: &Bucket, known: &mut Known) {
        let after = bucket.ready.values().flatten().copied().collect();
        let sum = self.reduce(bucket.bytes, &bucket.ranks, after);
        for &node in &bucket.nodes {
            for (&rank, ready) in &bucket.ready {
                known.reduced.insert((node, rank), sum.map_or_else(|| ready.clone(), |sum| vec![sum]));
            }
        }
    }

    fn finish(&mut self, known: &mut Known) {
        let all: Vec<usize> = (0..self.problem.gpus).collect();
        // Without overlap a rank communicates when it has computed all gradients.
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
