//! The search for placements with one device, then two, and so on up to all. Each search starts
//! from the result with one device less. A *branch* is a partial placement.

use super::DevicePlacement;
use super::branch::{BranchAndBound, MemoryLimit, RELATIVE_TOLERANCE};
use super::problem::{PlacementGraph, PlacementProblem};
use super::repair::{join_segments, repaired};
use super::segment::Segment;
use crate::{Error, Result, Stop};

/// Initial work limit of a segment, in branches.
const FIRST_BRANCHES: u64 = 1 << 12;

/// Options of the search for placements.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlacementSearch {
    /// Maximum number of branches for each number of devices: partial placements that are expanded.
    /// A core expands some million per second.
    pub branches: u64,
    /// Relative tolerance: the search with a number of devices ends once no placement with it can
    /// be shorter by more than this fraction.
    pub tolerance: f64,
    /// Stops the search early, with [`Error::Stopped`].
    pub stop: Stop,
}

impl Default for PlacementSearch {
    /// 20 million branches, without tolerance.
    fn default() -> Self {
        Self { branches: 20_000_000, tolerance: 0.0, stop: Stop::default() }
    }
}

impl PlacementSearch {
    /// Sets the maximum number of branches.
    #[must_use]
    pub fn with_branches(self, branches: u64) -> Self {
        Self { branches, ..self }
    }

    /// Sets the relative tolerance.
    #[must_use]
    pub fn with_tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }

    /// Sets the switch that stops the search.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }
}

/// Searches for the placement with the minimum makespan: see [the method](super). The same problem
/// gives the same result, which is never longer with more devices or branches. Exponential at worst
/// in the operations of a segment, up to [`PlacementSearch::branches`]; [`DevicePlacement::gap`]
/// bounds the distance to the optimum.
///
/// # Errors
/// Those of [`PlacementProblem::validate`], [`Error::MemoryExceeded`] if no placement within the
/// memory limit is found, and [`Error::Stopped`] if the search was stopped.
pub fn place(problem: &PlacementProblem, search: &PlacementSearch) -> Result<DevicePlacement> {
    let structure = problem.structure()?;
    let mut state = DeviceSearch::new(problem, &structure, search);
    for devices in 1..=state.max_devices() {
        state.search_next(devices)?;
    }
    let DeviceSearch { best, closest, memory, .. } = state;
    best.ok_or_else(|| Error::MemoryExceeded {
        limit_bytes: memory.map_or(u64::MAX, |memory| memory.limit),
        needed_bytes: closest.0,
        nodes: closest.1,
    })
}

/// Returns the placements that [`place`] finds with one device, two and so on, up to the problem's
/// number of devices or of operations. An element is `None` if no placement within the memory limit
/// is found. Fails as [`place`] does, except for the memory limit.
pub(crate) fn place_on_each(
    problem: &PlacementProblem,
    search: &PlacementSearch,
) -> Result<Vec<Option<DevicePlacement>>> {
    let structure = problem.structure()?;
    let mut state = DeviceSearch::new(problem, &structure, search);
    let mut found = Vec::new();
    for devices in 1..=state.max_devices() {
        state.search_next(devices)?;
        found.push(state.best.clone());
    }
    Ok(found)
}

/// The search from one device to all.
struct DeviceSearch<'p> {
    problem: &'p PlacementProblem,
    structure: &'p PlacementGraph,
    search: &'p PlacementSearch,
    /// Memory limit and the memory of operations; `None` if memory is unlimited.
    memory: Option<MemoryLimit>,
    /// The shortest placement within the memory limit so far.
    best: Option<DevicePlacement>,
    /// If no placement is within the memory limit: the minimum memory of the fullest device, and
    /// its operations.
    closest: (u64, Vec<(String, u64)>),
}

impl<'p> DeviceSearch<'p> {
    fn new(
        problem: &'p PlacementProblem,
        structure: &'p PlacementGraph,
        search: &'p PlacementSearch,
    ) -> Self {
        let bytes = || problem.operations.iter().map(|operation| operation.memory_bytes).collect();
        let memory = problem.memory_limit_bytes.map(|limit| MemoryLimit { bytes: bytes(), limit });
        Self { problem, structure, search, memory, best: None, closest: (u64::MAX, Vec::new()) }
    }

