//! Descriptions of conflicts: uses of the same memory by two tasks that nothing orders, at least
//! one of which is not a read. Two atomic operations do not conflict. A task is work that uses
//! memory, such as a kernel.

use super::{AllocationUses, tasks::Task, uses::Conflict};
use ptx_emulator::AccessKind;
use std::{
    collections::HashMap,
    fmt::{self, Display, Write},
};

/// Conflicts found since the last reset, one for each pair of tasks and allocation.
#[derive(Default)]
pub(in crate::state) struct Conflicts {
    /// Index of the line of each conflict, by the labels of the earlier and the later task and the
    /// first address of the allocation.
    line_indices: HashMap<(String, String, u64), usize>,
    /// Lines of the report, each with its number of occurrences.
    lines: Vec<(String, u64)>,
}

impl Conflicts {
    /// Adds the conflict `found` with a use of the given kind by the task `later`. The first
    /// argument holds the first address and the uses of the allocation.
    pub(in crate::state) fn add(
        &mut self,
        (start, uses): (u64, &AllocationUses),
        found: &Conflict,
        later: &Task,
        kind: AccessKind,
    ) {
        self.add_line(start, uses, found, (&later.label, verb(kind)));
    }

    /// Adds the conflict `found` with the end of the allocation, which `freed_by` describes. The
    /// first argument holds the first address and the uses of the allocation.
    pub(in crate::state) fn add_free(
        &mut self,
        (start, uses): (u64, &AllocationUses),
        found: &Conflict,
        freed_by: &str,
    ) {
        self.add_line(start, uses, found, (freed_by, "frees"));
    }

    fn add_line(
        &mut self,
        start: u64,
        uses: &AllocationUses,
        found: &Conflict,
        (later, verb_of_later): (&str, &str),
    ) {
        let earlier = &found.earlier.label;
        let key = (earlier.clone(), later.to_owned(), start);
        if let Some((_, times)) = self.line_indices.get(&key).and_then(|index| self.lines.get_mut(*index)) {
            *times += 1;
            return;
        }
        let Conflict { bytes, kind, .. } = found;
        let line = format!(
            "{later} {verb_of_later} bytes {} to {} of the {} bytes at {start:#x}, \
             which {earlier} {}, and nothing orders the two",
            bytes.start,
            bytes.end - 1,
            uses.length(),
            verb(*kind),
        );
        self.line_indices.insert(key, self.lines.len());
        self.lines.push((line, 1));
    }
}

fn verb(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Read => "reads",
        AccessKind::Write => "writes",
        AccessKind::Atomic => "changes by atomic operations",
    }
}

impl Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, times) in &self.lines {
            f.write_str(line)?;
            if *times > 1 {
                write!(f, " ({times} times)")?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}
