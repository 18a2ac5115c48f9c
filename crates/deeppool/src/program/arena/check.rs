//! Check of the offsets of a program before it runs.

use super::ARENA_ALIGNMENT;
use super::lifetimes::lifetimes_of;
use crate::Error;
use crate::program::{BufferId, RankProgram, Step};

/// Checks that in the programs of the iterations of a rank, which have the same buffers, every
/// buffer has a place in the arena, and that buffers share memory only if one is dead before the
/// other is born. O(steps + dependencies + operands + pairs of buffers that share memory).
///
/// # Errors
/// [`Error::Program`] with the first buffer that is elsewhere, or with two that are not apart.
pub(crate) fn check_offsets(programs: &[&RankProgram]) -> Result<(), Error> {
    let Some(first) = programs.first() else { return Ok(()) };
    let used = |id: &BufferId| id.0 < first.buffers.len();
    let is_known = |step: &Step| step.reads.iter().chain(&step.writes).chain(&step.packed).all(used);
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
            (Some(offset), Some(end)) if end <= first.arena_elements && offset % ARENA_ALIGNMENT == 0 => {
                places.push((offset, end, id));
            }
            _ => return Err(Error::Program(format!("buffer {id} is not in the arena"))),
        }
    }
    places.sort_unstable();
    let lifetimes = lifetimes_of(programs);
    if let Some(id) = lifetimes.iter().position(|lifetime| !lifetime.is_ordered()) {
        return Err(Error::Program(format!("steps that use buffer {id} do not wait for each other")));
    }
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
