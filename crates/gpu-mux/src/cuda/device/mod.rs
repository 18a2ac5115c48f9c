//! A GPU as a [`Device`](crate::Device). A *gate* is a word in device memory for which background
//! streams wait. Times are measured from the device's epoch. *CUDA errors* are failed calls of the
//! CUDA driver.

mod clock;
mod connections;
mod prepare;
mod queue;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ::cuda::{Context, Error, Gate, GreenContext, Priority, Result, Stream};

pub use prepare::PreparedBackground;
pub use work::{EnqueueFn, Prepared, Work};

use crate::cuda::host_clock::{HostClock, SystemClock};
use crate::{Device, Finished};
use crate::{JobId, Lane, Policy, Tasklet, TaskletId};
use clock::DeviceClock;
use connections::enough_hardware_queues;
use queue::DeviceQueue;

/// Indices of the foreground's queues.
const COMPUTE: usize = 0;
const COMMUNICATION: usize = 1;

/// Time for which a wait yields between polls, because tasklets end some microseconds apart.
const YIELD_FOR: Duration = Duration::from_millis(2);
/// Time between polls after that.
const SLEEP: Duration = Duration::from_micros(50);

/// Options of a [`CudaDevice`] beyond the [`Policy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceOptions {
    /// Whether the foreground's stream withholds background that is already in flight: a [`Gate`]
    /// is shut while the foreground computes, and open while it waits for communication or has
    /// nothing to do. Kernels that have started are not interrupted.
    ///
    /// Streams that share a hardware queue wait for each other, so a stream that waits for the gate
    /// could block the stream that opens it: a deadlock. The number of hardware queues is the value
    /// of `CUDA_DEVICE_MAX_CONNECTIONS` when CUDA was opened (default 8, maximum 32). The streams
    /// of this device plus two are checked against it; streams of other libraries in the process
    /// (libtorch, NCCL) must be added.
    ///
    /// While the gate is shut, the thread that drives the device must not wait for the whole
    /// device, which includes freeing memory, unloading a module and synchronizing the context,
    /// because that thread opens the gate. [`CudaDevice::synchronize`] opens it.
    pub gate: bool,
    /// Approximate maximum number of multiprocessors for the background, enforced with a
    /// [`GreenContext`]. `None` for no limit.
    pub background_multiprocessors: Option<u32>,
}

/// GPU that runs the tasklets of a foreground job and of background jobs for a
/// [`Driver`](crate::Driver).
///
/// The foreground has one stream for compute and one for communication, and every background job
/// has one stream; all of them run concurrently. With [`Policy::stream_priority`] the foreground's
/// streams have the greatest priority. A tasklet that runs [after](Tasklet::after) another waits
/// for it on the device. The duration of a tasklet is measured by the device between the events
/// before and after it; on an empty stream it includes launch overhead of the host.
///
/// Only [`wait`](Device::wait), [`synchronize`](Self::synchronize), the `prepare` methods and the
/// destructor wait for the device, and a launch into a full stream: CUDA accepts about a thousand
/// launches and then blocks the host. Objects whose last reference was held by finished work are
/// freed where blocking is allowed. Nothing is allocated once the queues have reached their maximum
/// length.
///
/// A background launch that fails does not affect the foreground. A kernel that fails while it
/// runs, for example because of an invalid address, does: CUDA then returns that error from every
/// call of the process ([`Error::is_sticky`]).
#[derive(Debug)]
pub struct CudaDevice {
    context: Context,
    policy: Policy,
    /// The foreground's two streams, followed by the background's.
    queues: Vec<DeviceQueue>,
    /// Jobs of the queues after the foreground's.
    background: Vec<JobId>,
    green: Option<GreenContext>,
    gate: Option<Gate>,
    gate_is_open: bool,
    launches: u64,
    clock: DeviceClock,
    /// Queue of the tasklet returned last by `finished`, until the next launch.
    last_finished: Option<usize>,
    host: Arc<dyn HostClock>,
    /// Start of the epoch, by the host's clock.
    epoch: Duration,
}

