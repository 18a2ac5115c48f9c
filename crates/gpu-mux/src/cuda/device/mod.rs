//! A GPU as a [`Device`](crate::Device).

mod clock;
mod connections;
mod prepare;
mod queue;
mod work;

use std::sync::Arc;
use std::time::Duration;

pub use prepare::PreparedBackground;
pub use work::{EnqueueFn, Prepared, Work};

use super::{Context, Error, Gate, GreenContext, Priority, Result, Stream};
use crate::cuda::host_clock::{HostClock, SystemClock};
use crate::{Device, Finished};
use crate::{JobId, Lane, Policy, Tasklet, TaskletId};
use clock::DeviceClock;
use connections::enough_hardware_queues;
use queue::DeviceQueue;

/// Where the foreground's streams are among the queues.
const COMPUTE: usize = 0;
const COMMUNICATION: usize = 1;

/// For how long a wait yields to other threads between polls, since tasklets end some microseconds apart; after that it
/// sleeps for so long between polls.
const YIELD_FOR: Duration = Duration::from_millis(2);
const SLEEP: Duration = Duration::from_micros(50);

/// What a [`CudaDevice`] does besides what a [`Policy`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceOptions {
    /// The foreground's stream itself holds back background that is in flight: a [`Gate`] is shut while it computes,
    /// and open while it waits for communication or has nothing to do. Kernels that have started run on.
    ///
    /// Streams that share a hardware queue wait for each other: one that waits for the gate could then block the one
    /// that opens it, for ever. There are as many queues as the variable `CUDA_DEVICE_MAX_CONNECTIONS`
    /// said when CUDA was opened, 8 by default and 32 at most. The streams of this device are counted against them, with
    /// two to spare; those of other libraries in the process (libtorch, NCCL) have to be added.
    ///
    /// While it is shut, the thread that drives the device must not wait for all of it, as freeing memory, unloading a
    /// module and synchronising the context do: it is the one that opens the gate. [`CudaDevice::synchronize`] opens it.
    pub gate: bool,
    /// The background runs on at most about this many multiprocessors, in a [`GreenContext`].
    pub background_multiprocessors: Option<u32>,
}

/// A GPU that runs tasklets of a foreground job and of background jobs, for [`Driver`](crate::Driver).
///
/// The foreground has a stream for compute and one for communication, and every background job one of its own, all of
/// which run beside each other. With [`Policy::stream_priority`] the foreground's have the greatest priority. A
/// tasklet that is to run [after](Tasklet::after) another waits for it on the device. How long a tasklet took is what
/// the device measured between the events before and after it; with an empty stream that includes what the host needs
/// to launch it.
///
/// Nothing here waits for the device but [`wait`](Device::wait), [`synchronize`](Self::synchronize), the preparations and the drop;
/// and a launch into a stream that is full, as CUDA takes in about a thousand launches and then lets the host wait.
/// What work was the last to hold, such as memory, is freed where waiting is allowed. Once the queues have reached
/// their largest length, nothing is allocated.
///
/// A background launch that fails leaves the foreground alone. It is different with a kernel that fails while it
/// runs, by a wrong address for example: CUDA then answers every call of the process with that error
/// ([`Error::is_sticky`]).
#[derive(Debug)]
pub struct CudaDevice {
    context: Context,
    policy: Policy,
    /// The foreground's two streams, and then the background's.
    queues: Vec<DeviceQueue>,
    /// The jobs of the queues behind the foreground's.
    background: Vec<JobId>,
    green: Option<GreenContext>,
    gate: Option<Gate>,
    gate_is_open: bool,
    launches: u64,
    clock: DeviceClock,
    /// The queue of the tasklet that has finished last, until the next launch.
    last_finished: Option<usize>,
    host: Arc<dyn HostClock>,
    /// By the host's clock.
    epoch: Duration,
}

