//! Sharing of a thread between requests and background work, in one call.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::task::Poll;

use super::{CpuDriver, JobOutcome};
use crate::{Error, Policy, Usage, job_fn};

/// Serves requests on this thread as they arrive, runs background work in between, and returns when
/// all senders have been dropped.
///
/// `foreground` serves one request. `background` does one short piece of work and is called
/// repeatedly; a request waits for at most one piece. For several background jobs, for jobs that
/// end, fail or communicate, or for another policy, see [`CpuDriver`].
///
/// # Errors
/// [`Error::BackgroundPanicked`] if the background panicked; all requests have been served
/// nevertheless. A panic of the foreground is not caught.
pub fn share<T>(
    requests: &Receiver<T>,
    mut foreground: impl FnMut(T),
    mut background: impl FnMut(),
) -> Result<Usage, Error> {
    let next = || match requests.try_recv() {
        Ok(request) => Poll::Ready(Some(request)),
        Err(TryRecvError::Empty) => Poll::Pending,
        Err(TryRecvError::Disconnected) => Poll::Ready(None),
    };
    let mut serve = job_fn(next, |request| -> Result<(), Error> {
        foreground(request);
        Ok(())
    });
    let pieces = job_fn(
        || Poll::Ready(Some(())),
        |()| -> Result<(), Infallible> {
            background();
            Ok(())
        },
    );
    let mut driver = CpuDriver::new(Policy::default());
    driver.add(pieces);
    let usage = driver.run(&mut serve)?;
    match driver.background().first().and_then(|job| job.outcome()) {
        Some(JobOutcome::Panicked(message)) => Err(Error::BackgroundPanicked(message.clone())),
        _ => Ok(usage),
    }
}