impl CudaDevice {
    /// Creates a device without tasklets, whose epoch (time 0) is now.
    ///
    /// It implements the policy's stream priorities and, where work is prepared here, its captured
    /// graphs and bounded pieces.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names a requested technique that the device or driver does not
    /// support; CUDA errors.
    pub fn new(context: &Context, policy: Policy, options: DeviceOptions) -> Result<Self> {
        let capabilities = context.capabilities()?;
        let unsupported = |technique, reason: String| Err(Error::Unsupported { technique, reason });
        if policy.stream_priority && capabilities.priority_levels < 2 {
            return unsupported(
                "stream priority",
                "all streams of this device have the same priority".to_owned(),
            );
        }
        if policy.stream_priority && policy.captured_graphs && !capabilities.node_priority {
            let version = capabilities.driver_version;
            return unsupported(
                "priority in captured graphs",
                format!("driver version {version} is older than 11070"),
            );
        }
        let foreground = if policy.stream_priority { Priority::Foreground } else { Priority::Background };
        let queue = || Ok(DeviceQueue::new(Stream::new(context, foreground)?));
        let queues = vec![queue()?, queue()?];
        let green = options.background_multiprocessors;
        let green = green.map(|count| GreenContext::new(context, count)).transpose()?;
        if options.gate {
            // One queue for the background, without which a gate is useless.
            enough_hardware_queues(queues.len() + 1)?;
        }
        let gate = options.gate.then(|| Gate::new(context, &queues[COMPUTE].stream)).transpose()?;
        Ok(Self {
            context: context.clone(),
            policy,
            queues,
            background: Vec::new(),
            green,
            gate,
            gate_is_open: true,
            launches: 0,
            clock: DeviceClock::default(),
            last_finished: None,
            host: Arc::new(SystemClock::default()),
            epoch: Duration::ZERO,
        })
    }

    /// Uses another host clock and restarts the epoch. An emulated driver has a virtual clock,
    /// which then serves the host as well.
    #[must_use]
    pub fn with_host_clock(mut self, clock: Arc<dyn HostClock>) -> Self {
        self.epoch = clock.now();
        self.host = clock;
        self
    }

    /// Returns the context in which its streams are created.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the number of multiprocessors to which the background is limited, or `None` without
    /// a limit.
    #[must_use]
    pub fn background_multiprocessors(&self) -> Option<u32> {
        self.green.as_ref().map(GreenContext::multiprocessors)
    }

    /// Returns the stream for a job's tasklets on a lane, for captures and for work that must be
    /// ordered with them.
    ///
    /// # Errors
    /// CUDA errors if the stream of a background job is created by this call.
    pub fn stream(&mut self, job: JobId, lane: Lane) -> Result<&Stream> {
        let place = self.queue(job, lane)?;
        Ok(&self.queues[place].stream)
    }

    /// Returns the index of the queue for a job's lane. The queue of a background job is created on
    /// first use.
    fn queue(&mut self, job: JobId, lane: Lane) -> Result<usize> {
        if job.is_foreground() {
            return Ok(if lane == Lane::Compute { COMPUTE } else { COMMUNICATION });
        }
        if let Some(place) = self.background.iter().position(|&known| known == job) {
            return Ok(place + 2);
        }
        if self.gate.is_some() {
            enough_hardware_queues(self.queues.len() + 1)?;
        }
        let stream = match &self.green {
            Some(green) => Stream::within(green, Priority::Background)?,
            None => Stream::new(&self.context, Priority::Background)?,
        };
        self.background.push(job);
        self.queues.push(DeviceQueue::new(stream));
        Ok(self.queues.len() - 1)
    }

    /// Returns the end time, from the epoch, of the tasklet that [`finished`](Device::finished)
    /// returned last, by the device's clock. The first end time is approximate (the
    /// [time](Device::now) of this call), the differences between end times are exact. `None` if a
    /// tasklet has been launched since.
    ///
    /// # Errors
    /// CUDA errors.
    pub fn last_end(&mut self) -> Result<Option<Duration>> {
        let now = self.now();
        self.last_finished.map_or(Ok(None), |place| self.clock.last_end(&mut self.queues[place], now))
    }

    /// Makes later launches into a queue wait for a tasklet, unless it has finished.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the tasklet has not been launched: its number exceeds its job's last.
    fn make_wait(&mut self, place: usize, after: TaskletId) -> Result<()> {
        let mut queues = self.queues.iter().enumerate();
        let Some((other, index)) =
            queues.find_map(|(other, queue)| queue.index_of(after).map(|index| (other, index)))
        else {
            let launched = self.queues.iter().filter_map(|queue| queue.latest(after.job)).max();
            if launched.is_none_or(|latest| after.number > latest) {
                return Err(Error::Invalid(format!(
                    "a tasklet depends on {after}, which has not been launched yet"
                )));
            }
            return Ok(());
        };
        if place == COMPUTE {
            self.set_gate(true)?;
        }
        self.queues[place].stream.wait_for(self.queues[other].end_at(index))
    }

