//! Branch and bound over placements of operations on one device each. A *branch* is a partial
//! placement; operations and devices are given by their indices.

use super::DevicePlacement;
use super::problem::{PassTimes, PlacementGraph, difference, later, sum};
use crate::{Result, Stop};

/// Relative tolerance of makespans: a placement that is shorter by less is not searched for.
pub(super) const RELATIVE_TOLERANCE: f64 = 1e-12;
/// Number of branches between checks of the stop switch.
const STOP_EVERY: u64 = 1 << 14;

/// Memory of each operation, and of a device.
#[derive(Debug, Clone)]
pub(super) struct MemoryLimit {
    /// By operation: its memory, bytes.
    pub(super) bytes: Vec<u64>,
    /// Memory of a device, bytes.
    pub(super) limit: u64,
}

impl MemoryLimit {
    /// Returns the device that needs the most memory, and its number of bytes. `placed` has the
    /// device of each operation, `devices` is the number of devices.
    pub(super) fn fullest(&self, placed: &[usize], devices: usize) -> (usize, u64) {
        let mut held = vec![0_u64; devices];
        for (&device, &bytes) in placed.iter().zip(&self.bytes) {
            held[device] = held[device].saturating_add(bytes);
        }
        held.into_iter().enumerate().max_by_key(|&(_, bytes)| bytes).unwrap_or((0, 0))
    }
}

/// A search for the placement of a graph's operations with the minimum makespan, the first
/// operation on device 0. Operations are placed in the order in which their forward steps start.
pub(super) struct BranchAndBound<'s> {
    structure: &'s PlacementGraph,
    devices: usize,
    memory: Option<&'s MemoryLimit>,
    /// By operation and pass: the longest path from its end to the end of the pass, microseconds.
    tails: Vec<PassTimes>,
    /// Durations of the only operation without consumers, if all others precede it; otherwise 0.
    last: PassTimes,
    /// The current branch.
    state: State,
    /// The shortest complete placement so far.
    best: DevicePlacement,
    /// Minimum bound of the branches that were pruned by the work limit.
    pruned_bound_us: f64,
    /// Number of branches that were expanded.
    expanded: u64,
    /// Maximum number of branches that are expanded.
    max_branches: u64,
    stop: &'s Stop,
}

/// A partial placement.
#[derive(Debug, Default)]
struct State {
    /// By operation: its device, or `usize::MAX` if it is not placed.
    placed: Vec<usize>,
    /// The placed operations in the order in which they start.
    order: Vec<usize>,
    /// By operation and pass: the end of its step, microseconds; 0 if it is not placed.
    ends: Vec<PassTimes>,
    /// By operation: the number of its producers that are not placed.
    waits: Vec<usize>,
    /// Operations that are not placed and whose producers are.
    ready: Vec<usize>,
    /// By device and pass: the time from which it is free, microseconds.
    free: Vec<PassTimes>,
    /// By device: its memory, bytes.
    held: Vec<u64>,
    /// Number of devices with an operation. The others are interchangeable.
    used: usize,
    /// Start of the forward step that was placed last.
    begun: f64,
    /// By pass: the longest path over the placed operations.
    longest: PassTimes,
    /// By pass: the work that is not placed.
    work: PassTimes,
}

/// An operation and a device that can be placed next.
#[derive(Debug, Clone, Copy)]
struct Child {
    operation: usize,
    device: usize,
    /// Start of the forward step, microseconds.
    begin: f64,
    /// By pass: end of the step, microseconds.
    end: PassTimes,
    /// Lower bound of the makespan of any completion, microseconds.
    bound_us: f64,
}

