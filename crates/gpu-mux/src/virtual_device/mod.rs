//! A discrete-event model of a GPU. Its *host* is the thread that launches on it. *Partners* are
//! the other devices that take part in a communication. A *wave* of a kernel is the part of its
//! thread blocks that the device holds at a time.

mod bandwidth;
mod device_state;
mod jitter;
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
use device_state::DeviceState;
use stream::{Launch, nanos};

/// Discrete-event model of a GPU and of the thread that launches on it, in virtual time: a
/// [`Device`] for tests and simulators.
///
/// **Modelled**, with the values of [`DeviceParameters`]:
/// - Each lane of each job is a stream. Its kernels run one after another in launch order, with
///   some time between them (the parameter `kernel_gap`). A tasklet waits for the one that it is
///   [`after`](Tasklet::after), on any stream.
/// - Launches take host time, one after another, and reach the device after a latency. A captured
///   graph is one launch. The host sees the end of a tasklet after a latency, and not while it
///   launches.
/// - A kernel starts when it is at the head of its stream and at least one multiprocessor is free.
///   It gets as many as it has blocks for, or all free ones, and more when others become free. With
///   half of the multiprocessors that it wants, a kernel takes twice as long.
/// - Free multiprocessors go to the streams with higher priority first. At equal priority, kernels
///   are served in the order in which they became ready (first on their stream, dependencies
///   complete), and keep their place until all their blocks have started. These are rules G and X
///   of Amert et al., "GPU scheduling on the NVIDIA TX2: hidden details revealed" (RTSS 2017). Two
///   busy streams without priorities therefore alternate kernel by kernel, whatever the number of
///   launches that wait on them.
/// - Blocks are not interrupted. After each of its [waves](Kernel::in_waves), and at no other time,
///   the multiprocessors of a kernel are distributed again. A kernel in one wave keeps them until
///   its end.
/// - Streams are mapped to the hardware queues round robin, in the order of their first launch. On
///   one hardware queue, no launch passes an earlier one that has not started.
/// - If concurrent kernels need more memory bandwidth than there is, each is slowed in the fraction
///   of its time that it spends on memory, so that together they use exactly the bandwidth.
/// - A communication kernel holds its multiprocessors while it waits for its [`Partners`], and uses
///   bandwidth while it transfers.
/// - With [`jitter`](DeviceParameters::jitter), the duration of a compute tasklet has a normal
///   deviation, which depends only on the number of its launch.
///
/// **Not modelled**: single blocks (those of a wave end together, and later if the kernel has less
/// than it wants; the last wave is as full as the others); how blocks of several kernels share a
/// multiprocessor; caches; clock rates and power; copies between host and device; memory capacity;
/// contention on links; jitter of the host. Times are modelled, not measured.
///
/// The model is deterministic. Times are whole nanoseconds, rounded up.
///
/// An event takes O(streams) time, independent of the queue lengths; the end of a tasklet
/// O(tasklets in flight).
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
    state: DeviceState,
    /// Time at which the host has finished the launches so far.
    host_free: u64,
    /// The exchange that ended the last wait, until it is polled.
    pending_exchange: Option<TaskletId>,
}

impl VirtualDevice {
    /// Creates an idle device at its epoch that gives the foreground's streams priority.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a parameter outside its range.
    pub fn new(parameters: DeviceParameters) -> Result<Self, Error> {
        Self::with_priorities(parameters, true)
    }

    /// Creates an idle device at its epoch, with or without [stream
    /// priorities](crate::Policy::stream_priority).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a parameter outside its range.
    pub fn with_priorities(parameters: DeviceParameters, stream_priority: bool) -> Result<Self, Error> {
        let state = DeviceState::new(parameters.hardware(stream_priority)?);
        Ok(Self { parameters, state, host_free: 0, pending_exchange: None })
    }

    /// Returns the parameters of the device, as given to [`new`](Self::new).
    #[must_use]
    pub fn parameters(&self) -> &DeviceParameters {
        &self.parameters
    }

