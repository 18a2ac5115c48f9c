//! Placement problems. Operations are given by their indices in the problem.

use std::collections::HashMap;

use crate::problem::topological;
use crate::{Error, NodeId, Result};

/// The operations of one iteration on one worker, and its devices.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlacementProblem {
    /// Number of devices, which have the indices `0..devices`.
    pub devices: usize,
    /// The operations to place.
    pub operations: Vec<Operation>,
    /// Producers and consumers. Acyclic, without duplicates.
    pub edges: Vec<PlacementEdge>,
    /// Maximum memory of a device, bytes; `None` is unlimited.
    pub memory_limit_bytes: Option<u64>,
}

/// An operation to place, such as a layer: a forward and a backward step on one device.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Operation {
    /// Name, unique in the problem.
    pub name: String,
    /// Duration of the forward step, microseconds.
    pub forward_us: f64,
    /// Duration of the backward step, microseconds.
    pub backward_us: f64,
    /// Size of its memory on its device, bytes.
    pub memory_bytes: u64,
}

/// An operation's output that another one reads.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PlacementEdge {
    /// Index of the producer.
    pub from: NodeId,
    /// Index of the consumer.
    pub to: NodeId,
    /// Duration of moving the output to another device, microseconds.
    pub forward_us: f64,
    /// Duration of moving its gradient back, microseconds.
    pub backward_us: f64,
}

impl Operation {
    /// Creates an operation that needs no memory, with the durations of its steps in microseconds.
    #[must_use]
    pub fn new(name: impl Into<String>, forward_us: f64, backward_us: f64) -> Self {
        Self { name: name.into(), forward_us, backward_us, memory_bytes: 0 }
    }

    /// Sets the memory on its device, bytes.
    #[must_use]
    pub fn with_memory(self, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..self }
    }
}

impl PlacementProblem {
    /// Creates a problem with `devices` devices, without operations or a memory limit.
    #[must_use]
    pub fn new(devices: usize) -> Self {
        Self { devices, operations: Vec::new(), edges: Vec::new(), memory_limit_bytes: None }
    }

    /// Sets the memory of a device, bytes.
    #[must_use]
    pub fn with_memory_limit(self, memory_limit_bytes: u64) -> Self {
        Self { memory_limit_bytes: Some(memory_limit_bytes), ..self }
    }

    /// Adds an operation and returns its index.
    pub fn add(&mut self, operation: Operation) -> NodeId {
        self.operations.push(operation);
        NodeId(self.operations.len() - 1)
    }

    /// Adds an edge from the producer `from` to the consumer `to`, with the durations of moving the
    /// output to another device, and its gradient back, microseconds.
    pub fn connect(&mut self, from: NodeId, to: NodeId, forward_us: f64, backward_us: f64) {
        self.edges.push(PlacementEdge { from, to, forward_us, backward_us });
    }

    /// Checks the problem. Linear time.
    ///
    /// # Errors
    /// An error if there is no device or operation, a name is used twice, a time is negative or not
    /// finite, an edge refers to a missing operation, to itself or is a duplicate, or the edges
    /// form a cycle.
    pub fn validate(&self) -> Result<()> {
        self.structure().map(|_| ())
    }

    /// Returns the duration of both passes, microseconds: see [the model](super). `devices` has the
    /// device of each operation, `order` all operations, producers first. O(operations + edges).
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate), and [`Error::BadArrangement`] if a device does not
    /// exist, an operation is missing or repeated in the order, or a consumer precedes its
    /// producer.
    pub fn makespan_us(&self, devices: &[usize], order: &[usize]) -> Result<f64> {
        let structure = self.structure()?;
        structure.check(self, devices, order)?;
        Ok(structure.makespan_us(devices, order))
    }

    /// Checks the problem and returns its graph. Fails as [`validate`](Self::validate) does.
    pub(super) fn structure(&self) -> Result<PlacementGraph> {
        if self.devices == 0 {
            return Err(Error::NoGpus);
        }
        if self.operations.is_empty() {
            return Err(Error::NoNodes);
        }
        let mut names = HashMap::new();
        for (index, operation) in self.operations.iter().enumerate() {
            if let Some(first) = names.insert(operation.name.as_str(), index) {
                return Err(Error::DuplicateName { name: operation.name.clone(), first, second: index });
            }
            let times = [("forward_us", operation.forward_us), ("backward_us", operation.backward_us)];
            check_times(|| format!("operation `{}`", operation.name), times)?;
        }
        let mut seen = HashMap::new();
        let count = self.operations.len();
        let (mut producers, mut consumers) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (edge, of) in self.edges.iter().enumerate() {
            let (from, to) = (of.from.0, of.to.0);
            if let Some(&node) = [from, to].iter().find(|&&node| node >= count) {
                return Err(Error::EdgeToNowhere { edge, node, nodes: count });
            }
            let name = |node: usize| self.operations[node].name.clone();
            if from == to {
                return Err(Error::SelfEdge { edge, node: name(from) });
            }
            if let Some(first) = seen.insert((from, to), edge) {
                return Err(Error::DuplicateEdge { first, second: edge, from: name(from), to: name(to) });
            }
            let times = [("forward_us", of.forward_us), ("backward_us", of.backward_us)];
            check_times(|| format!("edge {edge} (`{}` to `{}`)", name(from), name(to)), times)?;
            producers[to].push(Neighbour { operation: from, transfer_us: [of.forward_us, of.backward_us] });
            consumers[from].push(Neighbour { operation: to, transfer_us: [of.forward_us, of.backward_us] });
        }
        let times = self.operations.iter().map(|operation| [operation.forward_us, operation.backward_us]);
        let after = |operation: usize| consumers[operation].iter().map(|of: &Neighbour| of.operation);
        let order = topological(count, after);
        let structure = PlacementGraph { times: times.collect(), producers, consumers, order };
        if structure.order.len() < count {
            let mut is_ordered = vec![false; count];
            structure.order.iter().for_each(|&operation| is_ordered[operation] = true);
            let on_cycle = is_ordered.iter().position(|ordered| !ordered).unwrap_or(0);
            return Err(Error::Cycle { node: self.operations[on_cycle].name.clone() });
        }
        if !structure.times.iter().flatten().sum::<f64>().is_finite() {
            return Err(Error::TimesOverflow);
        }
        Ok(structure)
    }
}