impl<'s> BranchAndBound<'s> {
    /// Creates a search on `devices` devices, starting from the placement `known`. It expands at
    /// most `max_branches` branches and fails once `stop` is set. `memory` is `None` if memory is
    /// unlimited.
    pub(super) fn new(
        structure: &'s PlacementGraph,
        devices: usize,
        memory: Option<&'s MemoryLimit>,
        known: DevicePlacement,
        max_branches: u64,
        stop: &'s Stop,
    ) -> Self {
        let count = structure.len();
        let sinks: Vec<usize> = (0..count).filter(|&one| structure.consumers[one].is_empty()).collect();
        let last = if let [only] = sinks[..] { structure.times[only] } else { [0.0; 2] };
        let state = State {
            placed: vec![usize::MAX; count],
            order: Vec::with_capacity(count),
            ends: vec![[0.0; 2]; count],
            waits: structure.producers.iter().map(Vec::len).collect(),
            free: vec![[0.0; 2]; devices],
            held: vec![0; devices],
            work: std::array::from_fn(|pass| structure.times.iter().map(|times| times[pass]).sum()),
            ..State::default()
        };
        let tails = structure.tails();
        let (pruned_bound_us, expanded) = (f64::INFINITY, 0);
        Self {
            structure,
            devices,
            memory,
            tails,
            last,
            state,
            best: known,
            pruned_bound_us,
            expanded,
            max_branches,
            stop,
        }
    }

    /// Runs the search. Returns the best placement, which is `known` if none is shorter, with a
    /// lower bound of the makespan. Fails with [`Error::Stopped`](crate::Error::Stopped).
    pub(super) fn solve(mut self) -> Result<DevicePlacement> {
        let sources = (0..self.structure.len()).filter(|&one| self.structure.producers[one].is_empty());
        self.state.ready = sources.collect();
        // Depth first; the depth is the number of operations.
        let mut levels = vec![Level { children: self.expand()?, placed: None }];
        while let Some(level) = levels.last_mut() {
            if let Some((child, undo)) = level.placed.take() {
                self.undo(&child, &undo);
            }
            if let Some(child) = level.children.next().filter(|child| self.can_improve(child)) {
                level.placed = Some((child, self.place(&child)));
                levels.push(Level { children: self.expand()?, placed: None });
            } else {
                levels.pop();
            }
        }
        let lower_bound_us = self.pruned_bound_us.min(self.best.makespan_us);
        Ok(DevicePlacement { lower_bound_us, ..self.best })
    }

    /// Returns the children of the current placement, most promising first. A complete placement
    /// has none and becomes the best one if it is shorter.
    fn expand(&mut self) -> Result<std::vec::IntoIter<Child>> {
        if self.expanded % STOP_EVERY == 0 {
            self.stop.check()?;
        }
        self.expanded += 1;
        if self.state.order.len() == self.structure.len() {
            let makespan_us: f64 = self.state.longest.iter().sum();
            if makespan_us < self.best.makespan_us {
                let (devices, order) = (self.state.placed.clone(), self.state.order.clone());
                self.best = DevicePlacement { devices, order, makespan_us, lower_bound_us: 0.0 };
            }
            return Ok(Vec::new().into_iter());
        }
        let mut children = self.children();
        children.sort_by(|a, b| {
            let end = |child: &Child| child.end[0] + child.end[1];
            a.bound_us.total_cmp(&b.bound_us).then(end(a).total_cmp(&end(b)))
        });
        Ok(children.into_iter())
    }

    /// Returns whether a child can be shorter than the best placement and the work limit allows it.
    /// If not, neither can the children after it.
    fn can_improve(&mut self, child: &Child) -> bool {
        if child.bound_us >= self.best.makespan_us * (1.0 - RELATIVE_TOLERANCE) {
            return false;
        }
        let is_left = self.expanded < self.max_branches;
        if !is_left {
            self.pruned_bound_us = self.pruned_bound_us.min(child.bound_us);
        }
        is_left
    }

