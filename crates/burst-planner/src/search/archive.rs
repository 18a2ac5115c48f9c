//! The Pareto-optimal ones of all arrangements that were evaluated.

use crate::evaluator::{Numbered, PlanTime};

/// Times that differ by less, relatively, are the same.
pub(super) const SAME: f64 = 1e-9;

/// An arrangement and what it takes.
#[derive(Debug, Clone)]
pub(super) struct Entry<A = Numbered> {
    pub(super) time: PlanTime,
    /// By how much its fullest rank is above what it can hold: 1 where none is.
    pub(super) overfull: f64,
    pub(super) arrangement: A,
    /// It has not been [taken](Archive::take_fresh) yet.
    is_fresh: bool,
}

/// Arrangements of which none is at least as good as another one in iteration time and GPU time. By rising iteration time, so
/// by falling GPU time.
#[derive(Debug)]
pub(super) struct Archive<A = Numbered> {
    entries: Vec<Entry<A>>,
    /// While nothing that was met has room, what is closest to that: somewhere to begin.
    closest: Option<Entry<A>>,
    /// Times that differ by less, relatively, are the same.
    same: PlanTime,
}

impl<A> Default for Archive<A> {
    fn default() -> Self {
        Self::telling_apart(PlanTime { iteration_us: SAME, gpu_time_us: SAME })
    }
}

impl<A> Archive<A> {
    /// Of arrangements whose times differ by less than these, relatively, the first one is kept.
    pub(super) fn telling_apart(same: PlanTime) -> Self {
        Self { entries: Vec::new(), closest: None, same }
    }
}

impl<A: Clone> Archive<A> {
    /// Adds an arrangement if no other one is as good, and drops those that are no better. Returns whether it was added. O(entries) at worst.
    pub(super) fn offer<B>(&mut self, time: PlanTime, arrangement: &B) -> bool
    where
        B: ToOwned<Owned = A> + ?Sized,
    {
        if self.is_as_good(time) {
            return false;
        }
        let place = self.place(time);
        let beaten = self.entries[place..]
            .iter()
            .take_while(|entry| entry.time.gpu_time_us >= time.gpu_time_us)
            .count();
        let entry = Entry { time, overfull: 1.0, arrangement: arrangement.to_owned(), is_fresh: true };
        self.entries.splice(place..place + beaten, [entry]);
        true
    }

    /// Whether something takes no longer and no more GPU time.
    pub(super) fn is_as_good(&self, time: PlanTime) -> bool {
        let is_as_good = |entry: &Entry<A>| {
            entry.time.iteration_us <= time.iteration_us * (1.0 + self.same.iteration_us)
                && entry.time.gpu_time_us <= time.gpu_time_us * (1.0 + self.same.gpu_time_us)
        };
        let place = self.place(time);
        let neighbours = [place.checked_sub(1), Some(place)];
        neighbours.into_iter().flatten().filter_map(|at| self.entries.get(at)).any(is_as_good)
    }

    /// That of the first one that takes as long.
    fn place(&self, time: PlanTime) -> usize {
        self.entries.partition_point(|entry| entry.time.iteration_us < time.iteration_us)
    }

    /// Notes an arrangement that some rank has no room for, and says whether it exceeds the memory by less than all before.
    pub(super) fn note(&mut self, overfull: f64, time: PlanTime, arrangement: &A) -> bool {
        let is_closer = match &self.closest {
            Some(entry) => (overfull, time.iteration_us) < (entry.overfull, entry.time.iteration_us),
            None => true,
        };
        let is_taken = is_closer && self.entries.is_empty();
        if is_taken {
            self.closest = Some(Entry { time, overfull, arrangement: arrangement.clone(), is_fresh: true });
        }
        is_taken
    }

    /// What is closest to having room, where nothing has.
    pub(super) fn closest(&self) -> Option<&Entry<A>> {
        self.closest.as_ref().filter(|_| self.entries.is_empty())
    }

    /// What a search can go on from: what is worth choosing, or where nothing has room what is closest to that.
    pub(super) fn beginnings(&self) -> &[Entry<A>] {
        self.closest().map_or(&self.entries, std::slice::from_ref)
    }

    /// The fastest within a budget of GPU time, else the one that takes the least.
    pub(super) fn within(&self, budget_us: f64) -> Option<&Entry<A>> {
        let entries = self.beginnings();
        let first = entries.partition_point(|entry| entry.time.gpu_time_us > budget_us);
        entries.get(first).or(entries.last())
    }

    /// The arrangements that were added since this was called last.
    pub(super) fn take_fresh(&mut self) -> Vec<A> {
        let take =
            |entry: &mut Entry<A>| std::mem::take(&mut entry.is_fresh).then(|| entry.arrangement.clone());
        let closest = self.closest.as_mut().filter(|_| self.entries.is_empty());
        self.entries.iter_mut().chain(closest).filter_map(take).collect()
    }

    /// The first one that was added since it or all of them were taken last.
    pub(super) fn take_first_fresh(&mut self) -> Option<A> {
        let entry = self.entries.iter_mut().find(|entry| entry.is_fresh)?;
        entry.is_fresh = false;
        Some(entry.arrangement.clone())
    }

    pub(super) fn into_entries(self) -> Vec<Entry<A>> {
        self.entries
    }
}
