//! The driver of an asynchronous device. A tasklet is *in flight* from its launch until it is
//! returned as finished. Times are measured from the device's epoch. To *offer* a tasklet is to
//! declare that it may be launched.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::{
    Device, Error, Finished, Grant, JobId, Multiplexer, MuxCommand, MuxEvent, Policy, Tasklet, TaskletId,
};

/// Runs a foreground and background jobs on a [`Device`] as a [`Multiplexer`] decides.
///
/// The same loop drives a GPU and the virtual device: [`run`](Self::run) takes a
/// [`Host`](crate::Host), which supplies the work. A program with its own loop
/// [offers](Self::offer) each tasklet as soon as it may be launched, [polls](Self::poll) until
/// nothing more has finished, and then [waits](Self::wait).
///
/// An error while launching background ends that job only; see
/// [`background_failures`](Self::background_failures).
#[derive(Debug)]
pub struct Driver<D: Device> {
    mux: Multiplexer,
    device: D,
    waiting: Vec<(JobId, Waiting<D::Work>)>,
    /// Wake-up time requested by the multiplexer.
    wake: Option<Duration>,
    failures: Vec<(JobId, D::Error)>,
    /// Number of tasklets launched and not finished.
    in_flight: usize,
    /// Whether the last run has done all that is possible at the device's time, and nothing has
    /// happened since.
    pub(crate) caught_up: bool,
}

/// Tasklets of a job that wait in the multiplexer, with their work, in launch order.
type Waiting<W> = VecDeque<(Tasklet, W)>;

/// Error that stops a [`Driver`]. `E` is the error type of its device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError<E> {
    /// The multiplexer refused an event.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The device failed, other than while launching background.
    #[error("the device failed: {0}")]
    Device(#[source] E),
}

impl From<DriverError<Self>> for Error {
    fn from(error: DriverError<Self>) -> Self {
        match error {
            DriverError::Refused(error) | DriverError::Device(error) => error,
        }
    }
}

impl<D: Device> Driver<D> {
    /// Creates a driver that decides by `policy` and launches on `device`.
    #[must_use]
    pub fn new(policy: Policy, device: D) -> Self {
        Self {
            mux: Multiplexer::new(policy),
            device,
            waiting: Vec::new(),
            wake: None,
            failures: Vec::new(),
            in_flight: 0,
            caught_up: false,
        }
    }

    /// Accepts a tasklet that may be launched (see [`MuxEvent::Ready`]), with its work. A later
    /// [`poll`](Self::poll) launches it. Tasklets of a job whose launch has
    /// [failed](Self::background_failures) are dropped.
    ///
    /// # Errors
    /// [`DriverError::Refused`] if the multiplexer refuses the tasklet.
    pub fn offer(&mut self, tasklet: Tasklet, work: D::Work) -> Result<(), DriverError<D::Error>> {
        match self.tell(MuxEvent::Ready(tasklet)) {
            Err(DriverError::Refused(Error::Closed(_))) if self.has_failed(tasklet.id.job) => {}
            result => {
                result?;
                self.queue(tasklet.id.job).push_back((tasklet, work));
            }
        }
        Ok(())
    }

    /// Returns a finished tasklet, or `None`. If none has finished, launches everything that may be
    /// launched and checks once more.
    ///
    /// Tasklets that become ready when a tasklet finishes should be offered before the next call.
    ///
    /// # Errors
    /// `DriverError::Device` if the device fails, other than while launching background;
    /// `DriverError::Refused` if the multiplexer refuses the event of a finished tasklet.
    pub fn poll(&mut self) -> Result<Option<Finished>, DriverError<D::Error>> {
        if let Some(finished) = self.finished()? {
            return Ok(Some(finished));
        }
        // Decisions depend on the time, which has advanced since the last event.
        self.tell(MuxEvent::Tick)?;
        let mut launched = false;
        while let Some(command) = self.mux.poll_command() {
            match command {
                MuxCommand::WakeAt(time) => self.wake = Some(time),
                MuxCommand::Launch(tasklet) => {
                    launched = true;
                    self.launch(tasklet)?;
                }
            }
        }
        if launched { self.finished() } else { Ok(None) }
    }

    /// Waits until [`poll`](Self::poll) may return a tasklet or launch one, at most until `until`.
    ///
    /// With nothing in flight, no wake-up requested and no `until` it returns at once.
    ///
    /// # Errors
    /// `DriverError::Device` if the device fails.
    pub fn wait(&mut self, until: Option<Duration>) -> Result<(), DriverError<D::Error>> {
        let until = until.into_iter().chain(self.wake).min();
        self.device.wait(until).map_err(DriverError::Device)
    }