fn check_times(place: impl Fn() -> String, times: [(&'static str, f64); 2]) -> Result<()> {
    match times.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
        Some((field, value)) => Err(Error::BadTime { place: place(), field, value }),
        None => Ok(()),
    }
}

/// An operation at the other end of an edge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neighbour {
    /// Index of the operation.
    pub(super) operation: usize,
    /// Duration of the transfer between devices, forward and backward, microseconds.
    pub(super) transfer_us: PassTimes,
}

impl Neighbour {
    /// Returns the time when the output is available in each pass, microseconds, if `ends` are the
    /// ends of the operation's steps. `is_moved` is whether it moves to another device.
    pub(super) fn available(&self, ends: PassTimes, is_moved: bool) -> PassTimes {
        if is_moved { sum(ends, self.transfer_us) } else { ends }
    }
}

/// A value for each pass: forward and backward. Times of the backward pass are those of the pass in
/// reverse, from its end to its start.
pub(super) type PassTimes = [f64; 2];

/// Returns the sum in each pass.
pub(super) fn sum(a: PassTimes, b: PassTimes) -> PassTimes {
    [a[0] + b[0], a[1] + b[1]]
}

/// Returns `a` minus `b` in each pass.
pub(super) fn difference(a: PassTimes, b: PassTimes) -> PassTimes {
    [a[0] - b[0], a[1] - b[1]]
}

/// Returns the later of two times, in each pass.
pub(super) fn later(a: PassTimes, b: PassTimes) -> PassTimes {
    [a[0].max(b[0]), a[1].max(b[1])]
}

/// A valid placement problem, indexed by operation.
#[derive(Debug, Clone)]
pub(super) struct PlacementGraph {
    /// By operation: the durations of its forward and backward step, microseconds.
    pub(super) times: Vec<PassTimes>,
    /// By operation: the operations whose outputs it reads.
    pub(super) producers: Vec<Vec<Neighbour>>,
    /// By operation: the operations that read its output.
    pub(super) consumers: Vec<Vec<Neighbour>>,
    /// Operations in topological order, the smaller index first among those that are ready.
    pub(super) order: Vec<usize>,
}

impl PlacementGraph {
    /// Returns the number of operations.
    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    fn check(&self, problem: &PlacementProblem, devices: &[usize], order: &[usize]) -> Result<()> {
        let wrong = |message: String| Err(Error::BadArrangement { message });
        let count = self.len();
        if devices.len() != count || order.len() != count {
            let (devices, order) = (devices.len(), order.len());
            return wrong(format!(
                "{count} operations, but {devices} devices and {order} places in the order"
            ));
        }
        if let Some(at) = devices.iter().position(|&device| device >= problem.devices) {
            let (name, device) = (&problem.operations[at].name, devices[at]);
            return wrong(format!("`{name}` is on device {device}, and there are {}", problem.devices));
        }
        let mut is_placed = vec![false; count];
        for &operation in order {
            let Some(is_placed_twice) = is_placed.get(operation) else {
                return wrong(format!("the order names operation {operation}, and there are {count}"));
            };
            let name = &problem.operations[operation].name;
            if *is_placed_twice {
                return wrong(format!("the order names `{name}` twice"));
            }
            if let Some(late) = self.producers[operation].iter().find(|before| !is_placed[before.operation]) {
                return wrong(format!(
                    "`{name}` comes before `{}`, whose output it uses",
                    problem.operations[late.operation].name
                ));
            }
            is_placed[operation] = true;
        }
        Ok(())
    }

    /// Returns the duration of both passes, microseconds, for the device of each operation and an
    /// order of all operations. Both are valid.
    pub(super) fn makespan_us(&self, devices: &[usize], order: &[usize]) -> f64 {
        let maximum = devices.iter().max().map_or(0, |&device| device + 1);
        let mut free: Vec<PassTimes> = vec![[0.0; 2]; maximum];
        let mut ends: Vec<PassTimes> = vec![[0.0; 2]; self.len()];
        let mut last = [0.0; 2];
        for &operation in order {
            let device = devices[operation];
            let begin = self.producers[operation].iter().fold(free[device], |begin, producer| {
                let is_moved = devices[producer.operation] != device;
                later(begin, producer.available(ends[producer.operation], is_moved))
            });
            let end = sum(begin, self.times[operation]);
            (free[device], ends[operation]) = (end, end);
            last = later(last, end);
        }
        last[0] + last[1]
    }
}
