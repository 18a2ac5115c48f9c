use std::time::Duration;

use crate::{Tasklet, TaskletId};

/// A device that runs tasklets by itself while its host goes on: what a [`Driver`](crate::Driver) drives.
///
/// It keeps the order of launches of each job and lane, makes a tasklet wait for the one that it is
/// [`after`](Tasklet::after), and gives the background the lower priority where the policy asks for it.
pub trait Device {
    /// What is launched for a tasklet.
    type Work;
    /// What can go wrong.
    type Error;

    /// The time since the device's epoch; it never goes back.
    fn now(&self) -> Duration;

    /// Launches a tasklet and does not wait for it.
    fn launch(&mut self, tasklet: &Tasklet, work: Self::Work) -> Result<(), Self::Error>;

    /// A tasklet that has finished and has not been asked about before, the oldest first; `None` when there is none
    /// yet. It does not wait.
    fn finished(&mut self) -> Result<Option<Finished>, Self::Error>;

    /// Lets time pass until a tasklet may have finished, but not beyond `until`.
    ///
    /// It may return early. With nothing in flight and no `until` it returns at once.
    fn wait(&mut self, until: Option<Duration>) -> Result<(), Self::Error>;
}

/// A tasklet that a [`Device`] has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Which one.
    pub tasklet: TaskletId,
    /// How long it occupied its lane: from its turn on its stream, with all that it waits for done, to its end. It counts
    /// that others still have what it needs of the device.
    pub took: Duration,
}
