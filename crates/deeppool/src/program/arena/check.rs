//! Check of the offsets of a program before it runs.

use super::lifetimes::{IterationSteps, lifetimes, memory_lifetimes};
use super::{BUCKET_ALIGNMENT, offsets_within};
use crate::Error;
use crate::program::{BufferId, RankProgram, Step};

/// Checks that in the programs of the iterations of a rank, which have the same buffers, every
/// buffer has a place in the arena, that the buffers of a bucket lie one after another, and that
/// buffers share memory only if one is dead before the other is born. O(steps + dependencies +
/// operands + pairs of buffers that share memory).
///
/// # Errors
/// [`Error::Program`] with the first buffer that is elsewhere, or with two that are not apart.
pub(crate) fn check_offsets(programs: &[&RankProgram]) -> Result<(), Error> {
    let Some(first) = programs.first() else { return Ok(()) };
    let used = |id: &BufferId| id.0 < first.buffers.len();
    let is_known = |step: &Step| step.reads.iter().chain(&step.writes).all(used);
    let is_earlier = |(at, step): (usize, &Step)| step.after.iter().all(|earlier| earlier.0 < at);
    for program in programs {
        if !program.steps.iter().all(is_known) || !program.steps.iter().enumerate().all(is_earlier) {
            return Err(Error::Program("a step has an unknown buffer, or waits for a later step".into()));
        }
    }
    if programs.iter().any(|program| !program.later_iterations.is_empty()) {
        return Err(Error::Program("it was lowered for simulation".into()));
    }
    if first.state_buffers > first.buffers.len() {
        return Err(Error::Program("it has fewer buffers than state buffers".into()));
    }
    let mut places: Vec<(usize, usize, usize)> = Vec::new();
    for (id, buffer) in first.buffers.iter().enumerate().skip(first.state_buffers) {
        let end = buffer.offset.and_then(|offset| offset.checked_add(buffer.scalars()));
        match (buffer.offset, end) {
            (Some(offset), Some(end)) if end <= first.arena_elements && offset % BUCKET_ALIGNMENT == 0 => {
                places.push((offset, end, id));
            }
            _ => return Err(Error::Program(format!("buffer {id} is not in the arena"))),
        }
    }
    let steps = programs.iter().flat_map(|program| &program.steps);
    for bucket in steps.filter_map(|step| step.bucket(&first.buffers)) {
        let start = first.buffers[bucket[0].0].offset.unwrap_or_default();
        let (offsets, _) = offsets_within(&first.buffers, bucket);
        let is_elsewhere = |(id, offset): &(&BufferId, usize)| {
            first.buffers[id.0].offset != Some(start.saturating_add(*offset))
        };
        if let Some((id, _)) = bucket.iter().zip(offsets).find(is_elsewhere) {
            return Err(Error::Program(format!("buffer {} is not next to the others of its bucket", id.0)));
        }
    }
    places.sort_unstable();
    let iterations: Vec<_> = programs
        .iter()
        .flat_map(|program| IterationSteps::of(&program.steps, &program.later_iterations))
        .collect();
    let own = lifetimes(&first.buffers, first.state_buffers, &iterations);
    if let Some(id) = own.iter().position(|lifetime| !lifetime.is_ordered()) {
        return Err(Error::Program(format!("steps that use buffer {id} do not wait for each other")));
    }
    let lifetimes = memory_lifetimes(&first.buffers, first.state_buffers, &iterations);
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (offset, end, id) in places {
        open.retain(|&(open_end, _)| open_end > offset);
        let shares = |&&(_, other): &&(usize, usize)| lifetimes[id].overlaps(&lifetimes[other]);
        if let Some((_, other)) = open.iter().find(shares) {
            return Err(Error::Program(format!("buffers {other} and {id} share memory at the same time")));
        }
        open.extend((end > offset).then_some((end, id)));
    }
    Ok(())
}
