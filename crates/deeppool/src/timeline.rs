//! What ran when, simulated or measured.

use std::time::Duration;

use serde_json::{Value, json};

use crate::costs::micros;
use crate::program::StepId;

/// What ran when, for a timeline viewer.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    origin: Origin,
    events: Vec<TimelineEvent>,
}

/// Where times are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From the simulator.
    Simulated,
    /// From training.
    Measured,
}

/// Something that ran on a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelineEvent {
    /// The rank.
    pub rank: usize,
    /// Whose work it was.
    pub work: TimelineWork,
    /// Which step of the rank's program it was; `None` for a background job.
    pub step: Option<StepId>,
    /// What it was: the label of a step such as `forward conv1`, or the first and the last of those of a background job whose
    /// kernels were launched together.
    pub label: String,
    /// When it started, since the first rank began the first iteration of the timeline.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// Whose work ran, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimelineWork {
    /// The foreground's computation.
    Compute,
    /// A collective of the foreground.
    Communication {
        /// What all ranks together are about: see [`Collective::bytes`](crate::program::Collective::bytes).
        bytes: u64,
        /// The ranks that take part, ascending.
        ranks: Vec<usize>,
    },
    /// Computation of a background job.
    Background {
        /// The name of its network.
        job: String,
        /// The layers whose kernels were launched together, in the order in which they ran.
        layers: Vec<String>,
    },
}

impl TimelineWork {
    /// `compute`, `communication` or `background`: a rank does one thing at a time on each.
    #[must_use]
    pub fn lane(&self) -> &'static str {
        LANES[self.place()]
    }

    fn place(&self) -> usize {
        match self {
            Self::Compute => 0,
            Self::Communication { .. } => 1,
            Self::Background { .. } => 2,
        }
    }

    fn args(&self) -> Value {
        match self {
            Self::Compute => json!({}),
            Self::Communication { bytes, ranks } => json!({"bytes": bytes, "ranks": ranks}),
            Self::Background { job, layers } => json!({"job": job, "layers": layers}),
        }
    }
}

/// The lanes in the order in which a viewer shows them.
const LANES: [&str; 3] = ["compute", "communication", "background"];

impl Timeline {
    pub(crate) fn new(origin: Origin, events: Vec<TimelineEvent>) -> Self {
        Self { origin, events }
    }

    /// The events, rank by rank: first the steps of the rank's program, with those that take no time, and then what ran in the
    /// background. Simulated steps are in the program's order, measured ones in that in which they ended.
    #[must_use]
    pub fn events(&self) -> &[TimelineEvent] {
        &self.events
    }

    /// As Chrome trace events, which open in Perfetto: a process a rank, a thread a lane, times in microseconds. Steps that take no time
    /// are left out. The events' arguments are the bytes and ranks of a collective, and the network and layers of a background job.
    ///
    /// Processes are numbered from 1 and all threads differently, the first of a process like it, as in an operating system:
    /// Perfetto takes a thread 0 for its process' first, and shows that one above the others.
    #[must_use]
    pub fn to_chrome_trace(&self) -> Value {
        let events = || self.events.iter().filter(|event| !event.duration.is_zero());
        let mut ranks: Vec<usize> = events().map(|event| event.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let processes = ranks.last().map_or(0, |last| last + 1);
        let pid = |rank: usize| rank + 1;
        let tid = |rank: usize, lane: usize| pid(rank) + lane * processes;
        let origin = match self.origin {
            Origin::Simulated => "simulated",
            Origin::Measured => "measured",
        };
        let names = ranks.iter().flat_map(|&rank| {
            let process = json!({"ph": "M", "pid": pid(rank), "name": "process_name",
                "args": {"name": format!("rank {rank} ({origin})")}});
            let lanes = LANES.iter().enumerate().map(move |(lane, name)| {
                json!({"ph": "M", "pid": pid(rank), "tid": tid(rank, lane), "name": "thread_name",
                    "args": {"name": name}})
            });
            std::iter::once(process).chain(lanes)
        });
        let spans = events().map(|event| {
            let (tid, cat) = (tid(event.rank, event.work.place()), event.work.lane());
            json!({"ph": "X", "pid": pid(event.rank), "tid": tid, "cat": cat, "name": event.label, "args": event.work.args(),
                "ts": micros(event.start), "dur": micros(event.duration)})
        });
        json!({"displayTimeUnit": "ms", "traceEvents": names.chain(spans).collect::<Vec<_>>()})
    }
}
