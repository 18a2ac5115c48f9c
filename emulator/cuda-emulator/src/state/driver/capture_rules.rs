//! What is forbidden during a capture. A call that breaks a rule invalidates the capture that it is about.

use super::Driver;
use crate::state::{
    Code, Fault, Handle, Outcome,
    capture::{Capture, GLOBAL, RELAXED},
};
use std::{cell::Cell, thread};

thread_local! {
    /// The driver's generation and what `cuThreadExchangeStreamCaptureMode` has set; global where it has not.
    static MODE: Cell<(u64, u32)> = const { Cell::new((0, GLOBAL)) };
}

impl Driver {
    /// How this thread takes captures of others.
    fn capture_mode(&self) -> u32 {
        let (generation, mode) = MODE.get();
        if generation == self.generation { mode } else { GLOBAL }
    }

    /// `cuThreadExchangeStreamCaptureMode`: what was in force.
    pub(crate) fn exchange_capture_mode(&self, mode: u32) -> Outcome<u32> {
        if mode > RELAXED {
            return Err(Fault::value(format!("there is no capture mode {mode}")));
        }
        let before = self.capture_mode();
        MODE.set((self.generation, mode));
        Ok(before)
    }

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
        let mode = self.capture_mode();
        let forbids = |capture: &Capture| {
            !capture.invalid
                && capture.mode != RELAXED
                && mode != RELAXED
                && (capture.thread == here || capture.mode == GLOBAL && mode == GLOBAL)
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
