//! The foreground of the driver on a thread, as seen by the multiplexer. A tasklet is *open* from
//! the event that it is ready to the event that it has finished. Times are those of the driver's
//! clock.

use std::time::Duration;

use super::best_times::BestTimes;
use crate::{JobId, MuxEvent, Tasklet, TaskletId, Upcoming};

/// State of the foreground: its open compute tasklet, its open wait for communication, and learned
/// durations.
#[derive(Debug, Default)]
pub(super) struct Foreground {
    next_number: u64,
    computing: LaneState,
    communicating: LaneState,
}

/// The foreground's state on one lane.
#[derive(Debug, Default)]
struct LaneState {
    /// The tasklet in flight according to the multiplexer, and its start.
    open: Option<(Tasklet, Duration)>,
    best_times: BestTimes,
}

impl Foreground {
    /// Opens a compute tasklet that is ready at `now`, and returns the event for the multiplexer.
    pub(super) fn offer_compute(&mut self, upcoming: Upcoming, now: Duration) -> MuxEvent {
        let tasklet = self.tasklet();
        self.computing.begin(tasklet, upcoming, now)
    }

    /// Records that the open compute tasklet starts to run at `now`.
    pub(super) fn start_compute(&mut self, now: Duration) {
        if let Some((_, since)) = &mut self.computing.open {
            *since = now;
        }
    }

    /// Closes the open compute tasklet at `now`, learns its duration and returns the event for its
    /// end. `None` if no compute tasklet is open.
    pub(super) fn finish_compute(&mut self, now: Duration) -> Option<MuxEvent> {
        self.computing.end(now)
    }

    /// Opens a wait for communication at `now`, and returns the event. The whole wait, until the
    /// next tasklet, is one communication. `None` if a wait is already open.
    pub(super) fn start_communication(&mut self, upcoming: Upcoming, now: Duration) -> Option<MuxEvent> {
        if self.communicating.open.is_some() {
            return None;
        }
        let tasklet = self.tasklet().receiving();
        Some(self.communicating.begin(tasklet, upcoming, now))
    }

    /// Closes the open wait for communication at `now`, learns its duration and returns the event
    /// for its end. `None` if no wait is open.
    pub(super) fn finish_communication(&mut self, now: Duration) -> Option<MuxEvent> {
        self.communicating.end(now)
    }

    /// Closes everything that is open at `now` after an error or a panic, and returns the events.
    /// The durations are not learned.
    pub(super) fn abort_all(&mut self, now: Duration) -> impl Iterator<Item = MuxEvent> + use<> {
        let communicating = self.communicating.abort(now);
        communicating.into_iter().chain(self.computing.abort(now))
    }

    /// Whether the foreground tasklet `id` is compute to be run, as opposed to a wait for
    /// communication.
    pub(super) fn is_compute(&self, id: TaskletId) -> bool {
        self.computing.open.is_some_and(|(open, _)| open.id == id)
    }

    fn tasklet(&mut self) -> Tasklet {
        self.next_number += 1;
        Tasklet::new(JobId::FOREGROUND, self.next_number)
    }
}

impl LaneState {
    fn begin(&mut self, tasklet: Tasklet, upcoming: Upcoming, now: Duration) -> MuxEvent {
        let tasklet = tasklet.at_site(upcoming.site).estimated(self.best_times.estimate(upcoming));
        self.open = Some((tasklet, now));
        MuxEvent::Ready(tasklet)
    }

    fn end(&mut self, now: Duration) -> Option<MuxEvent> {
        let (tasklet, since) = self.open.take()?;
        let took = now.saturating_sub(since);
        self.best_times.learn(tasklet.site, took);
        Some(MuxEvent::Finished { tasklet: tasklet.id, took })
    }

    fn abort(&mut self, now: Duration) -> Option<MuxEvent> {
        let (tasklet, since) = self.open.take()?;
        // A duration equal to the estimate changes no average.
        let took = tasklet.estimate.unwrap_or(now.saturating_sub(since));
        Some(MuxEvent::Finished { tasklet: tasklet.id, took })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aborted_tasklets_are_not_learned() {
        let us = Duration::from_micros;
        let mut foreground = Foreground::default();
        let mut now = Duration::ZERO;
        let mut begin = |foreground: &mut Foreground| -> Option<Duration> {
            let MuxEvent::Ready(tasklet) = foreground.offer_compute(Upcoming::at_site(3), now) else {
                return None;
            };
            now += us(10);
            tasklet.estimate
        };
        assert_eq!(begin(&mut foreground), None);
        let Some(MuxEvent::Finished { took, .. }) = foreground.finish_compute(us(10)) else {
            panic!("it has run")
        };
        assert_eq!(took, us(10));
        assert_eq!(begin(&mut foreground), Some(us(10)));
        foreground.start_communication(Upcoming::at_site(4), us(20));
        let aborted: Vec<_> = foreground.abort_all(us(9000)).collect();
        let tooks: Vec<_> = aborted
            .iter()
            .map(
                |event| if let MuxEvent::Finished { took, .. } = event { *took } else { panic!("{event:?}") },
            )
            .collect();
        assert_eq!(tooks, [us(8980), us(10)], "the wait has no estimate, the tasklet has one");
        assert_eq!(begin(&mut foreground), Some(us(10)));
        let Some(MuxEvent::Ready(wait)) = foreground.start_communication(Upcoming::at_site(4), us(9000))
        else {
            panic!("it waits")
        };
        assert_eq!(wait.estimate, None);
        assert_eq!(foreground.abort_all(us(9000)).count(), 2);
        assert_eq!(foreground.abort_all(us(9000)).count(), 0);
    }
}
