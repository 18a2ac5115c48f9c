use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Device, Error, Finished, JobId, Multiplexer, MuxCommand, MuxEvent, Policy, Tasklet, TaskletId};

/// Runs a foreground and background jobs on a [`Device`], as a [`Multiplexer`] decides.
///
/// It is the same loop for a GPU and for the virtual device: whatever has work, a [`Host`](crate::Host), is
/// [run](Self::run). A program with a loop of its own [offers](Self::offer) each tasklet as soon as it may be launched,
/// [polls](Self::poll) until nothing more has finished, and then [waits](Self::wait).
///
/// What goes wrong when background is launched ends that job, and no other: see
/// [`background_failures`](Self::background_failures).
#[derive(Debug)]
pub struct Driver<D: Device> {
    mux: Multiplexer,
    device: D,
    waiting: Vec<(JobId, Waiting<D::Work>)>,
    /// When the multiplexer wants to be asked again.
    wake: Option<Duration>,
    failures: Vec<(JobId, D::Error)>,
    /// Tasklets that were launched and have not finished.
    in_flight: usize,
}

/// The work of a job's tasklets that wait in the multiplexer, in launch order.
type Waiting<W> = VecDeque<(Tasklet, W)>;

/// Why a [`Driver`] cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError<E> {
    /// The multiplexer refused an event: a tasklet was offered that it cannot take.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The device failed, other than by launching background.
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
    /// A driver of this device by these rules.
    #[must_use]
    pub fn new(policy: Policy, device: D) -> Self {
        Self {
            mux: Multiplexer::new(policy),
            device,
            waiting: Vec::new(),
            wake: None,
            failures: Vec::new(),
            in_flight: 0,
        }
    }

    /// Accepts a tasklet that may be launched, as [`MuxEvent::Ready`] says, with its work. It is launched by
    /// [`poll`](Self::poll). What is offered by a job whose launch has
    /// [failed](Self::background_failures) is dropped.
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

    /// A tasklet that has finished. When there is none: launches what may be launched, and gives `None` if nothing has
    /// finished meanwhile.
    ///
    /// Whatever a finished tasklet makes ready should be offered before the next call.
    pub fn poll(&mut self) -> Result<Option<Finished>, DriverError<D::Error>> {
        if let Some(finished) = self.finished()? {
            return Ok(Some(finished));
        }
        // Time has passed since the last event, and decisions are made by it.
        self.tell(MuxEvent::Tick)?;
        while let Some(command) = self.mux.poll_command() {
            match command {
                MuxCommand::WakeAt(time) => self.wake = Some(time),
                MuxCommand::Launch(tasklet) => self.launch(tasklet)?,
            }
        }
        self.finished()
    }

    /// Lets time pass until [`poll`](Self::poll) may have something to do, but not beyond `until`.
    ///
    /// With nothing in flight, nothing to wake up for and no `until` it returns at once.
    pub fn wait(&mut self, until: Option<Duration>) -> Result<(), DriverError<D::Error>> {
        let until = until.into_iter().chain(self.wake).min();
        self.device.wait(until).map_err(DriverError::Device)
    }

    /// Pauses a background job; see [`MuxEvent::Pause`].
    pub fn pause(&mut self, job: JobId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Pause(job))
    }

    /// Lets it go on; see [`MuxEvent::Resume`].
    pub fn resume(&mut self, job: JobId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Resume(job))
    }

    /// Lets it end; see [`MuxEvent::Drain`].
    pub fn drain(&mut self, job: JobId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Drain(job))
    }

    /// Gives it up; see [`MuxEvent::Failed`].
    pub fn give_up(&mut self, job: JobId) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Failed(job))?;
        self.queue(job).clear();
        Ok(())
    }

    /// Sets its share of the background's time; see [`MuxEvent::Weigh`].
    pub fn weigh(&mut self, job: JobId, weight: NonZeroU32) -> Result<(), DriverError<D::Error>> {
        self.tell(MuxEvent::Weigh(job, weight))
    }

    /// Background jobs that ended because they could not be launched, and why.
    #[must_use]
    pub fn background_failures(&self) -> &[(JobId, D::Error)] {
        &self.failures
    }

    /// The one that decides.
    #[must_use]
    pub fn multiplexer(&self) -> &Multiplexer {
        &self.mux
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, for what the driver does not pass on. Tasklets must be launched by the driver only.
    #[must_use]
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Whether nothing is in flight, and the multiplexer does not want to be asked again: only another offer, or an order
    /// such as [`resume`](Self::resume), changes anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.wake.is_none()
    }

    fn tell(&mut self, event: MuxEvent) -> Result<(), DriverError<D::Error>> {
        self.mux.handle(self.device.now(), event)?;
        self.wake = None;
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
        // The multiplexer launches a job's tasklets in the order in which they were offered.
        let Some((tasklet, work)) = self.queue(id.job).pop_front() else { return Ok(()) };
        match self.device.launch(&tasklet, work) {
            Err(error) if id.job.is_foreground() => Err(DriverError::Device(error)),
            Err(error) => {
                self.failures.push((id.job, error));
                self.give_up(id.job)
            }
            Ok(()) => {
                self.in_flight += 1;
                Ok(())
            }
        }
    }

    /// Jobs are few, and known from their first event on.
    fn queue(&mut self, job: JobId) -> &mut Waiting<D::Work> {
        let place = self.waiting.iter().position(|(id, _)| *id == job).unwrap_or_else(|| {
            self.waiting.push((job, VecDeque::new()));
            self.waiting.len() - 1
        });
        &mut self.waiting[place].1
    }
}
