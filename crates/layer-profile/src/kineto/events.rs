//! Events of a trace: the JSON document, parsed as a stream. Of the events of Python, which are the
//! majority of a trace with stacks, only the calls of modules are kept.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};

use super::arguments::{Place, Shapes};
use super::split::split_events;
use crate::ProfileError;

/// Maximum number of kept events, which limits the memory for them to about 400 MB.
const MAX_EVENTS: usize = 1 << 21;

/// Maximum number of bytes of all different names and shapes.
const MAX_NAMES: usize = 64 << 20;

/// Maximum time in microseconds. A later one would overflow in nanoseconds.
const MAX_MICROS: f64 = 9e15;

/// Prefix of the ranges in which a submodule ran, as `deeppool.profiling.marked` records them. The
/// submodule's path follows.
pub(super) const MARK: &str = "deeppool:";

/// Prefix of the events of calls of a module in Python. The name of its class and a number follow.
pub(super) const MODULE: &str = "nn.Module: ";

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    /// An operator on the host, such as `aten::conv2d`.
    Operator,
    /// A call of a module, recorded by the Python tracer.
    Module,
    /// A call of a submodule, recorded by a range of [`MARK`].
    Mark,
    /// Another range that the program recorded, such as `Optimizer.step#SGD.step`.
    Range,
    /// A launch of work on a GPU by the host.
    Launch,
    /// Work on a GPU: a kernel, a copy or a fill.
    Kernel,
}

/// An event with a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Event {
    pub(super) category: Category,
    /// Index in [`Events::names`].
    pub(super) name: u32,
    /// Number of the thread, or of the stream.
    pub(super) thread: u32,
    /// Start in nanoseconds.
    pub(super) start: i64,
    /// Duration in nanoseconds.
    pub(super) duration: i64,
    /// Number of the node of automatic differentiation that an operator creates or executes.
    pub(super) sequence: Option<u64>,
    /// Number that an operator shares with the work that it launched.
    pub(super) external: Option<u64>,
    /// Number that a launch shares with the launched work.
    pub(super) correlation: Option<u64>,
    /// Index in [`Events::shapes`] of the shapes of an operator's inputs.
    pub(super) shapes: Option<u32>,
}

impl Event {
    /// Returns the end in nanoseconds.
    pub(super) fn end(&self) -> i64 {
        self.start.saturating_add(self.duration)
    }
}

/// Kept events of a trace.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Events in the order of the file.
    pub(super) all: Vec<Event>,
    /// Different names of events.
    pub(super) names: Vec<String>,
    /// Different lists of the shapes of an operator's inputs.
    pub(super) shapes: Vec<Vec<Vec<u64>>>,
    /// Name of the first GPU of the machine.
    pub(super) gpu: Option<String>,
}

impl Events {
    /// Parses a trace in JSON, without holding its text in memory.
    ///
    /// # Errors
    /// [`ProfileError::Trace`] if reading fails, or the text is not JSON, has no events or too many
    /// of them, or an event has a field of another type.
    pub(super) fn read(text: impl Read) -> Result<Self, ProfileError> {
        let mut parser = EventsParser::default();
        let rest = split_events(text, |event| {
            let event: EventDocument = serde_json::from_slice(event).map_err(|error| error.to_string())?;
            parser.add(event)
        });
        let parsed = rest.and_then(|rest| {
            let document = serde_json::from_slice(&rest).map_err(|error| error.to_string())?;
            let TraceDocument { list, devices: FirstDevice(gpu) } = document;
            parser.events.gpu = gpu;
            list.map(|EventList| parser.events).ok_or_else(|| {
                "there are no `traceEvents`: expected a trace of PyTorch's profiler".to_owned()
            })
        });
        parsed.map_err(ProfileError::Trace)
    }

    /// Returns the name of an event.
    pub(super) fn name(&self, event: &Event) -> &str {
        &self.names[event.name as usize]
    }
}

#[derive(Default)]
struct EventsParser {
    events: Events,
    names: HashMap<String, u32>,
    shapes: HashMap<Vec<Vec<u64>>, u32>,
    threads: HashMap<[Place; 2], u32>,
    /// Bytes of all different names and shapes.
    bytes: usize,
}

/// JSON form of an event.
#[derive(Deserialize)]
struct EventDocument {
    #[serde(default)]
    ph: Option<String>,
    #[serde(default)]
    cat: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    pid: Option<Place>,
    #[serde(default)]
    tid: Option<Place>,
    #[serde(default)]
    ts: Option<f64>,
    #[serde(default)]
    dur: Option<f64>,
    #[serde(default)]
    args: Option<ArgumentsDocument>,
}

/// JSON form of the arguments of an event.
#[derive(Deserialize, Default)]
struct ArgumentsDocument {
    #[serde(default, rename = "Sequence number")]
    sequence: Option<i64>,
    #[serde(default, rename = "External id", alias = "external id")]
    external: Option<i64>,
    #[serde(default)]
    correlation: Option<i64>,
    #[serde(default, rename = "Input Dims", alias = "Input dims")]
    shapes: Option<Shapes>,
}

