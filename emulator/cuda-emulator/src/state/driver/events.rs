//! Events.

use super::Driver;
use crate::state::{
    Code, Fault, Handle, Outcome,
    events::{Event, Record},
    handles::Kind,
    only_zero,
    work::Work,
};

const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;

impl Driver {
    /// `cuEventCreate`.
    pub(crate) fn create_event(&mut self, flags: u32) -> Outcome<Handle> {
        if flags & !(BLOCKING_SYNC | DISABLE_TIMING) != 0 {
            return Err(Fault::value(format!("an event cannot have the flags {flags:#x} here")));
        }
        let context = self.current_context()?;
        let handle = self.handles.give(Kind::Event);
        let event = Event { context, timed: flags & DISABLE_TIMING == 0, last: Record::Never };
        self.events.insert(handle, event);
        Ok(handle)
    }

    /// `cuEventDestroy`. The event need not be complete.
    pub(crate) fn destroy_event(&mut self, handle: Handle) -> Outcome<()> {
        self.handles.check(Kind::Event, handle)?;
        self.handles.end(handle);
        match self.events.remove(&handle) {
            Some(event) => self.check_owner(event.context, handle),
            None => Ok(()),
        }
    }

    pub(super) fn event(&self, handle: Handle) -> Outcome<&Event> {
        self.handles.check(Kind::Event, handle)?;
        let event = self.events.get(&handle).ok_or_else(|| Fault::plain(Code::INVALID_HANDLE))?;
        self.check_owner(event.context, handle)?;
        Ok(event)
    }

    /// Refuses an event of another context than the stream's, if the settings say so.
    fn same_context(&self, handle: Handle, stream: Handle) -> Outcome<()> {
        let context = self.event(handle)?.context;
        let streams = self.streams.get(&stream).map_or(context, |stream| stream.context);
        if context == streams || self.settings.events_of_other_contexts != 0 {
            return Ok(());
        }
        // Not a misuse: a correct program may try whether the driver supports this.
        Err(Fault::plain(Code::INVALID_HANDLE))
    }

    /// `cuEventRecord`.
    pub(crate) fn record_event(&mut self, handle: Handle, stream: Handle) -> Outcome<()> {
        let stream = self.stream(stream)?;
        self.same_context(handle, stream)?;
        let last = if let Some(record) = self.captured_record(stream)? {
            Record::Captured(record)
        } else {
            let number = self.engine.new_record();
            self.enqueue(stream, Work::Record { event: handle, number });
            Record::Stream { number, passed: None }
        };
        if let Some(event) = self.events.get_mut(&handle) {
            event.last = last;
        }
        self.settle();
        Ok(())
    }

    /// `cuStreamWaitEvent`.
    pub(crate) fn wait_event(&mut self, stream: Handle, handle: Handle, flags: u32) -> Outcome<()> {
        only_zero(flags, "Flags")?;
        let stream = self.stream(stream)?;
        match self.event(handle)?.last {
            Record::Captured(ref record) => {
                let record = record.clone();
                self.join_capture(stream, handle, &record)
            }
            _ if self.refuse_invalid_capture(stream)? => self.isolated(stream, handle),
            Record::Never => {
                self.warn(format!(
                    "cuStreamWaitEvent: {} was never recorded: nothing is waited for",
                    self.handles.name(handle)
                ));
                Ok(())
            }
            Record::Stream { number, .. } => {
                self.engine.waits += 1;
                let dropped = self.engine.waits == self.settings.drop_wait as u64;
                let work = if dropped { Work::DroppedWait { number } } else { Work::Wait { number } };
                self.enqueue(stream, work);
                self.settle();
                Ok(())
            }
        }
    }

    /// `cuEventQuery`.
    pub(crate) fn query_event(&mut self, handle: Handle) -> Outcome<()> {
        match self.awaited("cuEventQuery", handle)? {
            Some(number) => {
                let device = self.device_of_event(handle);
                self.query(device, |driver| driver.engine.has_passed(number))?;
                self.host_knows_record(number, device);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn device_of_event(&self, handle: Handle) -> i32 {
        self.events.get(&handle).map_or(0, |event| self.device_of_context(event.context))
    }

    /// `cuEventSynchronize`.
    pub(crate) fn synchronise_event(&mut self, handle: Handle) -> Outcome<()> {
        match self.awaited("cuEventSynchronize", handle)? {
            Some(number) => {
                let device = self.device_of_event(handle);
                self.run_until(device, |driver| driver.engine.has_passed(number))?;
                self.host_knows_record(number, device);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the number of the record to wait for or query, or `None` for an event that was never
    /// recorded.
    fn awaited(&mut self, call: &str, handle: Handle) -> Outcome<Option<u64>> {
        match self.event(handle)?.last {
            Record::Captured(ref record) => {
                let capture = record.capture;
                self.captures.invalidate(capture);
                let text = format!("{} was last recorded in a capture", self.handles.name(handle));
                Err(Fault::misuse(Code::CAPTURED_EVENT, text))
            }
            Record::Never => {
                self.warn(format!("{call}: {} was never recorded", self.handles.name(handle)));
                Ok(None)
            }
            Record::Stream { number, .. } => {
                self.unsafe_while_capturing("asks for an event")?;
                Ok(Some(number))
            }
        }
    }

    /// `cuEventElapsedTime`. Returns nanoseconds.
    pub(crate) fn elapsed(&mut self, start: Handle, end: Handle) -> Outcome<f64> {
        self.settle();
        let times = [self.passed(start)?, self.passed(end)?];
        for handle in [start, end] {
            if let Some(Record::Stream { number, .. }) = self.events.get(&handle).map(|event| &event.last) {
                let (number, device) = (*number, self.device_of_event(handle));
                self.host_knows_record(number, device);
            }
        }
        Ok(times[1] as f64 - times[0] as f64)
    }

    fn passed(&self, handle: Handle) -> Outcome<u64> {
        let event = self.event(handle)?;
        let wrong =
            |text| Fault::misuse(Code::INVALID_HANDLE, format!("{} {text}", self.handles.name(handle)));
        if !event.timed {
            return Err(wrong("was created without timing"));
        }
        match event.last {
            Record::Never => Err(wrong("was never recorded")),
            Record::Captured(_) => Err(wrong("was last recorded in a capture")),
            Record::Stream { passed, .. } => passed.ok_or_else(|| Fault::plain(Code::NOT_READY)),
        }
    }
}
