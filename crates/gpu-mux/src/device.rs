//! Interface of a device on which a driver launches tasklets. The *epoch* is the moment from which
//! a device measures time.

use std::time::Duration;

use crate::{Tasklet, TaskletId};

/// A device that runs tasklets asynchronously; it is driven by a [`Driver`](crate::Driver).
///
/// A device runs the tasklets of each job and lane in launch order, makes a tasklet wait for the
/// one named by [`after`](Tasklet::after), and gives the background the lower priority if the
/// policy asks for it.
pub trait Device {
    /// Type of the work that is launched for a tasklet, such as kernels or a graph.
    type Work;
    /// Type of the device's errors.
    type Error;

    /// Returns the time since the device's epoch. It never decreases.
    fn now(&self) -> Duration;

    /// Launches a tasklet with its work, without waiting for it. It has not finished until
    /// [`finished`](Self::finished) returns it. A tasklet whose launch fails is never returned.
    ///
    /// # Errors
    /// The device's error if it cannot launch the tasklet.
    fn launch(&mut self, tasklet: &Tasklet, work: Self::Work) -> Result<(), Self::Error>;

    /// Returns the oldest finished tasklet that has not been returned before, or `None` if there is
    /// none yet. Does not wait.
    ///
    /// # Errors
    /// The error of the device or of work that it has executed.
    fn finished(&mut self) -> Result<Option<Finished>, Self::Error>;

    /// Waits until a tasklet may have finished, at most until `until`, which is measured from the
    /// epoch.
    ///
    /// It may return early. With nothing in flight and no `until` it returns at once.
    ///
    /// # Errors
    /// The error of the device or of work that it has executed.
    fn wait(&mut self, until: Option<Duration>) -> Result<(), Self::Error>;
}

/// A tasklet that a [`Device`] has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Identifier of the tasklet.
    pub tasklet: TaskletId,
    /// Time for which it occupied its lane: from the moment it is first on its stream with its
    /// dependencies complete, to its end. This includes time during which other jobs occupy the
    /// resources it needs.
    pub took: Duration,
}
