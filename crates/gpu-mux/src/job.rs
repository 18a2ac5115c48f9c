//! Jobs that run on the thread that polls them. A *site* is a position in a job's repeated
//! sequence, such as the step of a training iteration.

use std::task::Poll;
use std::time::Duration;

/// State of a [`PolledJob`], as returned by a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// A tasklet can run now.
    Ready(Upcoming),
    /// Nothing can run until a communication finishes. The communication progresses only when the
    /// job is polled.
    Communicating(Upcoming),
    /// Nothing can run until more input arrives.
    Waiting,
    /// The job has no more tasklets.
    Finished,
}

impl JobState {
    /// A tasklet without an estimate or a site can run now.
    pub const READY: Self = Self::Ready(Upcoming { estimate: None, site: None });
}

/// Properties of a job's next tasklet, or of the communication that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Upcoming {
    /// Duration alone on the device, if known. With `None`, the driver learns the duration by site.
    pub estimate: Option<Duration>,
    /// Position in the job's repeated sequence, such as the step of a training iteration.
    /// Statistics are learned by site and used in the next iteration. Tasklets and communications
    /// use different sites.
    pub site: Option<u32>,
}

impl Upcoming {
    /// Creates a description with this site and without an estimate.
    #[must_use]
    pub const fn at_site(site: u32) -> Self {
        Self { estimate: None, site: Some(site) }
    }
}

/// A job that offers tasklets one after another and runs them on the thread that polls it.
///
/// A foreground job communicates without blocking: it starts a transfer in [`run`](Self::run),
/// tests it in [`poll`](Self::poll), and reports [`Communicating`](JobState::Communicating) until
/// the transfer is complete. The background runs in the meantime.
pub trait PolledJob {
    /// Type of the job's errors.
    type Error;

    /// Returns the job's state. Must not block, because other jobs run on the same thread.
    ///
    /// A tasklet that has been reported as ready stays ready: polling again before it has run
    /// returns the same answer, also in a later run of the driver.
    ///
    /// # Errors
    /// An error ends a background job, which is not polled or run again, or the foreground's run.
    fn poll(&mut self) -> Result<JobState, Self::Error>;

    /// Runs the tasklet that [`poll`](Self::poll) reported, to completion.
    ///
    /// # Errors
    /// An error ends a background job, which is not polled or run again, or the foreground's run.
    fn run(&mut self) -> Result<(), Self::Error>;
}

impl<J: PolledJob + ?Sized> PolledJob for &mut J {
    type Error = J::Error;

    fn poll(&mut self) -> Result<JobState, J::Error> {
        (**self).poll()
    }

    fn run(&mut self) -> Result<(), J::Error> {
        (**self).run()
    }
}

impl<J: PolledJob + ?Sized> PolledJob for Box<J> {
    type Error = J::Error;

    fn poll(&mut self) -> Result<JobState, J::Error> {
        (**self).poll()
    }

    fn run(&mut self) -> Result<(), J::Error> {
        (**self).run()
    }
}

/// [`PolledJob`] made of two closures of the types `N` and `R`; see [`job_fn`]. `T` is the type of
/// an item of work.
#[derive(Debug)]
pub struct JobFn<T, N, R> {
    announced: Option<T>,
    next: N,
    run: R,
}

/// Creates a [`PolledJob`] from two closures: `next` returns the next item of work, and `run`
/// processes it.
///
/// `next` must not block. `Poll::Pending` means that the next item has not arrived yet,
/// `Poll::Ready(None)` that there are no more items.
///
/// ```
/// use gpu_mux::{PolledJob, JobState, job_fn};
/// use std::task::Poll;
///
/// let mut items = 0..2;
/// let run = |item: i32| if item == 0 { Ok(()) } else { Err("odd") };
/// let mut job = job_fn(|| Poll::Ready(items.next()), run);
/// assert_eq!(job.poll(), Ok(JobState::READY));
/// assert_eq!(job.run(), Ok(()));
/// assert_eq!(job.poll(), Ok(JobState::READY));
/// assert_eq!(job.run(), Err("odd"));
/// assert_eq!(job.poll(), Ok(JobState::Finished));
/// ```
pub fn job_fn<T, N, R, E>(next: N, run: R) -> JobFn<T, N, R>
where
    N: FnMut() -> Poll<Option<T>>,
    R: FnMut(T) -> Result<(), E>,
{
    JobFn { announced: None, next, run }
}

impl<T, N, R, E> PolledJob for JobFn<T, N, R>
where
    N: FnMut() -> Poll<Option<T>>,
    R: FnMut(T) -> Result<(), E>,
{
    type Error = E;

    fn poll(&mut self) -> Result<JobState, E> {
        if self.announced.is_none() {
            match (self.next)() {
                Poll::Pending => return Ok(JobState::Waiting),
                Poll::Ready(None) => return Ok(JobState::Finished),
                Poll::Ready(item) => self.announced = item,
            }
        }
        Ok(JobState::READY)
    }

    fn run(&mut self) -> Result<(), E> {
        self.announced.take().map_or(Ok(()), &mut self.run)
    }
}
