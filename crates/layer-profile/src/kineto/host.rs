//! Nesting of the events of the host's threads: the outermost operators, and the module calls and
//! ranges that contain them.

use std::collections::HashMap;

use super::events::{Category, Event, Events, MARK};

/// Prefix of the ranges of an optimiser's step and of its zeroing of gradients.
const OPTIMIZER: &str = "Optimizer.";

/// Prefix of the ranges of an optimiser's step.
const OPTIMIZER_STEP: &str = "Optimizer.step";

/// Prefix of the operators that execute a node of automatic differentiation.
pub(super) const BACKWARD: &str = "autograd::engine::evaluate_function: ";

/// Operator that is not called by another one. Its duration includes the operators that it calls.
#[derive(Debug, Clone)]
pub(super) struct Operator {
    /// Index in [`Events::all`].
    pub(super) event: usize,
    /// Index in [`Host::calls`] of the innermost module call that contains it.
    pub(super) call: Option<usize>,
    /// Whether it is part of an optimiser's step.
    pub(super) is_update: bool,
    /// Whether it executes a node of automatic differentiation.
    pub(super) is_backward: bool,
}

/// Call of a module in the forward pass.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Index in [`Events::all`].
    pub(super) event: usize,
    /// Index in [`Host::calls`] of the call that contains it.
    pub(super) parent: Option<usize>,
    /// Whether it contains other calls.
    pub(super) has_children: bool,
    /// Whether an operator contains it, as in the recomputation of activations.
    pub(super) is_recomputed: bool,
}

/// Events of the host's threads.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Outermost operators of all threads, by thread and start.
    pub(super) operators: Vec<Operator>,
    /// Module calls, by thread and start: the marked ones, or if there are none, those of the
    /// Python tracer.
    pub(super) calls: Vec<Call>,
    /// Whether the calls are marked with the paths of modules.
    pub(super) is_marked: bool,
    /// Steps of an optimiser, as indices in [`Events::all`].
    pub(super) steps: Vec<usize>,
    /// Index in [`Host::operators`] of the outermost operator that contains each operator, by index
    /// in [`Events::all`]. `None` for other events.
    outermost: Vec<Option<u32>>,
    /// Ranges of optimisers, by thread.
    updates: HashMap<u32, Vec<(i64, i64)>>,
}

impl Host {
    /// Finds the outermost operators and the module calls of a trace.
    pub(super) fn of(trace: &Events) -> Self {
        let events = &trace.all;
        let is_marked = events.iter().any(|event| event.category == Category::Mark);
        let call = if is_marked { Category::Mark } else { Category::Module };
        let is_update =
            |event: &Event| event.category == Category::Range && trace.name(event).starts_with(OPTIMIZER);
        let is_kept = |event: &Event| {
            event.category == Category::Operator || event.category == call || is_update(event)
        };
        let mut order: Vec<usize> = (0..events.len()).filter(|&i| is_kept(&events[i])).collect();
        order.sort_by_key(|&i| (events[i].thread, events[i].start, -events[i].duration, i));

        let mut host = Self { is_marked, outermost: vec![None; events.len()], ..Self::default() };
        let mut thread = None;
        let mut open = Open::default();
        for i in order {
            let event = &events[i];
            if thread != Some(event.thread) {
                (thread, open) = (Some(event.thread), Open::default());
            }
            open.close_before(event.start);
            if event.category == Category::Operator {
                let outermost = open.operators.first().map_or_else(
                    || {
                        host.operators.push(Operator {
                            event: i,
                            call: open.calls.last().map(|&(call, _)| call),
                            is_update: !open.updates.is_empty(),
                            is_backward: trace.name(event).starts_with(BACKWARD),
                        });
                        host.operators.len() - 1
                    },
                    |&(outermost, _)| outermost,
                );
                host.outermost[i] = Some(outermost as u32);
                open.operators.push((outermost, event.end()));
            } else if event.category == call {
                let parent = open.calls.last().map(|&(call, _)| call);
                if let Some(parent) = parent {
                    host.calls[parent].has_children = true;
                }
                let is_recomputed = !open.operators.is_empty();
                host.calls.push(Call { event: i, parent, has_children: false, is_recomputed });
                open.calls.push((host.calls.len() - 1, event.end()));
            } else {
                if trace.name(event).starts_with(OPTIMIZER_STEP) && open.updates.is_empty() {
                    host.steps.push(i);
                }
                host.updates.entry(event.thread).or_default().push((event.start, event.end()));
                open.updates.push((i, event.end()));
            }
        }
        host
    }

    /// Returns the module's path of a marked call, or the name of its class with a number of the
    /// Python tracer.
    pub(super) fn module<'a>(&self, trace: &'a Events, call: usize) -> &'a str {
        let name = trace.name(&trace.all[self.calls[call].event]);
        name.strip_prefix(MARK).map_or(name, str::trim_start)
    }

    /// Returns the index in [`Host::operators`] of the outermost operator that runs on a thread at
    /// a time.
    pub(super) fn operator_at(&self, trace: &Events, thread: u32, time: i64) -> Option<usize> {
        let key = |operator: &Operator| {
            let event = &trace.all[operator.event];
            (event.thread, event.start)
        };
        let next = self.operators.partition_point(|operator| key(operator) <= (thread, time));
        let found = next.checked_sub(1)?;
        let event = &trace.all[self.operators[found].event];
        (event.thread == thread && time < event.end()).then_some(found)
    }

    /// Returns the index in [`Host::operators`] of the outermost operator that contains an
    /// operator, an index in [`Events::all`].
    pub(super) fn outermost(&self, event: usize) -> Option<usize> {
        self.outermost[event].map(|outermost| outermost as usize)
    }

    /// Returns whether a thread runs an optimiser at a time.
    pub(super) fn is_update_at(&self, thread: u32, time: i64) -> bool {
        let ranges = self.updates.get(&thread).map_or(&[][..], Vec::as_slice);
        // Ranges do not overlap, except that one may contain another.
        let next = ranges.partition_point(|&(start, _)| start <= time);
        ranges[..next].iter().rev().take(2).any(|&(_, end)| time < end)
    }

    /// Returns the calls of the network's module, in order of start: of the outermost calls, those
    /// of the module with the longest total time.
    pub(super) fn roots(&self, trace: &Events) -> Vec<usize> {
        let outermost = || {
            let is_outermost = |&i: &usize| {
                let call = &self.calls[i];
                call.parent.is_none() && !call.is_recomputed
            };
            (0..self.calls.len()).filter(is_outermost)
        };
        let mut totals: HashMap<&str, i64> = HashMap::new();
        for i in outermost() {
            *totals.entry(self.module(trace, i)).or_default() += trace.all[self.calls[i].event].duration;
        }
        // Of equal times, the first name in order, so that the result does not depend on hashes.
        let longest = totals.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(a.0)));
        let Some((name, _)) = longest else { return Vec::new() };
        let mut roots: Vec<usize> = outermost().filter(|&i| self.module(trace, i) == name).collect();
        roots.sort_by_key(|&i| trace.all[self.calls[i].event].start);
        roots
    }
}

/// Events of a thread that have not ended, the outermost first, each with its end.
#[derive(Default)]
struct Open {
    operators: Vec<(usize, i64)>,
    calls: Vec<(usize, i64)>,
    updates: Vec<(usize, i64)>,
}

impl Open {
    fn close_before(&mut self, time: i64) {
        for open in [&mut self.operators, &mut self.calls, &mut self.updates] {
            while open.last().is_some_and(|&(_, end)| end <= time) {
                open.pop();
            }
        }
    }
}
