//! Random placement problems, and their optimum by enumeration.

use super::problems::{Draws, Graph, edges};
use crate::NodeId;
use crate::placement::{Operation, PlacementProblem};

/// Returns a random problem with `operations` operations and `devices` devices, at least one of
/// each. It is the same for the same arguments. Every second one has a memory limit, which can be
/// too low for any placement.
#[must_use]
pub fn random_placement_problem(seed: u64, operations: usize, devices: usize) -> PlacementProblem {
    let mut draws = Draws::new(seed ^ 0x5851_f42d_4c95_7f2d);
    let operations = operations.max(1);
    let mut problem = PlacementProblem::new(devices.max(1));
    let mut bytes = Vec::new();
    for operation in 0..operations {
        // Some, such as views, take no time.
        let forward_us = if draws.below(8) == 0 { 0.0 } else { draws.between(1.0, 100.0).round() };
        let backward_us = forward_us * draws.between(1.0, 3.0);
        bytes.push(draws.below(100) as u64);
        problem.add(
            Operation::new(format!("o{operation}"), forward_us, backward_us).with_memory(bytes[operation]),
        );
    }
    let graph = [Graph::Branches, Graph::Dag, Graph::Dag][draws.below(3)];
    let moved_us = draws.between(0.1, 50.0);
    for (from, to) in edges(graph, operations, &mut draws) {
        let forward_us = moved_us * draws.between(0.5, 2.0);
        problem.connect(NodeId(from), NodeId(to), forward_us, forward_us * draws.between(0.8, 1.2));
    }
    if draws.below(2) == 0 {
        let all: u64 = bytes.iter().sum();
        let even = all / problem.devices as u64;
        problem.memory_limit_bytes = Some(even + draws.below(1 + even as usize) as u64);
    }
    problem
}

/// Returns the minimum makespan over all placements and orders, microseconds, or `None` if none is
/// within the memory limit. Exponential: ten operations on three devices take seconds if few of
/// them can run at the same time.
#[must_use]
pub fn placement_by_enumeration(problem: &PlacementProblem) -> Option<f64> {
    let mut orders = Vec::new();
    add_orders(problem, &mut Vec::new(), &mut orders);
    let mut minimum = None;
    place_rest(problem, &mut Vec::new(), 0, &orders, &mut minimum);
    minimum
}

fn add_orders(problem: &PlacementProblem, begun: &mut Vec<usize>, orders: &mut Vec<Vec<usize>>) {
    if begun.len() == problem.operations.len() {
        orders.push(begun.clone());
    }
    for next in 0..problem.operations.len() {
        let mut before = problem.edges.iter().filter(|edge| edge.to.0 == next).map(|edge| edge.from.0);
        if !begun.contains(&next) && before.all(|producer| begun.contains(&producer)) {
            begun.push(next);
            add_orders(problem, begun, orders);
            begun.pop();
        }
    }
}

/// Devices are interchangeable: the first operation is on the first one, each later one on a used
/// one or the next.
fn place_rest(
    problem: &PlacementProblem,
    placed: &mut Vec<usize>,
    used: usize,
    orders: &[Vec<usize>],
    minimum: &mut Option<f64>,
) {
    if placed.len() < problem.operations.len() {
        for device in 0..problem.devices.min(used + 1) {
            placed.push(device);
            place_rest(problem, placed, used.max(device + 1), orders, minimum);
            placed.pop();
        }
        return;
    }
    let held = |device: usize| -> u64 {
        let of_device = problem.operations.iter().zip(&*placed).filter(|&(_, &on)| on == device);
        of_device.map(|(operation, _)| operation.memory_bytes).sum()
    };
    if problem.memory_limit_bytes.is_some_and(|limit| (0..problem.devices).any(|device| held(device) > limit))
    {
        return;
    }
    for order in orders {
        let makespan_us = forward_us(problem, placed, order) + backward_us(problem, placed, order);
        if minimum.is_none_or(|minimum| makespan_us < minimum) {
            *minimum = Some(makespan_us);
        }
    }
}

/// Returns the end of the forward pass.
fn forward_us(problem: &PlacementProblem, placed: &[usize], order: &[usize]) -> f64 {
    let mut ends = vec![0.0_f64; placed.len()];
    for (place, &operation) in order.iter().enumerate() {
        let mut begin = 0.0_f64;
        for &earlier in &order[..place] {
            if placed[earlier] == placed[operation] {
                begin = begin.max(ends[earlier]);
            }
        }
        for edge in problem.edges.iter().filter(|edge| edge.to.0 == operation) {
            let moved = if placed[edge.from.0] == placed[operation] { 0.0 } else { edge.forward_us };
            begin = begin.max(ends[edge.from.0] + moved);
        }
        ends[operation] = begin + problem.operations[operation].forward_us;
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// Returns the duration of the backward pass, which starts with the last operation.
fn backward_us(problem: &PlacementProblem, placed: &[usize], order: &[usize]) -> f64 {
    let mut ends = vec![0.0_f64; placed.len()];
    for (place, &operation) in order.iter().enumerate().rev() {
        let mut begin = 0.0_f64;
        for &later in &order[place + 1..] {
            if placed[later] == placed[operation] {
                begin = begin.max(ends[later]);
            }
        }
        for edge in problem.edges.iter().filter(|edge| edge.from.0 == operation) {
            let moved = if placed[edge.to.0] == placed[operation] { 0.0 } else { edge.backward_us };
            begin = begin.max(ends[edge.to.0] + moved);
        }
        ends[operation] = begin + problem.operations[operation].backward_us;
    }
    ends.into_iter().fold(0.0, f64::max)
}
