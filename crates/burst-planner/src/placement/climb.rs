//! The whole search.

use super::Placement;
use super::branch::{Branch, Memory, Solved};
use super::problem::{PlacementProblem, Structure};
use super::repair::{names_with_room, repaired};
use super::segment::Segment;
use crate::{Error, Result, Stop};

/// With so many branches a segment is searched at first.
const FIRST_BRANCHES: u64 = 1 << 12;

/// How long to search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlacementSearch {
    /// How many branches are looked at, at most, with each number of devices: some million a second.
    pub branches: u64,
    /// The search ends where no answer is shorter by more than this part.
    pub tolerance: f64,
    /// Ends the search early, without an answer.
    pub stop: Stop,
}

impl Default for PlacementSearch {
    /// 20 million branches, and exact.
    fn default() -> Self {
        Self { branches: 20_000_000, tolerance: 0.0, stop: Stop::default() }
    }
}

impl PlacementSearch {
    /// Sets how many branches are looked at.
    #[must_use]
    pub fn with_branches(self, branches: u64) -> Self {
        Self { branches, ..self }
    }

    /// Sets by which part an answer may be longer than the shortest.
    #[must_use]
    pub fn with_tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }

    /// Sets what ends the search early.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }
}

/// Searches for the placement with the shortest makespan: see [how](super). The same problem has the same answer, and
/// with more devices, or more branches, it is never longer. Exponential at worst in the operations of a segment, as far as
/// [`PlacementSearch::branches`] allow; [`Placement::gap`] says what is left open.
///
/// # Errors
/// What [`PlacementProblem::validate`] reports, [`Error::MemoryExceeded`] where nothing that was met keeps the limit on memory, and
/// [`Error::Stopped`].
pub fn place(problem: &PlacementProblem, search: &PlacementSearch) -> Result<Placement> {
    let structure = problem.structure()?;
    let mut best: Option<Solved> = None;
    let mut closest = (u64::MAX, Vec::new());
    // More devices than operations are of no use.
    for devices in 1..=problem.devices.min(structure.len()) {
        let found = place_on(problem, &structure, devices, best.as_ref(), search)?;
        let bound_us = found.bound_us;
        if let Some(memory) = memory_of(problem) {
            let (fullest, bytes) = fullest(&found.devices, &memory.bytes, devices);
            if bytes > memory.limit {
                closest = if bytes < closest.0 {
                    (bytes, held_on(problem, &found.devices, fullest))
                } else {
                    closest
                };
                continue;
            }
        }
        let shorter = best.take().filter(|before| before.makespan_us <= found.makespan_us).unwrap_or(found);
        best = Some(Solved { bound_us, ..shorter });
    }
    match (best, problem.memory_limit_bytes) {
        (Some(best), _) => Ok(Placement {
            lower_bound_us: best.bound_us.min(best.makespan_us),
            devices: best.devices,
            order: best.order,
            makespan_us: best.makespan_us,
        }),
        (None, limit) => Err(Error::MemoryExceeded {
            limit_bytes: limit.unwrap_or(u64::MAX),
            needed_bytes: closest.0,
            nodes: closest.1,
        }),
    }
}

fn memory_of(problem: &PlacementProblem) -> Option<Memory> {
    let bytes = || problem.operations.iter().map(|operation| operation.memory_bytes).collect();
    problem.memory_limit_bytes.map(|limit| Memory { bytes: bytes(), limit })
}

/// The device that holds most, and how much.
pub(super) fn fullest(placed: &[usize], bytes: &[u64], devices: usize) -> (usize, u64) {
    let mut held = vec![0_u64; devices];
    for (&device, &bytes) in placed.iter().zip(bytes) {
        held[device] = held[device].saturating_add(bytes);
    }
    held.into_iter().enumerate().max_by_key(|&(_, bytes)| bytes).unwrap_or((0, 0))
}

/// What a device holds, the largest first.
fn held_on(problem: &PlacementProblem, placed: &[usize], device: usize) -> Vec<(String, u64)> {
    let operations = problem.operations.iter().zip(placed).filter(|&(_, &on)| on == device);
    let mut held: Vec<(String, u64)> =
        operations.map(|(operation, _)| (operation.name.clone(), operation.memory_bytes)).collect();
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    held
}

/// On so many devices, from what is known with one less. What it finds may exceed the memory where nothing is known to keep it.
fn place_on(
    problem: &PlacementProblem,
    structure: &Structure,
    devices: usize,
    fewer: Option<&Solved>,
    search: &PlacementSearch,
) -> Result<Solved> {
    let mut segments = Segment::all(structure, devices);
    let mut left = search.branches;
    // The segment that may gain most first, until little is to be gained, or all is searched.
    loop {
        let makespan_us: f64 = segments.iter().map(|segment| segment.solved.makespan_us).sum();
        let gap_us: f64 = segments.iter().map(Segment::gap_us).sum();
        let widest = segments.iter_mut().max_by(|a, b| a.gap_us().total_cmp(&b.gap_us()));
        let Some(widest) = widest.filter(|widest| widest.gap_us() > 1e-12 * makespan_us) else { break };
        if gap_us <= search.tolerance * (makespan_us - gap_us) || left == 0 {
            break;
        }
        left -= widest.refine(devices, FIRST_BRANCHES, left, &search.stop)?;
    }
    let bound_us: f64 = segments.iter().map(|segment| segment.solved.bound_us).sum();
    let memory = memory_of(problem);
    let (placed, order) = names_with_room(&segments, structure.len(), devices, memory.as_ref());
    let makespan_us = structure.makespan_us(&placed, &order);
    let joined = Solved { devices: placed, order, makespan_us, bound_us: bound_us.min(makespan_us) };
    let Some(memory) = memory else { return Ok(joined) };
    if fullest(&joined.devices, &memory.bytes, devices).1 <= memory.limit {
        return Ok(joined);
    }
    // As a whole, from the best that keeps the limit.
    let repaired = repaired(structure, devices, &memory, &joined);
    let keeps = |one: &Solved| fullest(&one.devices, &memory.bytes, devices).1 <= memory.limit;
    let known = fewer.into_iter().chain(&repaired).filter(|one| keeps(one));
    let known = known.min_by(|a, b| a.makespan_us.total_cmp(&b.makespan_us)).cloned();
    let none = Solved { makespan_us: f64::INFINITY, ..joined.clone() };
    let known = known.unwrap_or(none);
    let whole = Branch::new(structure, devices, Some(&memory), known, search.branches, &search.stop);
    let solved = whole.solve()?;
    if solved.makespan_us.is_finite() {
        let bound_us = solved.bound_us.max(joined.bound_us).min(solved.makespan_us);
        Ok(Solved { bound_us, ..solved })
    } else {
        Ok(joined)
    }
}
