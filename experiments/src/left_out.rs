//! Counts of the records that an experiment leaves out.

use std::collections::BTreeMap;

/// Numbers of left-out records by reason, each with the first of them as an example.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftOut {
    reasons: BTreeMap<String, (usize, String)>,
    /// Number of records from which they are left out.
    total: usize,
}

impl LeftOut {
    /// Counts a record that is used.
    pub(crate) fn used(&mut self) {
        self.total += 1;
    }

    /// Counts a record that is left out. `example` describes it.
    pub(crate) fn add(&mut self, reason: impl Into<String>, example: impl Into<String>) {
        self.total += 1;
        self.reasons.entry(reason.into()).or_insert_with(|| (0, example.into())).0 += 1;
    }

    /// Adds the counts of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        self.total += other.total;
        for (reason, (count, example)) in other.reasons {
            self.reasons.entry(reason).or_insert((0, example)).0 += count;
        }
    }

    /// Returns the number of records that are left out.
    pub(crate) fn count(&self) -> usize {
        self.reasons.values().map(|(count, _)| count).sum()
    }

    /// Returns whether records were counted and all of them are left out.
    pub(crate) fn is_everything(&self) -> bool {
        self.total > 0 && self.count() == self.total
    }

    /// Describes the counts in one line, or returns `None` if nothing is left out. `source` is the
    /// origin of the records, such as a file's name, and `records` their name in the plural.
    pub(crate) fn description(&self, source: &str, records: &str) -> Option<String> {
        let reason = |(reason, (count, example)): (&String, &(usize, String))| {
            format!("{count} {reason} (such as {example})")
        };
        let reasons: Vec<String> = self.reasons.iter().map(reason).collect();
        let (count, total) = (self.count(), self.total);
        (count > 0)
            .then(|| format!("{source}: left out {count} of {total} {records}: {}", reasons.join(", ")))
    }
}