    /// Returns the time so far, by the state of the foreground.
    #[must_use]
    pub fn occupancy(&self) -> &Occupancy {
        &self.state.occupancy
    }

    /// Returns the current activity of the foreground.
    #[must_use]
    pub fn foreground_state(&self) -> ForegroundState {
        self.state.foreground_state()
    }

    /// Whether a background tasklet is on the device: it has started and not ended.
    #[must_use]
    pub fn runs_background(&self) -> bool {
        self.state.runs_background()
    }

    /// Returns the time of the next event, measured from the epoch, or `None` if nothing happens
    /// without another call.
    ///
    /// To keep several devices at one time, let all of them [wait](Device::wait) until the earliest
    /// event.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        self.state.next_event().into_iter().chain(self.next_seen()).min().map(Duration::from_nanos)
    }

    /// Returns the oldest step of a communication with [`Partners::External`] that has not been
    /// returned yet. A [wait](Device::wait) ends when there is one; the next wait fails with
    /// [`Error::ExchangeNotPolled`] if it has not been polled.
    pub fn exchange(&mut self) -> Option<Exchange> {
        self.pending_exchange = None;
        self.state.exchanges.pop_front()
    }

    /// Sets the time at which the partners of a communication arrive; a time in the past counts as
    /// now.
    ///
    /// # Errors
    /// [`Error::NotInFlight`] if the tasklet has not been launched or has ended,
    /// [`Error::PartnersNotExternal`] if its partners are not [`Partners::External`].
    pub fn partners_arrive(&mut self, tasklet: TaskletId, at: Duration) -> Result<(), Error> {
        self.state.set_partner_time(tasklet, Awaits::Partners, nanos(at))
    }

    /// Sets the time at which the transfers of all partners end; a time in the past counts as now.
    /// The communication ends at that time or when its own transfer ends, whichever is later.
    ///
    /// # Errors
    /// [`Error::NotInFlight`] if the tasklet has not been launched or has ended,
    /// [`Error::PartnersNotExternal`] if its partners are not [`Partners::External`].
    pub fn partners_finish(&mut self, tasklet: TaskletId, at: Duration) -> Result<(), Error> {
        self.state.set_partner_time(tasklet, Awaits::End, nanos(at))
    }

    /// Returns the time at which the host sees the oldest end that it has not seen yet.
    fn next_seen(&self) -> Option<u64> {
        let latency = nanos(self.parameters.completion_latency);
        let oldest = self.state.ended.front()?;
        Some(oldest.at.saturating_add(latency).max(self.host_free).max(self.state.now))
    }
}

impl Device for VirtualDevice {
    type Work = VirtualWork;
    type Error = Error;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.state.now)
    }

    fn launch(&mut self, tasklet: &Tasklet, work: VirtualWork) -> Result<(), Error> {
        let parameters = &self.parameters;
        let begin = self.host_free.max(self.state.now);
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
        self.state.launch(
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
        self.state.advance(self.state.now);
        if self.next_seen().is_none_or(|seen| seen > self.state.now) {
            return Ok(None);
        }
        let ended = self.state.ended.pop_front();
        Ok(ended.map(|ended| Finished {
            tasklet: ended.tasklet,
            took: Duration::from_nanos(ended.at - ended.opened),
        }))
    }

    fn wait(&mut self, until: Option<Duration>) -> Result<(), Error> {
        if let Some(tasklet) = self.pending_exchange {
            return Err(Error::ExchangeNotPolled(tasklet));
        }
        let until = until.map(nanos);
        loop {
            let (now, seen) = (self.state.now, self.next_seen());
            self.pending_exchange = self.state.exchanges.front().map(|exchange| exchange.tasklet);
            if self.pending_exchange.is_some() || seen.is_some_and(|seen| seen <= now) {
                return Ok(());
            }
            let next = self.state.next_event().into_iter().chain(seen).chain(until).min();
            let Some(next) = next else { return Ok(()) };
            if until.is_some_and(|until| until <= now) {
                // Events that are due now are still processed.
                self.state.advance(now);
                return Ok(());
            }
            self.state.advance(next.max(now));
        }
    }
}
