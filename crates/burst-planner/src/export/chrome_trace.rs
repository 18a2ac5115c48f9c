//! The timeline as Chrome trace events.

use serde::Serialize;

use super::timeline::{SpanWork, timeline};
use crate::{Error, Plan, PlanProblem, Result};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace<'p> {
    display_time_unit: &'static str,
    trace_events: Vec<TraceEvent<'p>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum TraceEvent<'p> {
    Name {
        ph: &'static str,
        pid: usize,
        name: &'static str,
        args: Name,
    },
    Span {
        ph: &'static str,
        pid: usize,
        tid: usize,
        cat: &'static str,
        name: &'p str,
        ts: f64,
        dur: f64,
        args: Ranks,
    },
}

#[derive(Serialize)]
struct Name {
    name: String,
}

#[derive(Serialize, Clone)]
struct Ranks {
    ranks: Vec<usize>,
}

/// An iteration as Chrome trace events, which open in Perfetto (<https://ui.perfetto.dev>) and `chrome://tracing`.
///
/// One process a rank, with one track: the planner's model does nothing at the same time on one rank. Events are the spans
/// of [`timeline`], of the categories `layer` and `transfer`, named for the node or for both ends, with all its ranks as an
/// argument; times in microseconds. Viewers round them to nanoseconds, each by itself, and drop events that then overlap, so
/// beginnings and ends are rounded here, before durations are taken. Processes are numbered from 1, as in an operating system:
/// viewers have their own meaning for 0.
///
/// The model does not tell forward from backward, so an event stands for both together, and the trace shows what the
/// planner counted, not the order of a real iteration. Transfers that take no time are left out.
///
/// # Errors
/// What [`timeline`] reports.
pub fn chrome_trace(problem: &PlanProblem, plan: &Plan) -> Result<String> {
    let spans = timeline(problem, plan)?;
    let name = |node: usize| problem.nodes[node].name.as_str();
    let transfers: Vec<String> =
        problem.edges.iter().map(|edge| format!("{} -> {}", name(edge.from.0), name(edge.to.0))).collect();

    let ranks = spans.iter().map(|span| span.ranks.end).max().unwrap_or(0);
    let names = (0..ranks).map(|rank| {
        let args = Name { name: format!("rank {rank} (planned)") };
        TraceEvent::Name { ph: "M", pid: pid(rank), name: "process_name", args }
    });
    let timed = spans.iter().map(|span| {
        let ts = to_nanosecond(span.start_us);
        (span, ts, to_nanosecond(to_nanosecond(span.start_us + span.duration_us) - ts))
    });
    let shown = timed.filter(|(span, _, dur)| matches!(span.work, SpanWork::Node(_)) || *dur > 0.0);
    let events = shown.flat_map(|(span, ts, dur)| {
        let (cat, name) = match span.work {
            SpanWork::Node(node) => ("layer", name(node)),
            SpanWork::Edge(edge) => ("transfer", transfers[edge].as_str()),
        };
        let args = Ranks { ranks: span.ranks.clone().collect() };
        span.ranks.clone().map(move |rank| {
            let (pid, args) = (pid(rank), args.clone());
            TraceEvent::Span { ph: "X", pid, tid: pid, cat, name, ts, dur, args }
        })
    });
    let trace = Trace { display_time_unit: "ms", trace_events: names.chain(events).collect() };
    serde_json::to_string(&trace)
        .map_err(|error| Error::Json { path: ".".into(), message: error.to_string() })
}

fn pid(rank: usize) -> usize {
    rank + 1
}

fn to_nanosecond(time_us: f64) -> f64 {
    (time_us * 1e3).round() / 1e3
}
