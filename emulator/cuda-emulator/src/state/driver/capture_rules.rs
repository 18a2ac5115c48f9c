//! Operations that are forbidden during a capture. A call that breaks a rule returns an error and
//! invalidates the capture, so that its end returns an error too.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    capture::{Capture, GLOBAL, RELAXED},
};
use std::{cell::Cell, thread};

thread_local! {
    /// The driver's generation and the mode set by `cuThreadExchangeStreamCaptureMode`. Global by
    /// default.
    static MODE: Cell<(u64, u32)> = const { Cell::new((0, GLOBAL)) };
}

impl Driver {
    /// Returns the capture mode of the calling thread.
    fn capture_mode(&self) -> u32 {
        let (generation, mode) = MODE.get();
        if generation == self.generation { mode } else { GLOBAL }
    }

    /// Implements `cuThreadExchangeStreamCaptureMode`: sets the capture mode of the calling thread
    /// and returns the previous one. There are the modes 0 to 2.
    pub(crate) fn exchange_capture_mode(&self, mode: u32) -> CallResult<u32> {
        if mode > RELAXED {
            return Err(CallError::value(format!("there is no capture mode {mode}")));
        }
        let before = self.capture_mode();
        MODE.set((self.generation, mode));
        Ok(before)
    }

    /// Returns the error for a capturing stream that waits for an event recorded outside its
    /// capture, and invalidates the capture.
    pub(super) fn refuse_isolation_breach(&mut self, stream: Handle, event: Handle) -> CallResult<()> {
        let text = format!(
            "{} was recorded outside the capture of {}",
            self.handles.name(event),
            self.handles.name(stream)
        );
        self.break_capture(stream, Code::CAPTURE_ISOLATION, text)
    }

    /// Checks that a stream is not capturing. `what` names the operation in the error.
    pub(super) fn refuse_if_capturing(&mut self, stream: Handle, what: &str) -> CallResult<()> {
        if !self.is_capturing(stream)? {
            return Ok(());
        }
        let text = format!("{what} in {}, which is capturing", self.handles.name(stream));
        self.break_capture(stream, Code::CAPTURE_UNSUPPORTED, text)
    }

    fn break_capture(&mut self, stream: Handle, code: Code, text: String) -> CallResult<()> {
        let id = self.membership(stream).map(|membership| membership.capture);
        if let Some(id) = id {
            self.captures.invalidate(id);
        }
        Err(CallError::misuse(code, text))
    }

    /// Checks that the host may wait for a stream or query it: it is not capturing, and no capture
    /// forbids unsafe calls.
    pub(super) fn refuse_wait_if_capturing(&mut self, stream: Handle) -> CallResult<()> {
        self.refuse_if_capturing(stream, "the host waits or queries")?;
        self.refuse_unsafe_call("waits for or queries a stream")
    }

    /// Checks that no capture forbids an operation that is unsafe during a capture. `what` names
    /// the operation in the error. A capture that is not relaxed forbids it on the thread that
    /// began the capture, unless the mode of that thread is relaxed. A global capture also forbids
    /// it on all other threads whose mode is global.
    pub(super) fn refuse_unsafe_call(&mut self, what: &str) -> CallResult<()> {
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
        Err(CallError::misuse(Code::CAPTURE_UNSUPPORTED, text))
    }

    /// Checks that no stream of the current context captures, before a library creates a handle,
    /// which allocates memory. `what` names the operation in the error.
    pub(crate) fn refuse_library_handle_in_capture(&mut self, what: &str) -> CallResult<()> {
        let context = self.current_context()?;
        self.refuse_unsafe_call(what)?;
        let is_here = |capture: &&Capture| {
            self.streams.get(&capture.origin).is_some_and(|stream| stream.context == context)
        };
        let Some(capture) = self.captures.alive.values().find(is_here) else { return Ok(()) };
        let text = format!("{what} during the capture of {}", self.handles.name(capture.origin));
        Err(CallError::misuse(Code::CAPTURE_UNSUPPORTED, text))
    }

    /// Checks that no capture that began in a blocking stream is in progress, during which the
    /// default stream may not be used.
    pub(super) fn refuse_legacy_stream_in_capture(&mut self) -> CallResult<()> {
        let blocking = |member: &Handle| self.streams.get(member).is_some_and(|stream| !stream.non_blocking);
        let captures = self.captures.alive.iter().filter(|(_, capture)| !capture.invalid);
        let Some((id, origin)) =
            captures.map(|(id, capture)| (*id, capture.origin)).find(|(_, origin)| blocking(origin))
        else {
            return Ok(());
        };
        self.captures.invalidate(id);
        let text = format!(
            "the default stream is used during the capture of {}, which is a blocking stream",
            self.handles.name(origin)
        );
        Err(CallError::misuse(Code::CAPTURE_IMPLICIT, text))
    }
}
