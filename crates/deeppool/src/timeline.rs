//! Timelines of simulated and measured iterations. A timeline has lanes for each rank: compute,
//! communication, background and, with a background job on several ranks, its communication.

use std::time::Duration;

use serde_json::{Value, json};

use crate::costs::micros;
use crate::program::StepId;

/// The work of all ranks over time, for a timeline viewer such as Perfetto.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    origin: Origin,
    events: Vec<TimelineEvent>,
}

/// Source of the times of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The simulator: times are virtual.
    Simulated,
    /// A training run: times are measured.
    Measured,
}

/// One piece of work on a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelineEvent {
    /// The rank that the work runs on.
    pub rank: usize,
    /// Kind of the work.
    pub work: TimelineWork,
    /// Index of the step in the rank's program; `None` for a background job.
    pub step: Option<StepId>,
    /// Label of the step, such as `forward conv1`, or of the first and the last step of a
    /// background job whose kernels were launched together.
    pub label: String,
    /// Start, relative to the start of the first iteration of the timeline on the first rank.
    pub start: Duration,
    /// Time from the start to the end of the work.
    pub duration: Duration,
}

/// The kind of work, with its details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimelineWork {
    /// A compute step of the foreground.
    Compute,
    /// A collective of the foreground.
    Communication {
        /// Bytes of the collective: the buffers of one rank for an all-reduce or a broadcast, and
        /// all samples that move for a redistribution.
        bytes: u64,
        /// The ranks that take part in the collective.
        ranks: Vec<usize>,
    },
    /// Computation of a background job.
    Background {
        /// Name of the network of the background job.
        job: String,
        /// Names of the layers whose kernels were launched together, in the order in which they
        /// ran.
        layers: Vec<String>,
    },
    /// A collective, or a piece of one, of a background job on several ranks.
    BackgroundCommunication {
        /// Name of the network of the background job.
        job: String,
    },
}

impl TimelineWork {
    /// Returns the name of the lane: `compute`, `communication`, `background` or `background
    /// communication`. A rank runs at most one event at a time on each.
    #[must_use]
    pub fn lane(&self) -> &'static str {
        LANES[self.place()]
    }

    fn place(&self) -> usize {
        match self {
            Self::Compute => 0,
            Self::Communication { .. } => 1,
            Self::Background { .. } => 2,
            Self::BackgroundCommunication { .. } => 3,
        }
    }

    fn args(&self) -> Value {
        match self {
            Self::Compute => json!({}),
            Self::Communication { bytes, ranks } => json!({"bytes": bytes, "ranks": ranks}),
            Self::Background { job, layers } => json!({"job": job, "layers": layers}),
            Self::BackgroundCommunication { job } => json!({"job": job}),
        }
    }
}

/// The lanes in the order in which a viewer shows them.
const LANES: [&str; 4] = ["compute", "communication", "background", "background communication"];
/// Number of lanes that are shown even without events.
const ALWAYS_SHOWN: usize = 3;

impl Timeline {
    /// Creates a timeline from events that are already sorted as [`Self::events`] describes.
    /// `origin` is the source of their times.
    pub(crate) fn new(origin: Origin, events: Vec<TimelineEvent>) -> Self {
        Self { origin, events }
    }

    /// The events, rank by rank: first the steps of the rank's program, also those without
    /// duration, then the background. Simulated steps are in the program's order, measured ones in
    /// the order in which they ended.
    #[must_use]
    pub fn events(&self) -> &[TimelineEvent] {
        &self.events
    }

    /// Returns Chrome trace events, which open in Perfetto: one process per rank, one thread per
    /// lane, times in microseconds. Steps without duration are omitted. The arguments of the events
    /// are the bytes and ranks of a collective, and the network and layers of a background job.
    ///
    /// Processes are numbered from 1, and all threads have different numbers, of which the first of
    /// each process equals the process number, as in an operating system. Perfetto would take a
    /// thread 0 for the first thread of its process and show it above the others.
    #[must_use]
    pub fn to_chrome_trace(&self) -> Value {
        let events = || self.events.iter().filter(|event| !event.duration.is_zero());
        let mut ranks: Vec<usize> = events().map(|event| event.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let processes = ranks.last().map_or(0, |last| last + 1);
        let pid = |rank: usize| rank + 1;
        let tid = |rank: usize, lane: usize| pid(rank) + lane * processes;
        let lanes = events().map(|event| event.work.place() + 1).fold(ALWAYS_SHOWN, usize::max);
        let origin = match self.origin {
            Origin::Simulated => "simulated",
            Origin::Measured => "measured",
        };
        let names = ranks.iter().flat_map(|&rank| {
            let process = json!({"ph": "M", "pid": pid(rank), "name": "process_name",
                "args": {"name": format!("rank {rank} ({origin})")}});
            let shown = LANES.iter().take(lanes).enumerate();
            let lanes = shown.map(move |(lane, name)| {
                json!({"ph": "M", "pid": pid(rank), "tid": tid(rank, lane), "name": "thread_name",
                    "args": {"name": name}})
            });
            std::iter::once(process).chain(lanes)
        });
        let spans = events().map(|event| {
            let (tid, cat) = (tid(event.rank, event.work.place()), event.work.lane());
            json!({"ph": "X", "pid": pid(event.rank), "tid": tid, "cat": cat, "name": event.label,
                "args": event.work.args(), "ts": micros(event.start), "dur": micros(event.duration)})
        });
        json!({"displayTimeUnit": "ms", "traceEvents": names.chain(spans).collect::<Vec<_>>()})
    }
}
