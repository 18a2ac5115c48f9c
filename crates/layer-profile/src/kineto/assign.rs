//! Assignment of the times of a trace to the passes of layers.

use std::collections::HashMap;

use super::events::{Category, Events};
use super::forward::Layers;
use super::host::Host;
use crate::ProfileError;

/// Part of an iteration that an operator or a kernel belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Forward pass of a layer.
    Forward(usize),
    /// Backward pass of a layer.
    Backward(usize),
    /// Step of the optimiser.
    Update,
}

/// Parts of all outermost operators of a trace.
#[derive(Debug)]
pub(super) struct Parts {
    /// Part of each operator, by index in [`Host::operators`].
    pub(super) of: Vec<Option<Part>>,
    /// Starts of the forward passes that have a backward pass, ascending, in nanoseconds.
    pub(super) iterations: Vec<i64>,
    /// Number of steps of the optimiser.
    pub(super) updates: usize,
}

impl Parts {
    /// Assigns the operators of a trace. Operators of forward passes without a backward pass have
    /// no part.
    ///
    /// # Errors
    /// [`ProfileError::TraceMismatch`] if the forward passes are not those of the network.
    pub(super) fn of(trace: &Events, host: &Host, layers: &Layers<'_>) -> Result<Self, ProfileError> {
        let mut of = vec![None; host.operators.len()];
        let mut iterations = Vec::new();
        let passes = forward_passes(trace, host);
        let mut layer_of: HashMap<usize, usize> = HashMap::new();
        let nodes = nodes(trace, host, &passes);
        let is_trained = is_trained(trace, host, &passes, &nodes);
        for pass in passes.iter().zip(&is_trained).filter(|(_, trained)| **trained).map(|(pass, _)| pass) {
            let assigned = layers.of_operators(trace, host, &pass.operators)?;
            for (&operator, layer) in pass.operators.iter().zip(assigned) {
                of[operator] = Some(Part::Forward(layer));
                layer_of.insert(operator, layer);
            }
            iterations.push(pass.start);
        }
        let mut previous: Option<(u32, usize)> = None;
        for (i, operator) in host.operators.iter().enumerate() {
            let event = &trace.all[operator.event];
            if operator.is_backward {
                let node = event.sequence.map(|node| nodes.get(&node).and_then(|at| layer_of.get(at)));
                // A node without a number accumulates the gradient that the previous one computed.
                let layer = match (node, previous) {
                    (Some(layer), _) => layer.copied(),
                    (None, Some((thread, layer))) if thread == event.thread => Some(layer),
                    (None, _) => None,
                };
                of[i] = layer.map(Part::Backward);
                previous = layer.map(|layer| (event.thread, layer));
            } else if operator.is_update {
                of[i] = Some(Part::Update);
            }
        }
        Ok(Self { of, iterations, updates: updates(trace, host) })
    }
}

/// A forward pass with its loss.
struct Pass {
    /// Start in nanoseconds.
    start: i64,
    /// Outermost operators in order of start, as indices in [`Host::operators`].
    operators: Vec<usize>,
}

/// Returns the calls of the network's module. The operators that follow a call on its thread, until
/// the backward pass, the optimiser or the next call, compute the loss.
fn forward_passes(trace: &Events, host: &Host) -> Vec<Pass> {
    let roots = host.roots(trace);
    let start = |operator: usize| trace.all[host.operators[operator].event].start;
    let is_other = |i: &usize| host.operators[*i].is_backward || host.operators[*i].is_update;
    let mut ends: Vec<i64> = (0..host.operators.len()).filter(is_other).map(start).collect();
    ends.extend(roots.iter().map(|&root| trace.all[host.calls[root].event].start));
    ends.sort_unstable();
    let passes = roots.iter().map(|&root| {
        let call = &trace.all[host.calls[root].event];
        let end = ends[ends.partition_point(|&end| end < call.end())..].first().copied();
        let end = end.unwrap_or(i64::MAX);
        let key = |i: usize| (trace.all[host.operators[i].event].thread, start(i));
        let all = host.operators.len();
        let first = partition_point(all, |i| key(i) < (call.thread, call.start));
        let last = partition_point(all, |i| key(i) < (call.thread, end));
        let operators = (first..last).filter(|i| !is_other(i)).collect();
        Pass { start: call.start, operators }
    });
    passes.collect()
}

