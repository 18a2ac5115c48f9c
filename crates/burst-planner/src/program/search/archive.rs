//! All arrangements worth choosing from that were met.

use super::super::evaluator::{Numbered, TrainingTime};

/// Times that differ by less, relatively, are the same.
pub(super) const SAME: f64 = 1e-9;

/// An arrangement and what it takes.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) time: TrainingTime,
    pub(super) numbered: Numbered,
    /// Nobody has [taken](Archive::take_fresh) it yet.
    is_fresh: bool,
}

/// Arrangements of which none is at least as good as another one in iteration time and GPU time. By rising iteration time, so
/// by falling GPU time.
#[derive(Debug, Default)]
pub(super) struct Archive {
    entries: Vec<Entry>,
}

impl Archive {
    /// Takes an arrangement in if no other one is as good, and drops those that are no better. Whether it did. O(entries) at worst.
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
        let entry = Entry { time, numbered: numbered.clone(), is_fresh: true };
        self.entries.splice(place..place + beaten, [entry]);
        true
    }

    /// The fastest within a budget of GPU time.
    pub(super) fn within(&self, budget_us: f64) -> Option<&Entry> {
        let first = self.entries.partition_point(|entry| entry.time.gpu_time_us > budget_us);
        self.entries.get(first)
    }

    /// The arrangements that have come in since this was called last.
    pub(super) fn take_fresh(&mut self) -> Vec<Numbered> {
        let take = |entry: &mut Entry| std::mem::take(&mut entry.is_fresh).then(|| entry.numbered.clone());
        self.entries.iter_mut().filter_map(take).collect()
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}
