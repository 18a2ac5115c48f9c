//! A discrete-event model of a GPU.

mod bandwidth;
mod engine;
mod kernel;
mod occupancy;
mod parameters;
#[cfg(feature = "json")]
mod parameters_file;
mod sharing;
mod stream;
#[cfg(test)]
mod tests;
mod work;

use std::time::Duration;

pub use kernel::Kernel;
pub use occupancy::{ForegroundState, Occupancy};
pub use parameters::{DeviceParameter, DeviceParameters};
#[cfg(feature = "json")]
pub use parameters_file::ParametersFile;
pub use work::{Awaits, Exchange, Partners, VirtualWork};

use crate::{Device, Error, Finished, Tasklet, TaskletId};
use engine::Engine;
use stream::{Launch, nanos};

/// A model of a GPU and the thread that launches on it, in virtual time: a [`Device`] for tests and simulators.
///
/// **What is modelled**, by the figures of [`DeviceParameters`]:
/// - Each lane of each job is a stream: its kernels run in launch order, one after another, with a gap between them.
///   A tasklet waits for the one that it is [`after`](Tasklet::after), on whatever stream that is.
/// - Launching takes time of the host, launch after launch, and each reaches the device a little later. A captured
///   graph is one launch. The host sees an end a little after it, and not while it launches.
/// - A kernel starts when it is at the head of its stream and some multiprocessors are free. It is given as many as it
///   has blocks for, or those that are free, and more when others end. Free ones go to the streams with the higher
///   priority first, then by the order of launches. With half of what it wants it takes twice as long.
/// - Blocks are not interrupted, but kernels are handed out block by block: after each of its [waves](Kernel::in_waves),
///   and never before, a kernel's multiprocessors are distributed again. A kernel in one wave keeps them until its end.
/// - Streams are spread over the hardware queues in the order of their first launch; on one hardware queue nothing
///   passes a launch that has not begun.
/// - When kernels side by side ask for more memory bandwidth than there is, each is slowed in the part of its time that
///   it spends on memory, so far that all together use exactly what there is.
/// - A communication kernel holds its multiprocessors while it waits for its [`Partners`], and then uses bandwidth while
///   it transfers.
///
/// **What is not**: single blocks (those of a wave end together, and later where the kernel has less than it wants; the
/// last wave is as full as the others); how blocks of several kernels share a multiprocessor; caches; clock and power; copies between host and device; memory capacity; contention on links; noise of the host. Times are
/// modelled, not measured.
///
/// The same calls give the same times. They are whole nanoseconds: what happens between two happens at the later.
///
/// An event costs O(streams), whatever is queued; the end of a tasklet O(tasklets in flight).
///
/// ```
/// use gpu_mux::{Device, DeviceParameters, JobId, Kernel, Tasklet, VirtualDevice, VirtualWork};
/// use std::time::Duration;
///
/// let us = Duration::from_micros;
/// let mut device = VirtualDevice::new(DeviceParameters::a100().without_overheads())?;
/// // Two kernels of half the device each run side by side.
/// for job in [JobId::FOREGROUND, JobId::BACKGROUND] {
///     device.launch(&Tasklet::new(job, 0), VirtualWork::graph([Kernel::new(us(80), 0.5, 0.4)?]))?;
/// }
/// device.wait(None)?;
/// assert_eq!(device.now(), us(80));
/// # Ok::<(), gpu_mux::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct VirtualDevice {
    parameters: DeviceParameters,
    engine: Engine,
    /// When the host has done the launches so far.
    host_free: u64,
    /// The exchange for whose sake the last wait ended, if it has not been asked about.
    shown: Option<TaskletId>,
}

impl VirtualDevice {
    /// An idle device at its epoch that gives the foreground's streams priority.
    ///
    /// [`Error::BadFigure`] for a parameter outside its range.
    pub fn new(parameters: DeviceParameters) -> Result<Self, Error> {
        Self::with_priorities(parameters, true)
    }

    /// The same, with or without [stream priorities](crate::Policy::stream_priority).
    pub fn with_priorities(parameters: DeviceParameters, stream_priority: bool) -> Result<Self, Error> {
        let engine = Engine::new(parameters.hardware(stream_priority)?);
        Ok(Self { parameters, engine, host_free: 0, shown: None })
    }

    /// Its parameters.
    #[must_use]
    pub fn parameters(&self) -> &DeviceParameters {
        &self.parameters
    }

    /// Where the time went so far.
    #[must_use]
    pub fn occupancy(&self) -> &Occupancy {
        &self.engine.occupancy
    }