/// JSON form of a trace whose events are empty.
#[derive(Deserialize)]
#[serde(expecting = "an object with `traceEvents`, as PyTorch's profiler writes it")]
struct TraceDocument {
    #[serde(default, rename = "traceEvents")]
    list: Option<EventList>,
    #[serde(default, rename = "deviceProperties")]
    devices: FirstDevice,
}

/// List of empty events.
struct EventList;

impl<'de> Deserialize<'de> for EventList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = EventList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EventList, A::Error> {
                let mut count = 0;
                loop {
                    match list.next_element::<BTreeMap<String, IgnoredAny>>() {
                        Ok(Some(_)) => count += 1,
                        Ok(None) => return Ok(EventList),
                        Err(error) => {
                            return Err(A::Error::custom(format!("`traceEvents[{count}]`: {error}")));
                        }
                    }
                }
            }
        }
        deserializer.deserialize_seq(ListVisitor)
    }
}

/// Name of the first GPU of a list; `None` without GPUs.
#[derive(Default)]
struct FirstDevice(Option<String>);

/// JSON form of a GPU.
#[derive(Deserialize)]
struct DeviceDocument {
    #[serde(default)]
    name: Option<String>,
}

impl<'de> Deserialize<'de> for FirstDevice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DevicesVisitor;
        impl<'de> Visitor<'de> for DevicesVisitor {
            type Value = FirstDevice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of GPUs")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FirstDevice, A::Error> {
                let mut first = None;
                while let Some(device) = list.next_element::<DeviceDocument>()? {
                    first = first.or(device.name);
                }
                Ok(FirstDevice(first))
            }
        }
        deserializer.deserialize_seq(DevicesVisitor)
    }
}

impl EventsParser {
    /// Keeps an event if its kind is needed.
    ///
    /// # Errors
    /// A message if it has no time or an invalid one, or there are too many events.
    fn add(&mut self, document: EventDocument) -> Result<(), String> {
        let EventDocument { ph, cat, name, pid, tid, ts, dur, args } = document;
        let name = name.unwrap_or_default();
        let (true, Some(category)) = (ph.as_deref() == Some("X"), category(cat.as_deref(), &name)) else {
            return Ok(());
        };
        let (Some(start), Some(duration)) = (ts, dur) else {
            return Err("expected `ts` and `dur` of a complete event".into());
        };
        if !(start.abs() <= MAX_MICROS && (0.0..=MAX_MICROS).contains(&duration)) {
            return Err(format!("expected times in microseconds, found `ts` {start:e}, `dur` {duration:e}"));
        }
        if self.events.all.len() == MAX_EVENTS {
            return Err(format!(
                "more than {MAX_EVENTS} operators, modules and kernels: record fewer iterations"
            ));
        }
        let ArgumentsDocument { sequence, external, correlation, shapes } = args.unwrap_or_default();
        let unsigned = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let place = |place: Option<Place>| place.unwrap_or(Place::Unsigned(0));
        let next_thread = self.threads.len() as u32;
        let event = Event {
            category,
            name: self.name_index(name)?,
            thread: *self.threads.entry([place(pid), place(tid)]).or_insert(next_thread),
            start: nanoseconds(start),
            duration: nanoseconds(duration),
            sequence: unsigned(sequence),
            external: unsigned(external),
            correlation: unsigned(correlation),
            shapes: shapes.map(|Shapes(shapes)| self.shapes_index(shapes)).transpose()?,
        };
        self.events.all.push(event);
        Ok(())
    }

    fn name_index(&mut self, name: String) -> Result<u32, String> {
        if let Some(&index) = self.names.get(&name) {
            return Ok(index);
        }
        self.allocate(name.len())?;
        let index = self.events.names.len() as u32;
        self.events.names.push(name.clone());
        self.names.insert(name, index);
        Ok(index)
    }

    fn shapes_index(&mut self, shapes: Vec<Vec<u64>>) -> Result<u32, String> {
        if let Some(&index) = self.shapes.get(&shapes) {
            return Ok(index);
        }
        self.allocate(shapes.iter().map(|shape| 8 * shape.len() + 24).sum())?;
        let index = self.events.shapes.len() as u32;
        self.events.shapes.push(shapes.clone());
        self.shapes.insert(shapes, index);
        Ok(index)
    }

    /// Counts the bytes of a new name, or of new shapes.
    fn allocate(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes + 64;
        if self.bytes > MAX_NAMES {
            return Err("more than 64 MiB of different names and shapes: record fewer iterations".into());
        }
        Ok(())
    }
}

fn nanoseconds(micros: f64) -> i64 {
    (micros * 1e3).round() as i64
}

/// Returns the kind of an event; `None` if it is not kept.
fn category(category: Option<&str>, name: &str) -> Option<Category> {
    Some(match category? {
        "cpu_op" => Category::Operator,
        "python_function" if name.starts_with(MODULE) => Category::Module,
        "user_annotation" if name.starts_with(MARK) => Category::Mark,
        "user_annotation" => Category::Range,
        "cuda_runtime" | "cuda_driver" => Category::Launch,
        "kernel" | "gpu_memcpy" | "gpu_memset" => Category::Kernel,
        _ => return None,
    })
}
