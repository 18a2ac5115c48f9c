//! The Pareto-optimal ones of all arrangements that were evaluated.

use crate::evaluator::{NumberedArrangement, PlanTime};

/// Times that differ by less, relatively, are the same.
pub(super) const SAME: f64 = 1e-9;

/// An arrangement and what it takes.
#[derive(Debug, Clone)]
pub(super) struct Entry<A = NumberedArrangement> {
    pub(super) time: PlanTime,
    /// By how much its fullest rank is above what it can hold: 1 where none is.
    pub(super) memory_excess: f64,
    pub(super) arrangement: A,
    /// It has not been [taken](Archive::take_new) yet.
    is_new: bool,
}

/// Arrangements of which none is at least as good as another one in iteration time and GPU time. By rising iteration time, so
/// by falling GPU time.
#[derive(Debug)]
pub(super) struct Archive<A = NumberedArrangement> {
    entries: Vec<Entry<A>>,
    /// While nothing that was met has room, what is closest to that: somewhere to begin.
    closest: Option<Entry<A>>,
    /// Times that differ by less, relatively, are the same.
    same: PlanTime,
}

impl<A> Default for Archive<A> {
    fn default() -> Self {
        Self::with_tolerance(PlanTime { iteration_us: SAME, gpu_time_us: SAME })
    }
}

impl<A> Archive<A> {
    /// Of arrangements whose times differ by less than these, relatively, the first one is kept.
    pub(super) fn with_tolerance(same: PlanTime) -> Self {
        Self { entries: Vec::new(), closest: None, same }
    }
}

impl<A: Clone> Archive<A> {
    /// Adds an arrangement if no other one is as good, and drops those that are no better. Returns whether it was added. O(entries) at worst.
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

    /// Whether something takes no longer and no more GPU time.
    pub(super) fn dominates(&self, time: PlanTime) -> bool {
        let dominates = |entry: &Entry<A>| {
            entry.time.iteration_us <= time.iteration_us * (1.0 + self.same.iteration_us)
                && entry.time.gpu_time_us <= time.gpu_time_us * (1.0 + self.same.gpu_time_us)
        };
        let place = self.place(time);
        let neighbours = [place.checked_sub(1), Some(place)];
        neighbours.into_iter().flatten().filter_map(|at| self.entries.get(at)).any(dominates)
    }

    /// That of the first one that takes as long.
    fn place(&self, time: PlanTime) -> usize {
        self.entries.partition_point(|entry| entry.time.iteration_us < time.iteration_us)
    }

    /// Notes an arrangement that some rank has no room for, and says whether it exceeds the memory by less than all before.
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

    /// What is closest to having room, where nothing has.
    pub(super) fn closest(&self) -> Option<&Entry<A>> {
        self.closest.as_ref().filter(|_| self.entries.is_empty())
    }

    /// What a search can go on from: what is worth choosing, or where nothing has room what is closest to that.
    pub(super) fn starting_points(&self) -> &[Entry<A>] {
        self.closest().map_or(&self.entries, std::slice::from_ref)
    }

    /// The fastest within a budget of GPU time, else the one that takes the least.
    pub(super) fn within(&self, budget_us: f64) -> Option<&Entry<A>> {
        let entries = self.starting_points();
        let first = entries.partition_point(|entry| entry.time.gpu_time_us > budget_us);
        entries.get(first).or(entries.last())
    }

    /// The arrangements that were added since this was called last.
    pub(super) fn take_new(&mut self) -> Vec<A> {
        let take =
            |entry: &mut Entry<A>| std::mem::take(&mut entry.is_new).then(|| entry.arrangement.clone());
        let closest = self.closest.as_mut().filter(|_| self.entries.is_empty());
        self.entries.iter_mut().chain(closest).filter_map(take).collect()
    }

    /// The first one that was added since it or all of them were taken last.
    pub(super) fn take_first_new(&mut self) -> Option<A> {
        let entry = self.entries.iter_mut().find(|entry| entry.is_new)?;
        entry.is_new = false;
        Some(entry.arrangement.clone())
    }

    pub(super) fn into_entries(self) -> Vec<Entry<A>> {
        self.entries
    }
}