    /// When something happens next without another call; `None` when nothing does.
    ///
    /// Several devices are kept at one time by letting all of them [wait](Device::wait) until the earliest.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        self.engine.next_event().into_iter().chain(self.next_seen()).min().map(Duration::from_nanos)
    }

    /// The oldest step of a communication with [`Partners::External`] that has not been given yet. A
    /// [wait](Device::wait) ends when there is one; the next wait is [`Error::ExchangeNotPolled`] if it still is there.
    pub fn exchange(&mut self) -> Option<Exchange> {
        self.shown = None;
        self.engine.exchanges.pop_front()
    }

    /// Says that the partners of a communication come at this time, or now if it has passed.
    ///
    /// [`Error::NotInFlight`] when it has not been launched or has ended, [`Error::PartnersNotExternal`] when its work is not of
    /// that kind.
    pub fn partners_arrive(&mut self, tasklet: TaskletId, at: Duration) -> Result<(), Error> {
        self.engine.tell(tasklet, Awaits::Partners, nanos(at))
    }

    /// Says that the transfers of all partners end at this time, or now if it has passed; the communication ends then
    /// if its own is done, and otherwise with it.
    ///
    /// [`Error::NotInFlight`] when it has not been launched or has ended, [`Error::PartnersNotExternal`] when its work is not of
    /// that kind.
    pub fn partners_finish(&mut self, tasklet: TaskletId, at: Duration) -> Result<(), Error> {
        self.engine.tell(tasklet, Awaits::End, nanos(at))
    }

    /// When the host sees the oldest end that it has not seen yet.
    fn next_seen(&self) -> Option<u64> {
        let latency = nanos(self.parameters.completion_latency);
        let oldest = self.engine.ended.front()?;
        Some(oldest.at.saturating_add(latency).max(self.host_free).max(self.engine.now))
    }
}

impl Device for VirtualDevice {
    type Work = VirtualWork;
    type Error = Error;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.engine.now)
    }

    fn launch(&mut self, tasklet: &Tasklet, work: VirtualWork) -> Result<(), Error> {
        let parameters = &self.parameters;
        let begin = self.host_free.max(self.engine.now);
        let one = nanos(parameters.launch_time);
        let (first, step, gap) = match &work {
            VirtualWork::Compute { kernels, captured: true } => {
                let nodes = nanos(parameters.graph_node_time).saturating_mul(kernels.len() as u64);
                let takes = nanos(parameters.graph_launch_time).saturating_add(nodes);
                self.host_free = begin.saturating_add(takes);
                (takes, 0, parameters.graph_node_gap)
            }
            VirtualWork::Compute { kernels, captured: false } => {
                self.host_free = begin.saturating_add(one.saturating_mul(kernels.len() as u64));
                (one, one, parameters.kernel_gap)
            }
            VirtualWork::Communication { .. } => {
                self.host_free = begin.saturating_add(one);
                (one, 0, parameters.kernel_gap)
            }
        };
        let arrives = begin.saturating_add(first).saturating_add(nanos(parameters.launch_latency));
        self.engine.launch(
            tasklet.lane,
            Launch {
                tasklet: tasklet.id,
                work,
                order: 0,
                begun: 0,
                arrives,
                arrival_step: step,
                gap: nanos(gap),
                after: tasklet.after,
                waited_for_by: Vec::new(),
                ready_from: 0,
                opened: None,
                partners_at: None,
                partners_end: None,
            },
        );
        Ok(())
    }

    fn finished(&mut self) -> Result<Option<Finished>, Error> {
        self.engine.advance(self.engine.now);
        if self.next_seen().is_none_or(|seen| seen > self.engine.now) {
            return Ok(None);
        }
        let ended = self.engine.ended.pop_front();
        Ok(ended.map(|ended| Finished {
            tasklet: ended.tasklet,
            took: Duration::from_nanos(ended.at - ended.opened),
        }))
    }

    fn wait(&mut self, until: Option<Duration>) -> Result<(), Error> {
        if let Some(tasklet) = self.shown {
            return Err(Error::ExchangeNotPolled(tasklet));
        }
        let until = until.map(nanos);
        loop {
            let (now, seen) = (self.engine.now, self.next_seen());
            self.shown = self.engine.exchanges.front().map(|exchange| exchange.tasklet);
            if self.shown.is_some() || seen.is_some_and(|seen| seen <= now) {
                return Ok(());
            }
            let next = self.engine.next_event().into_iter().chain(seen).chain(until).min();
            let Some(next) = next else { return Ok(()) };
            if until.is_some_and(|until| until <= now) {
                // What is due now still happens.
                self.engine.advance(now);
                return Ok(());
            }
            self.engine.advance(next.max(now));
        }
    }
}
