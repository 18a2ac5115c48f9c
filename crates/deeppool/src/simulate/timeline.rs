use std::time::Duration;

use serde_json::{Value, json};

use crate::costs::micros;

/// What ran when, for a timeline viewer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    events: Vec<TimelineEvent>,
}

/// Something that ran on a lane of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEvent {
    /// The rank.
    pub rank: usize,
    /// `compute`, `communication` or `background`.
    pub lane: &'static str,
    /// What it was.
    pub label: String,
    /// When it started, since the first rank began the iteration.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// The lanes in the order in which a viewer shows them.
const LANES: [&str; 3] = ["compute", "communication", "background"];

impl Timeline {
    pub(super) fn new(events: Vec<TimelineEvent>) -> Self {
        Self { events }
    }

    /// The events, rank by rank.
    #[must_use]
    pub fn events(&self) -> &[TimelineEvent] {
        &self.events
    }

    /// As Chrome trace events, which open in Perfetto: a process a rank, a thread a lane, times in microseconds.
    #[must_use]
    pub fn to_chrome_trace(&self) -> Value {
        let mut ranks: Vec<usize> = self.events.iter().map(|event| event.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let names = ranks.iter().flat_map(|rank| {
            let process = json!({"ph": "M", "pid": rank, "name": "process_name",
                "args": {"name": format!("rank {rank} (simulated)")}});
            let lanes = LANES.iter().enumerate().map(move |(tid, lane)| {
                json!({"ph": "M", "pid": rank, "tid": tid, "name": "thread_name", "args": {"name": lane}})
            });
            std::iter::once(process).chain(lanes)
        });
        let spans = self.events.iter().map(|event| {
            let tid = LANES.iter().position(|lane| *lane == event.lane);
            json!({"ph": "X", "pid": event.rank, "tid": tid, "name": event.label,
                "ts": micros(event.start), "dur": micros(event.duration)})
        });
        json!({"displayTimeUnit": "ms", "traceEvents": names.chain(spans).collect::<Vec<_>>()})
    }
}
