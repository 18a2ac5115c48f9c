//! Timeline of all jobs of a simulated cluster.

use std::time::Duration;

use collectives::Flow;
use serde_json::{Value, json};

use super::ClusterJob;
use crate::costs::micros;
use crate::program::{Lane, Op};
use crate::simulate::rank::Rank;

/// The work of all jobs of a cluster over time, for a timeline viewer such as Perfetto.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterTimeline {
    begin: Duration,
    end: Duration,
    jobs: Vec<TimelineJob>,
}

#[derive(Debug, Clone, PartialEq)]
struct TimelineJob {
    name: String,
    /// For each class of ranks with equal steps, the ranks' names and their events.
    classes: Vec<(String, Vec<Event>)>,
}

#[derive(Debug, Clone, PartialEq)]
struct Event {
    lane: Lane,
    label: String,
    start: Duration,
    duration: Duration,
    /// Duration of a collective without other jobs; `None` for a compute step.
    alone: Option<Duration>,
}

impl ClusterTimeline {
    /// Creates a timeline of an interval of virtual time, without jobs.
    pub(super) fn new(begin: Duration, end: Duration) -> Self {
        Self { begin, end, jobs: Vec::new() }
    }

    /// Adds the steps of a job that overlap the interval. `ranks` have kept their steps, and
    /// `flows` are those of the collectives.
    pub(super) fn add_job(&mut self, job: &ClusterJob<'_>, ranks: &[Rank<'_>], flows: &[Flow]) {
        let of_class = |rank: &Rank<'_>| {
            let Some(program) = rank.class().programs.first() else { return (String::new(), Vec::new()) };
            let events = rank.jobs.kept_steps().filter_map(|(step, span)| {
                let step = &program.steps[step.0];
                let [start, end] = [span.start, span.end].map(|at| at.saturating_add(job.start));
                if end <= self.begin || start >= self.end || start == end {
                    return None;
                }
                let alone = match step.op {
                    Op::Collective(id) => Some(flows[id.0].alone()),
                    _ => None,
                };
                let duration = end.saturating_sub(start);
                Some(Event { lane: step.lane(), label: step.label.clone(), start, duration, alone })
            });
            let mut ranks: Vec<usize> = rank.represented_ranks().collect();
            ranks.sort_unstable();
            (rank_names(&ranks), events.collect())
        };
        self.jobs.push(TimelineJob { name: job.name.clone(), classes: ranks.iter().map(of_class).collect() });
    }

    /// Returns Chrome trace events, which open in Perfetto: one process per job, and two threads
    /// (compute and communication) per class of ranks that run the same steps at the same times.
    /// Times are in microseconds from the begin of the timeline. Collectives have the argument
    /// `alone_us`, their duration without other jobs.
    #[must_use]
    pub fn to_chrome_trace(&self) -> Value {
        // All threads have different numbers, of which the first of each process equals the process
        // number.
        let mut next_thread = self.jobs.len() + 1;
        let mut events = Vec::new();
        for (index, job) in self.jobs.iter().enumerate() {
            let pid = index + 1;
            events.push(json!({"ph": "M", "pid": pid, "name": "process_name",
                "args": {"name": format!("{} (simulated)", job.name)}}));
            let mut first = Some(pid);
            let mut thread = || {
                first.take().unwrap_or_else(|| {
                    next_thread += 1;
                    next_thread - 1
                })
            };
            for (ranks, of_class) in &job.classes {
                for (lane, name) in [(Lane::Compute, "compute"), (Lane::Communication, "communication")] {
                    let tid = thread();
                    events.push(json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name",
                        "args": {"name": format!("{name}, {ranks}")}}));
                    for event in of_class.iter().filter(|event| event.lane == lane) {
                        let args = event.alone.map_or(json!({}), |alone| json!({"alone_us": micros(alone)}));
                        let ts = micros(event.start) - micros(self.begin);
                        events.push(json!({"ph": "X", "pid": pid, "tid": tid, "cat": name,
                            "name": event.label, "args": args, "ts": ts, "dur": micros(event.duration)}));
                    }
                }
            }
        }
        json!({"displayTimeUnit": "ms", "traceEvents": events})
    }
}

/// Names ascending ranks by their ranges, such as `ranks 0-3, 8`.
fn rank_names(ranks: &[usize]) -> String {
    let ranges = ranks.chunk_by(|a, b| a + 1 == *b).map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    });
    let name = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{name} {}", ranges.collect::<Vec<_>>().join(", "))
}
