//! The handles given out so far. None is given out twice, so that a late use of one is noticed.

use super::{Code, Fault, Outcome};
use std::{collections::HashMap, fmt};

/// What the caller holds: an opaque pointer.
pub(crate) type Handle = usize;

/// What a handle stands for.
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
    /// Counts the handles of its kind, from 1.
    number: usize,
    alive: bool,
}

/// Every handle since the last reset.
#[derive(Default)]
pub(crate) struct Handles {
    entries: HashMap<Handle, Entry>,
    counts: HashMap<u8, usize>,
}

/// Far from zero, from each other and from any memory of the process.
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

    /// Refuses a handle that is not one of a living `kind`.
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

    /// Such as `stream 3`.
    pub(crate) fn name(&self, handle: Handle) -> String {
        match self.entries.get(&handle) {
            Some(entry) => format!("{} {}", entry.kind, entry.number),
            None => format!("handle {handle:#x}"),
        }
    }
}
