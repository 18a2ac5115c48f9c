//! Handles of all objects. They are never reused, so that use after destruction is detected.

use super::{Code, Fault, Outcome};
use std::{collections::HashMap, fmt};

/// An opaque pointer that stands for an object.
pub(crate) type Handle = usize;

/// Kind of object that a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Context,
    Stream,
    Event,
    Graph,
    Node,
    Exec,
    Module,
    Function,
    GreenContext,
    ResourceDescription,
    Comm,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Context => "context",
            Kind::Stream => "stream",
            Kind::Event => "event",
            Kind::Graph => "graph",
            Kind::Node => "graph node",
            Kind::Exec => "executable graph",
            Kind::Module => "module",
            Kind::Function => "function",
            Kind::GreenContext => "green context",
            Kind::ResourceDescription => "resource description",
            Kind::Comm => "NCCL handle",
        })
    }
}

struct Entry {
    kind: Kind,
    /// Number of the handle among those of its kind, from 1.
    number: usize,
    alive: bool,
}

/// All handles since the last reset.
#[derive(Default)]
pub(crate) struct Handles {
    entries: HashMap<Handle, Entry>,
    counts: HashMap<u8, usize>,
}

/// The first handle and the distance of handles, chosen far from the memory of the process.
const FIRST: Handle = 0x0faf_0000_0000_0000;
const STEP: Handle = 0x40;

impl Handles {
    pub(crate) fn give(&mut self, kind: Kind) -> Handle {
        let handle = FIRST + STEP * (self.entries.len() + 1);
        let number = self.counts.entry(kind as u8).or_insert(0);
        *number += 1;
        self.entries.insert(handle, Entry { kind, number: *number, alive: true });
        handle
    }

    /// Checks that a handle is a live one of the given kind.
    pub(crate) fn check(&self, kind: Kind, handle: Handle) -> Outcome<()> {
        if handle == 0 {
            let code = match kind {
                Kind::Graph | Kind::Node | Kind::Exec => Code::INVALID_VALUE,
                _ => Code::INVALID_HANDLE,
            };
            return Err(Fault::misuse(code, format!("null instead of a handle of kind {kind}")));
        }
        let wrong = |text| Err(Fault::misuse(Code::INVALID_HANDLE, text));
        match self.entries.get(&handle) {
            None => {
                wrong(format!("{handle:#x}, which was never given out, instead of a handle of kind {kind}"))
            }
            Some(entry) if entry.kind != kind => {
                wrong(format!("{} instead of a handle of kind {kind}", self.name(handle)))
            }
            Some(entry) if !entry.alive => wrong(format!("{} after it was destroyed", self.name(handle))),
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn end(&mut self, handle: Handle) {
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.alive = false;
        }
    }

    /// Returns a name such as `stream 3`.
    pub(crate) fn name(&self, handle: Handle) -> String {
        match self.entries.get(&handle) {
            Some(entry) => format!("{} {}", entry.kind, entry.number),
            None => format!("handle {handle:#x}"),
        }
    }
}