    /// Pauses a background job; see [`MuxEvent::Pause`].
    ///
    /// # Errors
    /// [`DriverError::Refused`] if it is the foreground.
    pub fn pause(&mut self, job: JobId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Pause(job))
    }

    /// Resumes a background job; see [`MuxEvent::Resume`].
    ///
    /// # Errors
    /// [`DriverError::Refused`] if it is the foreground.
    pub fn resume(&mut self, job: JobId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Resume(job))
    }

    /// Drains a background job; see [`MuxEvent::Drain`].
    ///
    /// # Errors
    /// [`DriverError::Refused`] if it is the foreground.
    pub fn drain(&mut self, job: JobId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Drain(job))
    }

    /// Marks a background job as failed and drops its waiting tasklets; see [`MuxEvent::Failed`].
    ///
    /// # Errors
    /// [`DriverError::Refused`] if it is the foreground.
    pub fn fail(&mut self, job: JobId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Failed(job))?;
        self.queue(job).clear();
        Ok(())
    }

    /// Sets the weight of a background job, 1 by default; see [`MuxEvent::SetWeight`].
    ///
    /// # Errors
    /// [`DriverError::Refused`] if it is the foreground.
    pub fn set_weight(&mut self, job: JobId, weight: NonZeroU32) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::SetWeight(job, weight))
    }

    /// Decides whether a collective of a distributed background job may start at `now`; see
    /// [`Multiplexer::grant`].
    pub fn grant(&mut self, now: Duration, takes: Duration) -> Grant {
        self.mux.grant(now, takes)
    }

    /// Launches a collective of a distributed background job, which [`Gangs`](crate::Gangs) has
    /// launched on all its ranks, at the device's time; see [`MuxEvent::Collective`].
    ///
    /// # Errors
    /// [`DriverError::Refused`] if it is of the foreground, `DriverError::Device` if the device
    /// fails.
    pub fn launch_collective(
        &mut self,
        tasklet: Tasklet,
        work: D::Work,
    ) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Collective(tasklet))?;
        self.device.launch(&tasklet, work).map_err(DriverError::Device)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Reports that a communication of the foreground transfers; see [`MuxEvent::Transfers`].
    ///
    /// # Errors
    /// None in practice: the multiplexer refuses only an event that is older than the last one.
    pub fn transfers(&mut self, tasklet: TaskletId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Transfers(tasklet))
    }

    /// Returns the background jobs that ended because a launch failed, with the errors, in the
    /// order in which they failed.
    #[must_use]
    pub fn background_failures(&self) -> &[(JobId, D::Error)] {
        &self.failures
    }

    /// Returns the multiplexer, for its statistics.
    #[must_use]
    pub fn multiplexer(&self) -> &Multiplexer {
        &self.mux
    }

    /// Returns the device on which it launches.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Returns the device mutably, for operations that the driver does not expose. Only the driver
    /// may launch tasklets.
    #[must_use]
    pub fn device_mut(&mut self) -> &mut D {
        self.caught_up = false;
        &mut self.device
    }

    /// Returns whether nothing is in flight and no wake-up is requested. Only another offer, or a
    /// call such as [`resume`](Self::resume), changes anything then.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.wake.is_none()
    }

    fn tell(&mut self, event: MuxEvent) -> Result<(), DriverError<D::Error>> {
        self.mux.handle(self.device.now(), event)?;
        (self.wake, self.caught_up) = (None, false);
        Ok(())
    }

    fn has_failed(&self, job: JobId) -> bool {
        self.failures.iter().any(|(failed, _)| *failed == job)
    }

    fn finished(&mut self) -> Result<Option<Finished>, DriverError<D::Error>> {
        let finished = self.device.finished().map_err(DriverError::Device)?;
        if let Some(Finished { tasklet, took }) = finished {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.tell(MuxEvent::Finished { tasklet, took })?;
        }
        Ok(finished)
    }

    fn launch(&mut self, id: TaskletId) -> Result<(), DriverError<D::Error>> {
        // The multiplexer launches the tasklets of a job in the order in which they were offered.
        let next = self.queue(id.job).pop_front().filter(|(tasklet, _)| tasklet.id == id);
        let (tasklet, work) = next.ok_or(Error::NotOffered(id))?;
        match self.device.launch(&tasklet, work) {
            Err(error) if id.job.is_foreground() => Err(DriverError::Device(error)),
            Err(error) => {
                self.failures.push((id.job, error));
                self.fail(id.job)
            }
            Ok(()) => {
                self.in_flight += 1;
                Ok(())
            }
        }
    }

    /// Returns the queue of a job and creates it at the job's first event. A linear search, because
    /// there are few jobs.
    fn queue(&mut self, job: JobId) -> &mut Waiting<D::Work> {
        let place = self.waiting.iter().position(|(id, _)| *id == job).unwrap_or_else(|| {
            self.waiting.push((job, VecDeque::new()));
            self.waiting.len() - 1
        });
        &mut self.waiting[place].1
    }
}