/// Returns the first index below `count` for which a condition does not hold, which holds for all
/// indices before it.
fn partition_point(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the outermost operator that created each node of automatic differentiation, by the
/// node's number. An operator has the number of the next node that is created, so that the last one
/// with a number creates the node.
fn nodes(trace: &Events, host: &Host, passes: &[Pass]) -> HashMap<u64, usize> {
    let mut is_forward = vec![false; host.operators.len()];
    for &operator in passes.iter().flat_map(|pass| &pass.operators) {
        is_forward[operator] = true;
    }
    let mut last: HashMap<u64, (i64, usize)> = HashMap::new();
    for (i, event) in trace.all.iter().enumerate() {
        let (Some(node), Some(operator)) = (event.sequence, host.outermost(i)) else { continue };
        if is_forward[operator] {
            let latest = last.entry(node).or_insert((i64::MIN, operator));
            if event.start >= latest.0 {
                *latest = (event.start, operator);
            }
        }
    }
    last.into_iter().map(|(node, (_, operator))| (node, operator)).collect()
}

/// Returns for each forward pass whether it has a backward pass.
fn is_trained(trace: &Events, host: &Host, passes: &[Pass], nodes: &HashMap<u64, usize>) -> Vec<bool> {
    let mut has_backward = vec![false; host.operators.len()];
    for operator in host.operators.iter().filter(|operator| operator.is_backward) {
        let node = trace.all[operator.event].sequence;
        if let Some(&forward) = node.and_then(|node| nodes.get(&node)) {
            has_backward[forward] = true;
        }
    }
    passes.iter().map(|pass| pass.operators.iter().any(|&operator| has_backward[operator])).collect()
}

/// Returns the number of steps of the optimiser. Of several optimisers, it is that of the one with
/// most steps.
fn updates(trace: &Events, host: &Host) -> usize {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for &step in &host.steps {
        *counts.entry(trace.all[step].name).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}

/// Assigns the kernels of a trace: each to the part of the operator that launched it. Returns the
/// kernels as indices in [`Events::all`]. Kernels of NCCL belong to no layer.
pub(super) fn kernels(trace: &Events, host: &Host, parts: &Parts) -> Vec<(usize, Option<Part>)> {
    let mut launches: HashMap<u64, usize> = HashMap::new();
    let mut operators: HashMap<u64, usize> = HashMap::new();
    for (i, event) in trace.all.iter().enumerate() {
        match (event.category, event.correlation, event.external) {
            (Category::Launch, Some(correlation), _) => {
                launches.insert(correlation, i);
            }
            (Category::Operator, _, Some(external)) => {
                operators.extend(host.outermost(i).map(|operator| (external, operator)));
            }
            _ => {}
        }
    }
    let part = |i: usize| {
        let event = &trace.all[i];
        if trace.name(event).starts_with("nccl") {
            return None;
        }
        let launch = event.correlation.and_then(|correlation| launches.get(&correlation));
        let launch = launch.map(|&launch| &trace.all[launch]);
        let operator = match launch.and_then(|launch| host.operator_at(trace, launch.thread, launch.start)) {
            Some(operator) => Some(operator),
            None => event.external.and_then(|external| operators.get(&external).copied()),
        };
        match operator {
            Some(operator) => parts.of[operator],
            None => {
                launch.filter(|launch| host.is_update_at(launch.thread, launch.start)).map(|_| Part::Update)
            }
        }
    };
    let is_kernel = |&i: &usize| trace.all[i].category == Category::Kernel;
    (0..trace.all.len()).filter(is_kernel).map(|i| (i, part(i))).collect()
}
