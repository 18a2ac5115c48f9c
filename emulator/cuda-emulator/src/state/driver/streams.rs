//! Streams: creation, destruction and waits. A stream is idle if its queue is empty.

use super::Driver;
use crate::state::{CallError, CallResult, Code, Handle, handles::HandleKind, streams::Stream};
use std::collections::VecDeque;

const NON_BLOCKING: u32 = 1;

/// Handles of the default streams: null, legacy and per thread. They denote the same stream here.
const DEFAULT_STREAMS: [Handle; 3] = [0, 1, 2];

impl Driver {
    /// Implements `cuStreamCreateWithPriority`: creates a stream in the current context. The
    /// priority is clamped to the supported range, and flags other than `CU_STREAM_NON_BLOCKING`
    /// are refused.
    pub(crate) fn create_stream(&mut self, flags: u32, priority: i32) -> CallResult<Handle> {
        if flags & !NON_BLOCKING != 0 {
            return Err(CallError::value(format!("a stream cannot have the flags {flags:#x}")));
        }
        let context = self.current_context()?;
        Ok(self.add_stream(context, flags & NON_BLOCKING != 0, priority))
    }

    /// Creates a stream in a context and returns its handle. The priority is clamped to the
    /// supported range. A `non_blocking` stream is not ordered with the default stream.
    pub(super) fn add_stream(&mut self, context: Handle, non_blocking: bool, priority: i32) -> Handle {
        let handle = self.handles.create(HandleKind::Stream);
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

    /// Returns the priority clamped to the supported range, whose lowest priority is 0.
    pub(super) fn clamped_priority(&self, priority: i32) -> i32 {
        priority.clamp(self.settings.greatest_priority as i32, 0)
    }

    /// Returns the handle of the stream that an argument denotes: that of the default stream of the
    /// current context for null and the other handles of default streams, and otherwise the
    /// argument itself. A destroyed or unknown handle is an error.
    pub(super) fn stream(&mut self, handle: Handle) -> CallResult<Handle> {
        if DEFAULT_STREAMS.contains(&handle) {
            let context = self.current_context()?;
            self.refuse_legacy_stream_in_capture()?;
            if let Some(stream) = self.simulation.default_streams.get(&context) {
                return Ok(*stream);
            }
            let stream = self.add_stream(context, false, 0);
            self.simulation.default_streams.insert(context, stream);
            return Ok(stream);
        }
        self.handles.check(HandleKind::Stream, handle)?;
        if let Some(stream) = self.streams.get(&handle) {
            self.check_owner(stream.context, handle)?;
        }
        Ok(handle)
    }

    /// Implements `cuStreamGetPriority`: returns the priority of a stream.
    pub(crate) fn stream_priority(&mut self, handle: Handle) -> CallResult<i32> {
        let handle = self.stream(handle)?;
        Ok(self.streams.get(&handle).map_or(0, |stream| stream.priority))
    }

    /// Implements `cuStreamDestroy`. The handle is invalid at once. The work of the stream still
    /// completes.
    pub(crate) fn destroy_stream(&mut self, handle: Handle) -> CallResult<()> {
        if DEFAULT_STREAMS.contains(&handle) {
            return Err(CallError::misuse(Code::INVALID_HANDLE, "a default stream cannot be destroyed"));
        }
        self.handles.check(HandleKind::Stream, handle)?;
        self.handles.destroy(handle);
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        stream.destroyed = true;
        let (context, membership) = (stream.context, stream.capture.take());
        self.remove_finished_streams();
        if let Some(membership) = membership {
            self.abandon_capture(handle, membership.capture);
            let text = format!("{} is destroyed while it is capturing", self.handles.name(handle));
            return Err(CallError::misuse(Code::CAPTURE_UNSUPPORTED, text));
        }
        self.check_owner(context, handle)
    }

    /// Implements `cuStreamQuery`: advances the clock by the duration of a query. The error is
    /// `NOT_READY` if the stream is not idle.
    pub(crate) fn query_stream(&mut self, handle: Handle) -> CallResult<()> {
        let handle = self.stream(handle)?;
        self.refuse_wait_if_capturing(handle)?;
        self.query(self.device_of_stream(handle), |driver| driver.is_idle(handle))?;
        self.host_synchronised_stream(handle);
        Ok(())
    }

    /// Implements `cuStreamSynchronize`: advances the clock until a stream is idle.
    pub(crate) fn synchronise_stream(&mut self, handle: Handle) -> CallResult<()> {
        let handle = self.stream(handle)?;
        self.refuse_wait_if_capturing(handle)?;
        self.drain_stream(handle)
    }

    /// Implements `cuCtxSynchronize`: advances the clock until all streams of the current device
    /// are idle.
    pub(crate) fn synchronise_context(&mut self) -> CallResult<()> {
        self.refuse_unsafe_call("synchronises the context")?;
        let device = self.current_device()?;
        self.drain(device)
    }

    /// Advances the clock until all streams of a device are idle.
    pub(super) fn drain(&mut self, device: i32) -> CallResult<()> {
        let has_work = |stream: &Stream| stream.device == device && !stream.queue.is_empty();
        self.wait_on_device(device, |driver| !driver.streams.values().any(has_work))?;
        self.host_synchronised_device(device);
        Ok(())
    }

    /// Advances the clock until a stream is idle.
    pub(super) fn drain_stream(&mut self, handle: Handle) -> CallResult<()> {
        let device = self.device_of_stream(handle);
        self.wait_on_device(device, |driver| driver.is_idle(handle))?;
        self.host_synchronised_stream(handle);
        Ok(())
    }

    /// Returns the device of a stream, or 0 if the stream has been removed.
    pub(super) fn device_of_stream(&self, handle: Handle) -> i32 {
        self.streams.get(&handle).map_or(0, |stream| stream.device)
    }

    fn is_idle(&self, handle: Handle) -> bool {
        self.streams.get(&handle).is_none_or(|stream| stream.queue.is_empty())
    }

    /// Returns the streams that the caller has to destroy: all but default streams and those
    /// already destroyed.
    pub(super) fn user_streams(&self) -> impl Iterator<Item = Handle> {
        let mine = |handle: &Handle| self.simulation.default_streams.values().any(|stream| stream == handle);
        let alive = self.streams.iter().filter(|(_, stream)| !stream.destroyed);
        alive.map(|(handle, _)| *handle).filter(move |handle| !mine(handle))
    }

    /// Removes destroyed streams whose work has completed.
    pub(super) fn remove_finished_streams(&mut self) {
        let is_over = |stream: &Stream| stream.destroyed && stream.queue.is_empty();
        let over: Vec<_> =
            self.streams.iter().filter(|(_, stream)| is_over(stream)).map(|(handle, _)| *handle).collect();
        for handle in over {
            self.remove_stream(handle);
        }
    }

    /// Removes a stream, without checks, and notifies the order check.
    pub(super) fn remove_stream(&mut self, handle: Handle) {
        if let Some(stream) = self.streams.remove(&handle) {
            self.note_stream_end(handle, &stream);
        }
    }
}