    /// Returns all ways to place an operation next that start no earlier than the one before and
    /// are within the memory limit.
    fn children(&self) -> Vec<Child> {
        let state = &self.state;
        let mut children = Vec::new();
        let before = state.order.last().map(|&last| (last, state.placed[last]));
        for &operation in &state.ready {
            // The first operation is on the first device. Unused devices are interchangeable.
            let within = (state.used + 1).min(self.devices);
            for device in 0..within {
                let has_room = |memory: &MemoryLimit| {
                    let held = state.held[device].checked_add(memory.bytes[operation]);
                    held.is_some_and(|held| held <= memory.limit)
                };
                if !self.memory.is_none_or(has_room) {
                    continue;
                }
                let begin = self.begin(operation, device);
                if begin[0] < state.begun {
                    continue;
                }
                // Of two that start at the same time on different devices, the one with the smaller
                // index comes first.
                if let Some((last, on)) = before {
                    let is_long = self.structure.times[last][0] > 0.0;
                    if begin[0] <= state.begun && on != device && is_long && operation < last {
                        continue;
                    }
                }
                let end = sum(begin, self.structure.times[operation]);
                let bound_us = self.bound(operation, device, end);
                children.push(Child { operation, device, begin: begin[0], end, bound_us });
            }
        }
        children
    }

    fn begin(&self, operation: usize, device: usize) -> PassTimes {
        let state = &self.state;
        let mut begin = state.free[device];
        for producer in &self.structure.producers[operation] {
            let arrives = producer
                .available(state.ends[producer.operation], state.placed[producer.operation] != device);
            begin = later(begin, arrives);
        }
        begin
    }

    /// Lower bound on the makespan of any completion: the larger of the critical path and the
    /// remaining work divided by the number of devices.
    fn bound(&self, operation: usize, device: usize, end: PassTimes) -> f64 {
        let state = &self.state;
        let is_last = state.order.len() + 1 == self.structure.len();
        let after = if is_last { [0.0; 2] } else { self.last };
        let ways = later(state.longest, sum(end, self.tails[operation]));
        let left = difference(difference(state.work, self.structure.times[operation]), after);
        let of_pass = |pass: usize| {
            let others = state.free.iter().enumerate().filter(|&(other, _)| other != device);
            let busy: f64 = end[pass] + others.map(|(_, free)| free[pass]).sum::<f64>();
            ways[pass].max((busy + left[pass].max(0.0)) / self.devices as f64 + after[pass])
        };
        of_pass(0) + of_pass(1)
    }

    fn place(&mut self, child: &Child) -> SavedState {
        let Child { operation, device, begin, end, .. } = *child;
        let state = &mut self.state;
        let undo = SavedState {
            free: state.free[device],
            used: state.used,
            begun: state.begun,
            longest: state.longest,
            work: state.work,
            ready: state.ready.clone(),
        };
        state.placed[operation] = device;
        state.order.push(operation);
        state.ends[operation] = end;
        state.free[device] = end;
        state.used = state.used.max(device + 1);
        state.begun = begin;
        state.longest = later(state.longest, sum(end, self.tails[operation]));
        state.work = difference(state.work, self.structure.times[operation]);
        if let Some(memory) = self.memory {
            state.held[device] += memory.bytes[operation];
        }
        state.ready.retain(|&ready| ready != operation);
        for consumer in &self.structure.consumers[operation] {
            state.waits[consumer.operation] -= 1;
            if state.waits[consumer.operation] == 0 {
                state.ready.push(consumer.operation);
            }
        }
        undo
    }

    fn undo(&mut self, child: &Child, undo: &SavedState) {
        let Child { operation, device, .. } = *child;
        let state = &mut self.state;
        for consumer in &self.structure.consumers[operation] {
            state.waits[consumer.operation] += 1;
        }
        state.ready.clone_from(&undo.ready);
        if let Some(memory) = self.memory {
            state.held[device] -= memory.bytes[operation];
        }
        state.order.pop();
        state.placed[operation] = usize::MAX;
        state.free[device] = undo.free;
        (state.used, state.begun, state.longest, state.work) =
            (undo.used, undo.begun, undo.longest, undo.work);
    }
}

/// The remaining children at some depth, and the current one.
struct Level {
    /// Children of the branch that are not searched yet, by ascending bound.
    children: std::vec::IntoIter<Child>,
    /// The child that is being searched, and the state before it was placed.
    placed: Option<(Child, SavedState)>,
}

/// The state before an operation was placed.
struct SavedState {
    free: PassTimes,
    used: usize,
    begun: f64,
    longest: PassTimes,
    work: PassTimes,
    ready: Vec<usize>,
}