    fn set_gate(&mut self, open: bool) -> Result<()> {
        let Some(gate) = self.gate.as_ref().filter(|_| self.gate_is_open != open) else { return Ok(()) };
        let stream = &self.queues[COMPUTE].stream;
        if open { gate.open(stream) } else { gate.shut(stream) }?;
        self.gate_is_open = open;
        Ok(())
    }

    /// Returns the queue whose oldest tasklet has finished; if there are several, that with the
    /// earliest launch.
    fn first_finished(&self) -> Result<Option<usize>> {
        let mut first = None;
        for (place, queue) in self.queues.iter().enumerate() {
            let Some(oldest) = queue.oldest() else { continue };
            if first.is_none_or(|(launch, _)| oldest < launch) && queue.oldest_is_finished()? {
                first = Some((oldest, place));
            }
        }
        Ok(first.map(|(_, place)| place))
    }

    fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.len() == 0)
    }

    /// Blocks until all launched work is complete, and frees objects held only by finished work. It
    /// opens the gate, if there is one. [`finished`](Device::finished) still returns the finished
    /// tasklets.
    ///
    /// # Errors
    /// CUDA errors.
    pub fn synchronize(&mut self) -> Result<()> {
        let opened = self.set_gate(true);
        if let (Err(_), Some(gate)) = (&opened, &self.gate) {
            // Background that waits for a shut gate would never end.
            gate.force_open(&self.queues[COMMUNICATION].stream)?;
            self.gate_is_open = true;
        }
        self.queues.iter().map(|queue| queue.stream.synchronize()).fold(opened, Result::and)?;
        self.queues.iter_mut().for_each(DeviceQueue::clear_all);
        Ok(())
    }

    fn try_launch(&mut self, place: usize, tasklet: &Tasklet, work: &Work) -> Result<()> {
        if let Some(after) = tasklet.after {
            self.make_wait(place, after)?;
        }
        if place == COMPUTE {
            self.set_gate(false)?;
        } else if let Some(gate) = self.gate.as_ref().filter(|_| !tasklet.id.job.is_foreground()) {
            gate.wait(&self.queues[place].stream)?;
        }
        self.launches += 1;
        self.queues[place].launch(tasklet.id, self.launches, work)
    }
}

impl Device for CudaDevice {
    type Work = Work;
    type Error = Error;

    fn now(&self) -> Duration {
        self.host.now().saturating_sub(self.epoch)
    }

    fn launch(&mut self, tasklet: &Tasklet, work: Work) -> Result<()> {
        self.last_finished = None;
        let place = self.queue(tasklet.id.job, tasklet.lane);
        let launched = place.and_then(|place| self.try_launch(place, tasklet, &work));
        if launched.is_err() {
            self.queues[COMPUTE].refuse(work);
            // The job is failed, and freeing what it owns waits for all work, including work that
            // waits for the gate.
            let opened = self.set_gate(true);
            self.context.store_error(opened);
        }
        launched
    }

    fn finished(&mut self) -> Result<Option<Finished>> {
        let place = self.first_finished()?;
        let compute_left = self.queues[COMPUTE].len() - usize::from(place == Some(COMPUTE));
        if compute_left == 0 {
            self.set_gate(true)?;
        }
        self.last_finished = place;
        place.map_or(Ok(None), |place| self.queues[place].take_oldest())
    }

    fn wait(&mut self, until: Option<Duration>) -> Result<()> {
        let begin = self.now();
        if self.is_idle() {
            self.set_gate(true)?;
            self.queues.iter_mut().for_each(DeviceQueue::clear);
        }
        loop {
            let left = until.map(|until| until.saturating_sub(self.now()));
            if left.is_some_and(|left| left.is_zero()) || (left.is_none() && self.is_idle()) {
                return Ok(());
            }
            if self.first_finished()?.is_some() {
                return Ok(());
            }
            if self.is_idle() {
                self.host.sleep(left.unwrap_or_default());
            } else if self.now().saturating_sub(begin) < YIELD_FOR {
                self.host.yield_now();
            } else {
                self.host.sleep(left.map_or(SLEEP, |left| left.min(SLEEP)));
            }
        }
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        let synchronized = self.synchronize();
        self.context.store_error(synchronized);
    }
}
