//! Events.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    events::{Event, Record},
    handles::HandleKind,
    only_zero,
    work::StreamWork,
};

const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;

impl Driver {
    /// Implements `cuEventCreate`: creates an event in the current context. Flags other than those
    /// for blocking waits and without timing are refused.
    pub(crate) fn create_event(&mut self, flags: u32) -> CallResult<Handle> {
        if flags & !(BLOCKING_SYNC | DISABLE_TIMING) != 0 {
            return Err(CallError::value(format!("an event cannot have the flags {flags:#x}")));
        }
        let context = self.current_context()?;
        let handle = self.handles.create(HandleKind::Event);
        let event = Event { context, timed: flags & DISABLE_TIMING == 0, last: Record::Never };
        self.events.insert(handle, event);
        Ok(handle)
    }

    /// Implements `cuEventDestroy`. The event need not be complete.
    pub(crate) fn destroy_event(&mut self, handle: Handle) -> CallResult<()> {
        self.handles.check(HandleKind::Event, handle)?;
        self.handles.destroy(handle);
        match self.events.remove(&handle) {
            Some(event) => self.check_owner(event.context, handle),
            None => Ok(()),
        }
    }

    /// Returns the event with a handle. It is an error if the handle is null, unknown or destroyed,
    /// or if the context of the event is destroyed.
    pub(super) fn event(&self, handle: Handle) -> CallResult<&Event> {
        self.handles.check(HandleKind::Event, handle)?;
        let event = self.events.get(&handle).ok_or_else(|| CallError::plain(Code::INVALID_HANDLE))?;
        self.check_owner(event.context, handle)?;
        Ok(event)
    }

    /// Refuses an event of another context than the stream's, if the settings say so.
    fn check_same_context(&self, handle: Handle, stream: Handle) -> CallResult<()> {
        let context = self.event(handle)?.context;
        let streams = self.streams.get(&stream).map_or(context, |stream| stream.context);
        if context == streams || self.settings.cross_context_events != 0 {
            return Ok(());
        }
        // Not a misuse: a correct program may try whether the driver supports this.
        Err(CallError::plain(Code::INVALID_HANDLE))
    }

    /// Implements `cuEventRecord`: enqueues a record of an event in a stream. In a capture, the
    /// record stands for the last nodes of the stream.
    pub(crate) fn record_event(&mut self, handle: Handle, stream: Handle) -> CallResult<()> {
        let stream = self.stream(stream)?;
        self.check_same_context(handle, stream)?;
        let last = if let Some(record) = self.captured_record(stream)? {
            Record::Captured(record)
        } else {
            let number = self.simulation.new_record();
            self.enqueue(stream, StreamWork::Record { event: handle, number });
            Record::Stream { number, completed: None }
        };
        if let Some(event) = self.events.get_mut(&handle) {
            event.last = last;
        }
        self.execute_ready_work();
        Ok(())
    }

    /// Implements `cuStreamWaitEvent`: enqueues a wait for the last record of an event. A record in
    /// a capture adds the stream to the capture. The flags must be 0.
    pub(crate) fn wait_event(&mut self, stream: Handle, handle: Handle, flags: u32) -> CallResult<()> {
        only_zero(flags, "Flags")?;
        let stream = self.stream(stream)?;
        match self.event(handle)?.last {
            Record::Captured(ref record) => {
                let record = record.clone();
                self.join_capture(stream, handle, &record)
            }
            _ if self.is_capturing(stream)? => self.refuse_isolation_breach(stream, handle),
            Record::Never => {
                self.warn(format!(
                    "cuStreamWaitEvent: {} was never recorded: nothing is waited for",
                    self.handles.name(handle)
                ));
                Ok(())
            }
            Record::Stream { number, .. } => {
                self.simulation.waits += 1;
                let dropped = self.simulation.waits == self.settings.drop_wait as u64;
                let work =
                    if dropped { StreamWork::DroppedWait { number } } else { StreamWork::Wait { number } };
                self.enqueue(stream, work);
                self.execute_ready_work();
                Ok(())
            }
        }
    }

    /// Implements `cuEventQuery`: advances the clock by the duration of a query. The error is
    /// `NOT_READY` if the last record of the event is not complete.
    pub(crate) fn query_event(&mut self, handle: Handle) -> CallResult<()> {
        match self.record_to_wait_for("cuEventQuery", handle)? {
            Some(number) => {
                let device = self.device_of_event(handle);
                self.query(device, |driver| driver.simulation.is_record_complete(number))?;
                self.host_synchronised_record(number, device);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn device_of_event(&self, handle: Handle) -> i32 {
        self.events.get(&handle).map_or(0, |event| self.device_of_context(event.context))
    }

    /// Implements `cuEventSynchronize`: advances the clock until the last record of an event is
    /// complete.
    pub(crate) fn synchronise_event(&mut self, handle: Handle) -> CallResult<()> {
        match self.record_to_wait_for("cuEventSynchronize", handle)? {
            Some(number) => {
                let device = self.device_of_event(handle);
                self.wait_on_device(device, |driver| driver.simulation.is_record_complete(number))?;
                self.host_synchronised_record(number, device);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the number of the record to wait for or query, or `None` for an event that was never
    /// recorded.
    fn record_to_wait_for(&mut self, call: &str, handle: Handle) -> CallResult<Option<u64>> {
        match self.event(handle)?.last {
            Record::Captured(ref record) => {
                let capture = record.capture;
                self.captures.invalidate(capture);
                let text = format!("{} was last recorded in a capture", self.handles.name(handle));
                Err(CallError::misuse(Code::CAPTURED_EVENT, text))
            }
            Record::Never => {
                self.warn(format!("{call}: {} was never recorded", self.handles.name(handle)));
                Ok(None)
            }
            Record::Stream { number, .. } => {
                self.refuse_unsafe_call("queries an event")?;
                Ok(Some(number))
            }
        }
    }

    /// Implements `cuEventElapsedTime`: returns the virtual time between the last records of two
    /// events, in ns. The error is `NOT_READY` if one is not complete.
    pub(crate) fn elapsed(&mut self, start: Handle, end: Handle) -> CallResult<f64> {
        self.execute_ready_work();
        let times = [self.completion_time(start)?, self.completion_time(end)?];
        for handle in [start, end] {
            if let Some(Record::Stream { number, .. }) = self.events.get(&handle).map(|event| &event.last) {
                let (number, device) = (*number, self.device_of_event(handle));
                self.host_synchronised_record(number, device);
            }
        }
        Ok(times[1] as f64 - times[0] as f64)
    }

    fn completion_time(&self, handle: Handle) -> CallResult<u64> {
        let event = self.event(handle)?;
        let wrong =
            |text| CallError::misuse(Code::INVALID_HANDLE, format!("{} {text}", self.handles.name(handle)));
        if !event.timed {
            return Err(wrong("was created without timing"));
        }
        match event.last {
            Record::Never => Err(wrong("was never recorded")),
            Record::Captured(_) => Err(wrong("was last recorded in a capture")),
            Record::Stream { completed, .. } => completed.ok_or_else(|| CallError::plain(Code::NOT_READY)),
        }
    }
}