    /// Returns the number of devices, at most the number of operations.
    fn max_devices(&self) -> usize {
        self.problem.devices.min(self.structure.len())
    }

    /// Searches with one device more than before.
    fn search_next(&mut self, devices: usize) -> Result<()> {
        let found = place_on(self.structure, devices, self.memory.as_ref(), self.best.as_ref(), self.search)?;
        if let Some(memory) = &self.memory {
            let (fullest, bytes) = memory.fullest(&found.devices, devices);
            if bytes > memory.limit {
                if bytes < self.closest.0 {
                    self.closest = (bytes, held_on(self.problem, &found.devices, fullest));
                }
                return Ok(());
            }
        }
        let lower_bound_us = found.lower_bound_us;
        let before = self.best.take().filter(|before| before.makespan_us <= found.makespan_us);
        let shorter = before.unwrap_or(found);
        self.best =
            Some(DevicePlacement { lower_bound_us: lower_bound_us.min(shorter.makespan_us), ..shorter });
        Ok(())
    }
}

/// Returns the operations of a device with their memory, in descending order.
fn held_on(problem: &PlacementProblem, placed: &[usize], device: usize) -> Vec<(String, u64)> {
    let operations = problem.operations.iter().zip(placed).filter(|&(_, &on)| on == device);
    let mut held: Vec<(String, u64)> =
        operations.map(|(operation, _)| (operation.name.clone(), operation.memory_bytes)).collect();
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    held
}

/// Searches with `devices` devices, starting from the result with one less. The result can exceed
/// the memory limit if none within it is known.
fn place_on(
    structure: &PlacementGraph,
    devices: usize,
    memory: Option<&MemoryLimit>,
    fewer: Option<&DevicePlacement>,
    search: &PlacementSearch,
) -> Result<DevicePlacement> {
    let mut segments = Segment::all(structure, devices);
    let mut left = search.branches;
    // The segment with the largest excess over its bound first, until the tolerance or the work
    // limit is reached.
    loop {
        let makespan_us: f64 = segments.iter().map(|segment| segment.solved.makespan_us).sum();
        let excess_us: f64 = segments.iter().map(Segment::excess_us).sum();
        let widest = segments.iter_mut().max_by(|a, b| a.excess_us().total_cmp(&b.excess_us()));
        let Some(widest) = widest.filter(|widest| widest.excess_us() > RELATIVE_TOLERANCE * makespan_us)
        else {
            break;
        };
        if excess_us <= search.tolerance * (makespan_us - excess_us) || left == 0 {
            break;
        }
        left -= widest.refine(devices, FIRST_BRANCHES, left, &search.stop)?;
    }
    let bound_us: f64 = segments.iter().map(|segment| segment.solved.lower_bound_us).sum();
    let (placed, order) = join_segments(&segments, structure.len(), devices, memory);
    let makespan_us = structure.makespan_us(&placed, &order);
    let joined =
        DevicePlacement { devices: placed, order, makespan_us, lower_bound_us: bound_us.min(makespan_us) };
    let Some(memory) = memory else { return Ok(joined) };
    if memory.fullest(&joined.devices, devices).1 <= memory.limit {
        return Ok(joined);
    }
    // The problem as a whole, starting from the best placement within the limit.
    let repaired = repaired(structure, devices, memory, &joined);
    let keeps = |one: &DevicePlacement| memory.fullest(&one.devices, devices).1 <= memory.limit;
    let known = fewer.into_iter().chain(&repaired).filter(|one| keeps(one));
    let known = known.min_by(|a, b| a.makespan_us.total_cmp(&b.makespan_us)).cloned();
    let none = DevicePlacement { makespan_us: f64::INFINITY, ..joined.clone() };
    let known = known.unwrap_or(none);
    let whole = BranchAndBound::new(structure, devices, Some(memory), known, search.branches, &search.stop);
    let solved = whole.solve()?;
    if solved.makespan_us.is_finite() {
        let lower_bound_us = solved.lower_bound_us.max(joined.lower_bound_us).min(solved.makespan_us);
        Ok(DevicePlacement { lower_bound_us, ..solved })
    } else {
        Ok(joined)
    }
}
