//! Streams: creation, destruction and waits.

use super::Driver;
use crate::state::{Code, Fault, Handle, Outcome, handles::Kind, streams::Stream};
use std::collections::VecDeque;

const NON_BLOCKING: u32 = 1;

/// Handles of the default streams: null, legacy and per thread. They denote the same stream here.
const DEFAULT_STREAMS: [Handle; 3] = [0, 1, 2];

impl Driver {
    /// `cuStreamCreateWithPriority`. The priority is clamped to the range of the device.
    pub(crate) fn create_stream(&mut self, flags: u32, priority: i32) -> Outcome<Handle> {
        if flags & !NON_BLOCKING != 0 {
            return Err(Fault::value(format!("a stream cannot have the flags {flags:#x}")));
        }
        let context = self.current_context()?;
        Ok(self.add_stream(context, flags & NON_BLOCKING != 0, priority))
    }

    pub(super) fn add_stream(&mut self, context: Handle, non_blocking: bool, priority: i32) -> Handle {
        let handle = self.handles.give(Kind::Stream);
        let stream = Stream {
            context,
            device: self.device_of_context(context),
            priority: self.clamped_priority(priority),
            non_blocking,
            destroyed: false,
            queue: VecDeque::new(),
            graph: None,
            capture: None,
        };
        self.streams.insert(handle, stream);
        handle
    }

    pub(super) fn clamped_priority(&self, priority: i32) -> i32 {
        priority.clamp(self.settings.greatest_priority as i32, 0)
    }

    /// Resolves a stream argument. Default streams are created at their first use.
    pub(super) fn stream(&mut self, handle: Handle) -> Outcome<Handle> {
        if DEFAULT_STREAMS.contains(&handle) {
            let context = self.current_context()?;
            self.legacy_stream_use()?;
            if let Some(stream) = self.engine.default_streams.get(&context) {
                return Ok(*stream);
            }
            let stream = self.add_stream(context, false, 0);
            self.engine.default_streams.insert(context, stream);
            return Ok(stream);
        }
        self.handles.check(Kind::Stream, handle)?;
        if let Some(stream) = self.streams.get(&handle) {
            self.check_owner(stream.context, handle)?;
        }
        Ok(handle)
    }

    /// `cuStreamGetPriority`.
    pub(crate) fn stream_priority(&mut self, handle: Handle) -> Outcome<i32> {
        let handle = self.stream(handle)?;
        Ok(self.streams.get(&handle).map_or(0, |stream| stream.priority))
    }

    /// `cuStreamDestroy`. The handle is invalid at once. The work of the stream still completes.
    pub(crate) fn destroy_stream(&mut self, handle: Handle) -> Outcome<()> {
        if DEFAULT_STREAMS.contains(&handle) {
            return Err(Fault::misuse(Code::INVALID_HANDLE, "a default stream cannot be destroyed"));
        }
        self.handles.check(Kind::Stream, handle)?;
        self.handles.end(handle);
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        stream.destroyed = true;
        let (context, membership) = (stream.context, stream.capture.take());
        self.bury_streams();
        if let Some(membership) = membership {
            self.lose_capturing_stream(handle, membership.capture);
            let text = format!("{} is destroyed while it captures", self.handles.name(handle));
            return Err(Fault::misuse(Code::CAPTURE_UNSUPPORTED, text));
        }
        self.check_owner(context, handle)
    }

    /// `cuStreamQuery`.
    pub(crate) fn query_stream(&mut self, handle: Handle) -> Outcome<()> {
        let handle = self.stream(handle)?;
        self.no_wait_while_capturing(handle)?;
        self.query(self.device_of_stream(handle), |driver| driver.is_drained(handle))?;
        self.host_knows_stream(handle);
        Ok(())
    }

    /// `cuStreamSynchronize`.
    pub(crate) fn synchronise_stream(&mut self, handle: Handle) -> Outcome<()> {
        let handle = self.stream(handle)?;
        self.no_wait_while_capturing(handle)?;
        self.drain_stream(handle)
    }

    /// `cuCtxSynchronize`.
    pub(crate) fn synchronise_context(&mut self) -> Outcome<()> {
        self.unsafe_while_capturing("synchronises the context")?;
        let device = self.current_device()?;
        self.drain(device)
    }

    /// Advances the clock until the streams of a device are idle.
    pub(super) fn drain(&mut self, device: i32) -> Outcome<()> {
        let has_work = |stream: &Stream| stream.device == device && !stream.queue.is_empty();
        self.run_until(device, |driver| !driver.streams.values().any(has_work))?;
        self.host_knows_device(device);
        Ok(())
    }

    /// Advances the clock until a stream is idle.
    pub(super) fn drain_stream(&mut self, handle: Handle) -> Outcome<()> {
        let device = self.device_of_stream(handle);
        self.run_until(device, |driver| driver.is_drained(handle))?;
        self.host_knows_stream(handle);
        Ok(())
    }

    pub(super) fn device_of_stream(&self, handle: Handle) -> i32 {
        self.streams.get(&handle).map_or(0, |stream| stream.device)
    }

    fn is_drained(&self, handle: Handle) -> bool {
        self.streams.get(&handle).is_none_or(|stream| stream.queue.is_empty())
    }

    /// Returns the streams that the caller has to destroy.
    pub(super) fn callers_streams(&self) -> impl Iterator<Item = Handle> {
        let mine = |handle: &Handle| self.engine.default_streams.values().any(|stream| stream == handle);
        let alive = self.streams.iter().filter(|(_, stream)| !stream.destroyed);
        alive.map(|(handle, _)| *handle).filter(move |handle| !mine(handle))
    }

    /// Removes destroyed streams whose work has completed.
    pub(super) fn bury_streams(&mut self) {
        let is_over = |stream: &Stream| stream.destroyed && stream.queue.is_empty();
        let over: Vec<_> =
            self.streams.iter().filter(|(_, stream)| is_over(stream)).map(|(handle, _)| *handle).collect();
        for handle in over {
            self.remove_stream(handle);
        }
    }

    pub(super) fn remove_stream(&mut self, handle: Handle) {
        if let Some(stream) = self.streams.remove(&handle) {
            self.note_stream_end(handle, &stream);
        }
    }
}
