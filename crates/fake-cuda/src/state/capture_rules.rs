//! What is forbidden during a capture. A call that breaks a rule invalidates the capture that it is about.

use super::{
    Code, Driver, Fault, Handle, Outcome,
    capture::{Capture, GLOBAL, RELAXED},
};
use std::thread;

impl Driver {
    /// A capturing stream waits for work outside its capture.
    pub(super) fn isolated(&mut self, stream: Handle, event: Handle) -> Outcome<()> {
        let text = format!(
            "{} was recorded outside the capture of {}",
            self.handles.name(event),
            self.handles.name(stream)
        );
        self.break_capture(stream, Code::CAPTURE_ISOLATION, text)
    }

    /// Refuses something that a capturing stream cannot do.
    pub(super) fn not_captured(&mut self, stream: Handle, what: &str) -> Outcome<()> {
        if !self.refuse_invalid_capture(stream)? {
            return Ok(());
        }
        let text = format!("{what} in {}, which captures", self.handles.name(stream));
        self.break_capture(stream, Code::CAPTURE_UNSUPPORTED, text)
    }

    fn break_capture(&mut self, stream: Handle, code: Code, text: String) -> Outcome<()> {
        let id = self.membership(stream).map(|membership| membership.capture);
        if let Some(id) = id {
            self.captures.invalidate(id);
        }
        Err(Fault::misuse(code, text))
    }

    /// Refuses to wait for, or to ask about, a stream that captures.
    pub(super) fn no_wait_while_capturing(&mut self, stream: Handle) -> Outcome<()> {
        self.not_captured(stream, "the host waits or asks")?;
        self.unsafe_while_capturing("waits for, or asks about, a stream")
    }

    /// Refuses what no thread may do during a global capture, nor a thread during its own unless that is relaxed.
    pub(super) fn unsafe_while_capturing(&mut self, what: &str) -> Outcome<()> {
        let here = thread::current().id();
        let forbids = |capture: &Capture| {
            !capture.invalid && capture.mode != RELAXED && (capture.mode == GLOBAL || capture.thread == here)
        };
        let Some((&id, capture)) = self.captures.alive.iter().find(|(_, capture)| forbids(capture)) else {
            return Ok(());
        };
        let text = format!(
            "{what} during the capture of {}, which is not relaxed",
            self.handles.name(capture.origin)
        );
        self.captures.invalidate(id);
        Err(Fault::misuse(Code::CAPTURE_UNSUPPORTED, text))
    }

    /// Refuses the legacy default stream while a stream captures that waits for it.
    pub(super) fn legacy_stream_use(&mut self) -> Outcome<()> {
        let blocking = |member: &Handle| self.streams.get(member).is_some_and(|stream| !stream.non_blocking);
        let captures = self.captures.alive.iter().filter(|(_, capture)| !capture.invalid);
        let Some((id, origin)) =
            captures.map(|(id, capture)| (*id, capture.origin)).find(|(_, origin)| blocking(origin))
        else {
            return Ok(());
        };
        self.captures.invalidate(id);
        let text = format!(
            "the default stream during the capture of {}, which waits for it",
            self.handles.name(origin)
        );
        Err(Fault::misuse(Code::CAPTURE_IMPLICIT, text))
    }
}
