//! Placements within the memory limit. A *cut* is an operation that all others precede or follow. A
//! *segment* consists of the operations after one cut, up to and including the next one.

use super::DevicePlacement;
use super::branch::MemoryLimit;
use super::problem::PlacementGraph;
use super::segment::Segment;

/// Joins the placements of segments. Devices are interchangeable within each segment, except device
/// 0, which is the device of the cut before the segment. The others are mapped so that the device
/// with the most memory in the segment becomes the one with the least memory in the segments
/// before. Returns by operation the index of its device, and an order of all operations.
/// `operations` and `devices` are the numbers of operations and devices of the whole problem.
/// `memory` is `None` if memory is unlimited.
pub(super) fn join_segments(
    segments: &[Segment],
    operations: usize,
    devices: usize,
    memory: Option<&MemoryLimit>,
) -> (Vec<usize>, Vec<usize>) {
    let mut placed = vec![0; operations];
    let mut order = Vec::with_capacity(operations);
    let mut held = vec![0_u64; devices];
    let mut entry = 0;
    for segment in segments {
        let bytes = |local: usize| match (local.checked_sub(1), memory) {
            (Some(at), Some(memory)) => memory.bytes[segment.operations[at]],
            _ => 0,
        };
        let mut wanted = vec![0_u64; devices];
        for (local, &device) in segment.solved.devices.iter().enumerate() {
            wanted[device] = wanted[device].saturating_add(bytes(local));
        }
        let mut names = vec![entry; devices];
        let mut others: Vec<usize> = (1..devices).collect();
        others.sort_by_key(|&device| std::cmp::Reverse(wanted[device]));
        let mut free: Vec<usize> = (0..devices).filter(|&device| device != entry).collect();
        free.sort_by_key(|&device| held[device]);
        for (device, name) in others.into_iter().zip(free) {
            names[device] = name;
        }
        for &local in &segment.solved.order {
            if let Some(at) = local.checked_sub(1) {
                let operation = segment.operations[at];
                placed[operation] = names[segment.solved.devices[local]];
                held[placed[operation]] = held[placed[operation]].saturating_add(bytes(local));
                order.push(operation);
            }
        }
        if segment.ends_in_cut {
            if let Some(&last) = segment.operations.last() {
                entry = placed[last];
            }
        }
    }
    (placed, order)
}

/// Changes the placement `from` until no device is above the memory limit. Each step moves an
/// operation off the device with the most memory: the one with the smallest increase of the
/// makespan per byte. Then operations are moved within the limit while that shortens the makespan.
/// Returns a placement with the order of `from` and the lower bound 0, or `None` if no such moves
/// keep the limit. O(operations^2 x devices) evaluations at most.
pub(super) fn repaired(
    structure: &PlacementGraph,
    devices: usize,
    memory: &MemoryLimit,
    from: &DevicePlacement,
) -> Option<DevicePlacement> {
    let mut placed = from.devices.clone();
    let mut held = vec![0_u64; devices];
    for (&device, &bytes) in placed.iter().zip(&memory.bytes) {
        held[device] = held[device].saturating_add(bytes);
    }
    for _ in 0..structure.len() {
        let (full, maximum) = memory.fullest(&placed, devices);
        if maximum <= memory.limit {
            break;
        }
        let now_us = structure.makespan_us(&placed, &from.order);
        let mut best: Option<(f64, usize, usize)> = None;
        for operation in 0..structure.len() {
            if placed[operation] != full || memory.bytes[operation] == 0 {
                continue;
            }
            for device in (0..devices).filter(|&device| device != full) {
                if held[device].saturating_add(memory.bytes[operation]) > memory.limit {
                    continue;
                }
                placed[operation] = device;
                let longer_us = structure.makespan_us(&placed, &from.order) - now_us;
                placed[operation] = full;
                let cost = longer_us.max(0.0) / memory.bytes[operation].min(maximum - memory.limit) as f64;
                if best.is_none_or(|(minimum, ..)| cost < minimum) {
                    best = Some((cost, operation, device));
                }
            }
        }
        let (_, operation, device) = best?;
        held[full] -= memory.bytes[operation];
        held[device] += memory.bytes[operation];
        placed[operation] = device;
    }
    if memory.fullest(&placed, devices).1 > memory.limit {
        return None;
    }
    let mut now_us = structure.makespan_us(&placed, &from.order);
    let mut is_better = true;
    while is_better {
        is_better = false;
        for operation in 0..structure.len() {
            let home = placed[operation];
            for device in (0..devices).filter(|&device| device != home) {
                if held[device].saturating_add(memory.bytes[operation]) > memory.limit {
                    continue;
                }
                placed[operation] = device;
                let moved_us = structure.makespan_us(&placed, &from.order);
                if moved_us < now_us * (1.0 - 1e-9) {
                    held[home] -= memory.bytes[operation];
                    held[device] += memory.bytes[operation];
                    (now_us, is_better) = (moved_us, true);
                    break;
                }
                placed[operation] = home;
            }
        }
    }
    Some(DevicePlacement {
        devices: placed,
        order: from.order.clone(),
        makespan_us: now_us,
        lower_bound_us: 0.0,
    })
}
