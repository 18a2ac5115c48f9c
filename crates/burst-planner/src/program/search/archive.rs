//! The Pareto-optimal ones of all arrangements that were evaluated.

use super::super::evaluator::{Numbered, TrainingTime};

/// Times that differ by less, relatively, are the same.
pub(super) const SAME: f64 = 1e-9;

/// An arrangement and what it takes.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) time: TrainingTime,
    /// By how much its fullest rank is above what it can hold: 1 where none is.
    pub(super) overfull: f64,
    pub(super) numbered: Numbered,
    /// It has not been [taken](Archive::take_fresh) yet.
    is_fresh: bool,
}

/// Arrangements of which none is at least as good as another one in iteration time and GPU time. By rising iteration time, so
/// by falling GPU time.
#[derive(Debug, Default)]
pub(super) struct Archive {
    entries: Vec<Entry>,
    /// While nothing that was met has room, what is closest to that: somewhere to begin.
    closest: Option<Entry>,
}

impl Archive {
    /// Adds an arrangement if no other one is as good, and drops those that are no better. Returns whether it was added. O(entries) at worst.
    pub(super) fn offer(&mut self, time: TrainingTime, numbered: &Numbered) -> bool {
        let TrainingTime { iteration_us, gpu_time_us } = time;
        let place = self.entries.partition_point(|entry| entry.time.iteration_us < iteration_us);
        let is_beaten = |entry: &Entry| {
            entry.time.iteration_us <= iteration_us * (1.0 + SAME)
                && entry.time.gpu_time_us <= gpu_time_us * (1.0 + SAME)
        };
        let neighbours = [place.checked_sub(1), Some(place)];
        if neighbours.into_iter().flatten().filter_map(|at| self.entries.get(at)).any(is_beaten) {
            return false;
        }
        let beaten =
            self.entries[place..].iter().take_while(|entry| entry.time.gpu_time_us >= gpu_time_us).count();
        let entry = Entry { time, overfull: 1.0, numbered: numbered.clone(), is_fresh: true };
        self.entries.splice(place..place + beaten, [entry]);
        true
    }

    /// Notes an arrangement that some rank has no room for, and says whether it exceeds the memory by less than all before.
    pub(super) fn note(&mut self, overfull: f64, time: TrainingTime, numbered: &Numbered) -> bool {
        let is_closer = match &self.closest {
            Some(entry) => (overfull, time.iteration_us) < (entry.overfull, entry.time.iteration_us),
            None => true,
        };
        let is_taken = is_closer && self.entries.is_empty();
        if is_taken {
            self.closest = Some(Entry { time, overfull, numbered: numbered.clone(), is_fresh: true });
        }
        is_taken
    }

    /// What is closest to having room, where nothing has.
    pub(super) fn closest(&self) -> Option<&Entry> {
        self.closest.as_ref().filter(|_| self.entries.is_empty())
    }

    /// What a search can go on from: what is worth choosing, or where nothing has room what is closest to that.
    pub(super) fn beginnings(&self) -> &[Entry] {
        self.closest().map_or(&self.entries, std::slice::from_ref)
    }

    /// The fastest within a budget of GPU time, else the one that takes the least.
    pub(super) fn within(&self, budget_us: f64) -> Option<&Entry> {
        let entries = self.beginnings();
        let first = entries.partition_point(|entry| entry.time.gpu_time_us > budget_us);
        entries.get(first).or(entries.last())
    }

    /// The arrangements that were added since this was called last.
    pub(super) fn take_fresh(&mut self) -> Vec<Numbered> {
        let take = |entry: &mut Entry| std::mem::take(&mut entry.is_fresh).then(|| entry.numbered.clone());
        let closest = self.closest.as_mut().filter(|_| self.entries.is_empty());
        self.entries.iter_mut().chain(closest).filter_map(take).collect()
    }

    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}
