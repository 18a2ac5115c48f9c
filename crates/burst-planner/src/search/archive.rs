//! An archive of the Pareto-optimal arrangements. An arrangement is *infeasible* if it exceeds the
//! memory limit; otherwise it can be an *entry* of the archive.

use crate::evaluator::{NumberedArrangement, PlanTime};

/// Relative difference below which two times are equal.
pub(super) const RELATIVE_TOLERANCE: f64 = 1e-9;

/// An arrangement with its time.
#[derive(Debug, Clone)]
pub(super) struct Entry<A = NumberedArrangement> {
    /// Its iteration time and GPU time.
    pub(super) time: PlanTime,
    /// Memory of its fullest rank divided by the memory limit; 1 if it is within the limit or there
    /// is none.
    pub(super) memory_excess: f64,
    /// The arrangement.
    pub(super) arrangement: A,
    /// Whether it has not been [taken](Archive::take_new) yet.
    is_new: bool,
}

/// Arrangements none of which dominates another in iteration time and GPU time, in ascending order
/// of iteration time and descending order of GPU time. One dominates another if it is at least as
/// good in both.
#[derive(Debug)]
pub(super) struct Archive<A = NumberedArrangement> {
    entries: Vec<Entry<A>>,
    /// The arrangement that exceeds the memory limit least, while none within the limit is known.
    closest: Option<Entry<A>>,
    /// Relative differences below which times are equal.
    tolerance: PlanTime,
}

impl<A> Default for Archive<A> {
    fn default() -> Self {
        Self::with_tolerance(PlanTime { iteration_us: RELATIVE_TOLERANCE, gpu_time_us: RELATIVE_TOLERANCE })
    }
}

impl<A> Archive<A> {
    /// Creates an archive in which two times are equal if their relative difference is below the
    /// number for this time in `tolerance`. Of arrangements with equal times it keeps the first
    /// one.
    pub(super) fn with_tolerance(tolerance: PlanTime) -> Self {
        Self { entries: Vec::new(), closest: None, tolerance }
    }
}

impl<A: Clone> Archive<A> {
    /// Adds an arrangement within the memory limit unless an entry dominates it, and removes the
    /// entries that it dominates. Returns whether it was added. O(entries).
    pub(super) fn offer<B>(&mut self, time: PlanTime, arrangement: &B) -> bool
    where
        B: ToOwned<Owned = A> + ?Sized,
    {
        if self.dominates(time) {
            return false;
        }
        let place = self.place(time);
        let beaten = self.entries[place..]
            .iter()
            .take_while(|entry| entry.time.gpu_time_us >= time.gpu_time_us)
            .count();
        let entry = Entry { time, memory_excess: 1.0, arrangement: arrangement.to_owned(), is_new: true };
        self.entries.splice(place..place + beaten, [entry]);
        true
    }

    /// Returns whether an entry is at least as good as `time` in both times, within the tolerance.
    pub(super) fn dominates(&self, time: PlanTime) -> bool {
        let dominates = |entry: &Entry<A>| {
            entry.time.iteration_us <= time.iteration_us * (1.0 + self.tolerance.iteration_us)
                && entry.time.gpu_time_us <= time.gpu_time_us * (1.0 + self.tolerance.gpu_time_us)
        };
        let place = self.place(time);
        let neighbours = [place.checked_sub(1), Some(place)];
        neighbours.into_iter().flatten().filter_map(|at| self.entries.get(at)).any(dominates)
    }

    /// Returns the index of the first entry that is not faster.
    fn place(&self, time: PlanTime) -> usize {
        self.entries.partition_point(|entry| entry.time.iteration_us < time.iteration_us)
    }

    /// Records an infeasible arrangement if there are no entries and it exceeds the limit by less
    /// than all such arrangements before; at equal excess, if it is faster. Returns whether it was
    /// recorded.
    pub(super) fn note_infeasible(&mut self, memory_excess: f64, time: PlanTime, arrangement: &A) -> bool {
        let is_closer = match &self.closest {
            Some(entry) => {
                (memory_excess, time.iteration_us) < (entry.memory_excess, entry.time.iteration_us)
            }
            None => true,
        };
        let is_archived = is_closer && self.entries.is_empty();
        if is_archived {
            self.closest =
                Some(Entry { time, memory_excess, arrangement: arrangement.clone(), is_new: true });
        }
        is_archived
    }

    /// Returns the infeasible arrangement that exceeds the memory limit by the minimum, or `None`
    /// if there are entries or nothing was recorded.
    pub(super) fn closest(&self) -> Option<&Entry<A>> {
        self.closest.as_ref().filter(|_| self.entries.is_empty())
    }

    /// Returns the entries, or the arrangement that exceeds the memory limit by the minimum if
    /// there are none.
    pub(super) fn starting_points(&self) -> &[Entry<A>] {
        self.closest().map_or(&self.entries, std::slice::from_ref)
    }

    /// Returns the fastest of the [`starting_points`](Self::starting_points) with at most
    /// `budget_us` GPU-microseconds. If there is none, returns the one with the minimum GPU time;
    /// `None` if there are no starting points.
    pub(super) fn within(&self, budget_us: f64) -> Option<&Entry<A>> {
        let entries = self.starting_points();
        let first = entries.partition_point(|entry| entry.time.gpu_time_us > budget_us);
        entries.get(first).or(entries.last())
    }

    /// Returns the starting points that neither this method nor
    /// [`take_first_new`](Self::take_first_new) has returned before, in ascending order of
    /// iteration time.
    pub(super) fn take_new(&mut self) -> Vec<A> {
        let take =
            |entry: &mut Entry<A>| std::mem::take(&mut entry.is_new).then(|| entry.arrangement.clone());
        let closest = self.closest.as_mut().filter(|_| self.entries.is_empty());
        self.entries.iter_mut().chain(closest).filter_map(take).collect()
    }

    /// Returns the fastest entry that neither this method nor [`take_new`](Self::take_new) has
    /// returned before, or `None` if there is none. Infeasible arrangements are not returned.
    pub(super) fn take_first_new(&mut self) -> Option<A> {
        let entry = self.entries.iter_mut().find(|entry| entry.is_new)?;
        entry.is_new = false;
        Some(entry.arrangement.clone())
    }

    /// Returns all entries, in ascending order of iteration time, without infeasible arrangements.
    pub(super) fn into_entries(self) -> Vec<Entry<A>> {
        self.entries
    }
}