impl CudaDevice {
    /// A device, from now on in its epoch.
    ///
    /// Of the policy it carries out the stream priorities and, where work is prepared here, the captured graphs and
    /// bounded pieces.
    ///
    /// # Errors
    /// [`Error::Lacking`] names a technique that was asked for and that device or driver do not have; what CUDA reports.
    pub fn new(context: &Context, policy: Policy, options: DeviceOptions) -> Result<Self> {
        let capabilities = context.capabilities()?;
        let lacking = |technique, reason: String| Err(Error::Lacking { technique, reason });
        if policy.stream_priority && capabilities.priority_levels < 2 {
            return lacking(
                "stream priority",
                "all streams of this device have the same priority".to_owned(),
            );
        }
        if policy.stream_priority && policy.captured_graphs && !capabilities.node_priority {
            let version = capabilities.driver_version;
            return lacking(
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
            // One for the background, or a gate would be of no use.
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

    /// The same device, driven by another clock of the host, and from now on in its epoch: an emulated driver has a time of its
    /// own, and with that the host's and the device's are one.
    #[must_use]
    pub fn with_host_clock(mut self, clock: Arc<dyn HostClock>) -> Self {
        self.epoch = clock.now();
        self.host = clock;
        self
    }

    /// The context of its streams.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The multiprocessors that the background is kept to, if it is.
    #[must_use]
    pub fn background_multiprocessors(&self) -> Option<u32> {
        self.green.as_ref().map(GreenContext::multiprocessors)
    }

    /// The stream that a job's tasklets of a lane are put into, for what has to be captured there or to be in order with them.
    ///
    /// # Errors
    /// What CUDA reports, where a background job's stream is made now.
    pub fn stream(&mut self, job: JobId, lane: Lane) -> Result<&Stream> {
        let place = self.queue(job, lane)?;
        Ok(&self.queues[place].stream)
    }

    /// The queue for a job's lane. A background job's is made when it is first asked for.
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

    /// When the tasklet that [`finished`](Device::finished) has given last had ended, by the device's own clock: about
    /// the [time](Device::now) when the first one was asked about, and exact from each to the next. `None` when a
    /// tasklet has been launched since.
    ///
    /// # Errors
    /// What CUDA reports.
    pub fn last_end(&mut self) -> Result<Option<Duration>> {
        let now = self.now();
        self.last_finished.map_or(Ok(None), |place| self.clock.last_end(&mut self.queues[place], now))
    }

    /// Makes what is launched into a queue from now on wait for a tasklet, unless that has finished.
    fn make_wait(&mut self, place: usize, after: TaskletId) -> Result<()> {
        let Some(other) = self.queues.iter().position(|queue| queue.end_of(after).is_some()) else {
            let launched = self.queues.iter().filter_map(|queue| queue.latest(after.job)).max();
            if launched.is_none_or(|latest| after.number > latest) {
                return Err(Error::Invalid(format!(
                    "a tasklet is to run after {after}, which has not been launched yet"
                )));
            }
            return Ok(());
        };
        if place == COMPUTE {
            self.set_gate(true)?;
        }
        let end = self.queues[other].end_of(after);
        end.map_or(Ok(()), |end| self.queues[place].stream.wait_for(end))
    }

    fn set_gate(&mut self, open: bool) -> Result<()> {
        let Some(gate) = self.gate.as_ref().filter(|_| self.gate_is_open != open) else { return Ok(()) };
        let stream = &self.queues[COMPUTE].stream;
        if open { gate.open(stream) } else { gate.shut(stream) }?;
        self.gate_is_open = open;
        Ok(())
    }

    /// The queue whose oldest tasklet has finished, and was launched before all others of which that is so.
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

    /// Waits until everything that was launched is complete, and frees what only finished work still held. It blocks, and
    /// opens the gate, if there is one. [`finished`](Device::finished) still gives the tasklets that have finished.
    ///
    /// # Errors
    /// What CUDA reports.
    pub fn synchronize(&mut self) -> Result<()> {
        let opened = self.set_gate(true);
        if let (Err(_), Some(gate)) = (&opened, &self.gate) {
            // Background that waits for a gate that stays shut would never end.
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
            // The job is given up, and what it owns may be freed now, which waits for all work, also for what waits for the
            // gate.
            let opened = self.set_gate(true);
            self.context.keep(opened);
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
        self.context.keep(synchronized);
    }
}
