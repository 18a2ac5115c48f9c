//! Choice of the background job whose tasklet is launched next. The *service* of a job is the
//! device time that it has received divided by its weight. An *idle period* is a period in which
//! the foreground does not compute. The *idle-period rule* launches background only if it is
//! expected to finish within the idle period, or if the rule's *budget* covers the delay.

use std::time::Duration;

use crate::Tasklet;
use crate::background::Background;
use crate::idle_periods::{Admission, IdlePeriodRule};

/// Decision whether a background tasklet is launched now, after all rules except the idle-period
/// rule have permitted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackgroundDecision {
    /// Launch the next tasklet of the job at this index of `Background`.
    Launch(usize),
    /// Launch nothing before this time, measured from the driver's epoch, and then decide again.
    /// `None` if waiting cannot help.
    NotBefore(Option<Duration>),
}

impl BackgroundDecision {
    /// Decides as of `now` which job may launch its next tasklet. `None` if no job has a tasklet to
    /// launch. `idle_periods` is the state of the idle-period rule; `None` while the foreground
    /// computes, or if the rule is off.
    ///
    /// The job with the least service goes first. If it is not admitted, another job may run
    /// instead, but not at the cost of the delay budget: otherwise a job with long pieces would
    /// never find the budget full.
    pub(crate) fn new(
        background: &Background,
        idle_periods: Option<&mut IdlePeriodRule>,
        now: Duration,
    ) -> Option<Self> {
        let starts = background.free_at(now);
        let mut idle_periods = idle_periods;
        let mut admission = |place: usize, tasklet: &Tasklet| match &mut idle_periods {
            Some(idle_periods) => {
                idle_periods.admit(now, starts, background.expected(tasklet), background.last(place))
            }
            None => Admission::Now { overrun: Duration::ZERO },
        };
        let least_service = background
            .candidates()
            .min_by(|(one, _), (other, _)| background.service(*one).total_cmp(&background.service(*other)));
        let (first, tasklet) = least_service?;
        let mut again = match admission(first, tasklet) {
            Admission::Now { .. } => return Some(Self::Launch(first)),
            Admission::NotBefore(until) => until,
        };
        let mut next: Option<(f64, usize)> = None;
        for (place, tasklet) in background.candidates().filter(|&(place, _)| place != first) {
            let service = background.service(place);
            match admission(place, tasklet) {
                Admission::Now { overrun } if !overrun.is_zero() => {}
                Admission::Now { .. } if next.is_none_or(|(least, _)| service < least) => {
                    next = Some((service, place));
                }
                Admission::Now { .. } => {}
                Admission::NotBefore(until) => again = again.into_iter().chain(until).min(),
            }
        }
        Some(next.map_or(Self::NotBefore(again), |(_, place)| Self::Launch(place)))
    }
}
