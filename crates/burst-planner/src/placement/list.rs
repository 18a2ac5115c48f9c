//! List scheduling, for the initial placement.

use super::DevicePlacement;
use super::problem::{PlacementGraph, PlacementProblem, later, sum};
use crate::Result;

/// Places operations one after another: of those that are ready the one with the longest path to
/// the end, on the device where it ends first, counting both passes (list scheduling: R. Graham,
/// Bell System Technical Journal 45, 1966). It ignores the memory limit. O(operations^2 x devices +
/// edges x devices).
///
/// # Errors
/// Those of [`PlacementProblem::validate`].
pub fn list_schedule(problem: &PlacementProblem) -> Result<DevicePlacement> {
    let structure = problem.structure()?;
    let (devices, order) = schedule(&structure, problem.devices);
    let makespan_us = structure.makespan_us(&devices, &order);
    let lower_bound_us = structure.simple_bound_us(problem.devices).min(makespan_us);
    Ok(DevicePlacement { devices, order, makespan_us, lower_bound_us })
}

/// Returns by operation the index of its device, and the operations in the order in which they are
/// placed, producers first.
pub(super) fn schedule(structure: &PlacementGraph, devices: usize) -> (Vec<usize>, Vec<usize>) {
    let count = structure.len();
    let tails = structure.tails();
    let way = |operation: usize| sum(structure.times[operation], tails[operation]).iter().sum::<f64>();
    let mut waits: Vec<usize> = structure.producers.iter().map(Vec::len).collect();
    let mut ready: Vec<usize> = (0..count).filter(|&operation| waits[operation] == 0).collect();
    let mut free = vec![[0.0_f64; 2]; devices];
    let mut ends = vec![[0.0_f64; 2]; count];
    let mut placed = vec![0; count];
    let mut order = Vec::with_capacity(count);
    let longest_first =
        |ready: &[usize]| (0..ready.len()).max_by(|&a, &b| way(ready[a]).total_cmp(&way(ready[b])));
    while let Some(next) = longest_first(&ready) {
        let operation = ready.swap_remove(next);
        let end_on = |device: usize| {
            let begin = structure.producers[operation].iter().fold(free[device], |begin, producer| {
                let is_moved = placed[producer.operation] != device;
                later(begin, producer.available(ends[producer.operation], is_moved))
            });
            sum(begin, structure.times[operation])
        };
        let total = |device: usize| end_on(device).iter().sum::<f64>();
        let device = (0..devices).min_by(|&a, &b| total(a).total_cmp(&total(b))).unwrap_or(0);
        let end = end_on(device);
        (placed[operation], free[device], ends[operation]) = (device, end, end);
        order.push(operation);
        for consumer in &structure.consumers[operation] {
            waits[consumer.operation] -= 1;
            if waits[consumer.operation] == 0 {
                ready.push(consumer.operation);
            }
        }
    }
    (placed, order)
}
