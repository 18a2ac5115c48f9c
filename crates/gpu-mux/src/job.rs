use std::task::Poll;
use std::time::Duration;

/// What a [`PolledJob`] has to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// A tasklet can run now.
    Ready(Upcoming),
    /// Nothing can run before communication has ended, which goes on whenever the job is polled.
    Communicating(Upcoming),
    /// Nothing can run yet: input has not come.
    Waiting,
    /// There will be no more tasklets.
    Finished,
}

impl JobState {
    /// A tasklet can run now, of which no more is known.
    pub const READY: Self = Self::Ready(Upcoming { estimate: None, site: None });
}

/// What is known of a job's next tasklet, or of the communication that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Upcoming {
    /// How long it takes on a device of its own, if that is known. Of one with a site the driver learns it otherwise.
    pub estimate: Option<Duration>,
    /// Its place in what the job does over and over, such as the step of a training iteration: what is learned about
    /// a place in one round is used in the next. Places of tasklets and of communication are different.
    pub site: Option<u32>,
}

impl Upcoming {
    /// What comes at this place.
    #[must_use]
    pub const fn at_site(site: u32) -> Self {
        Self { estimate: None, site: Some(site) }
    }
}

/// A job that hands out tasklets one after another and runs them on the thread that asks it to.
///
/// A foreground job that communicates does so without blocking: it starts a transfer in
/// [`run`](Self::run), tests it in [`poll`](Self::poll), and is [`Communicating`](JobState::Communicating) until it is
/// done. That wait is the gap in which the background runs.
pub trait PolledJob {
    /// What can go wrong in it.
    type Error;

    /// Says whether a tasklet can run now. It must not block, since other jobs run on the same thread.
    ///
    /// A tasklet that has been announced as ready stays announced: asking again before it has run gives the
    /// same answer, also in a later run of the driver.
    fn poll(&mut self) -> Result<JobState, Self::Error>;

    /// Runs the tasklet that [`poll`](Self::poll) announced, to completion.
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

/// A [`PolledJob`] made of two closures; see [`job_fn`].
#[derive(Debug)]
pub struct JobFn<T, N, R> {
    announced: Option<T>,
    next: N,
    run: R,
}

/// Makes a [`PolledJob`] of a closure that gives the next item of work and one that does it.
///
/// `next` must not block: `Poll::Pending` means that the next item has not come yet, `Poll::Ready(None)` that
/// there will be no more.
///
/// ```
/// use gpu_mux::{PolledJob, JobState, job_fn};
/// use std::task::Poll;
///
/// let mut items = 0..2;
/// let mut job = job_fn(|| Poll::Ready(items.next()), |item: i32| if item == 0 { Ok(()) } else { Err("odd") });
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
