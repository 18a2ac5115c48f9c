use std::task::Poll;
use std::time::Duration;

/// What a [`Job`] has to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// A tasklet can run now; how long it is expected to take, if that is known.
    Ready(Option<Duration>),
    /// Nothing can run yet: the next tasklet depends on communication, or on input that has not come.
    Waiting,
    /// There will be no more tasklets.
    Finished,
}

/// A job that hands out tasklets one after another and runs them on the thread that asks it to.
///
/// A foreground job that communicates does so without blocking: it starts a transfer in
/// [`run`](Self::run), tests it in [`poll`](Self::poll), and is [`Waiting`](JobState::Waiting) until it is done.
/// That wait is the gap in which the background runs.
pub trait Job {
    /// What can go wrong in it.
    type Error;

    /// Says whether a tasklet can run now. It must not block, since the other job runs on the same thread.
    ///
    /// A tasklet that has been announced as ready stays announced: asking again before it has run gives the
    /// same answer, also in a later run of the driver.
    fn poll(&mut self) -> Result<JobState, Self::Error>;

    /// Runs the tasklet that [`poll`](Self::poll) announced, to completion.
    fn run(&mut self) -> Result<(), Self::Error>;
}

/// A [`Job`] made of two closures; see [`job_fn`].
#[derive(Debug)]
pub struct JobFn<T, N, R> {
    announced: Option<T>,
    next: N,
    run: R,
}

/// Makes a [`Job`] of a closure that gives the next item of work and one that does it.
///
/// `next` must not block: `Poll::Pending` means that the next item has not come yet, `Poll::Ready(None)` that
/// there will be no more.
///
/// ```
/// use gpu_mux::{Job, JobState, job_fn};
/// use std::task::Poll;
///
/// let mut items = 0..2;
/// let mut job = job_fn(|| Poll::Ready(items.next()), |item: i32| if item == 0 { Ok(()) } else { Err("odd") });
/// assert_eq!(job.poll(), Ok(JobState::Ready(None)));
/// assert_eq!(job.run(), Ok(()));
/// assert_eq!(job.poll(), Ok(JobState::Ready(None)));
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

impl<T, N, R, E> Job for JobFn<T, N, R>
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
        Ok(JobState::Ready(None))
    }

    fn run(&mut self) -> Result<(), E> {
        self.announced.take().map_or(Ok(()), &mut self.run)
    }
}
