//! Choice of the background job whose tasklet is launched next. The *service* of a job is the
//! device time that it has received divided by its weight. *Gap fitting* is the rule that launches
//! background only where it is expected to finish before the foreground computes again, or where
//! its *budget* covers the delay.

use std::time::Duration;

use crate::Tasklet;
use crate::background::Background;
use crate::gaps::{Admission, GapFitting};

/// Decision whether a background tasklet is launched now, after all rules except gap fitting have
/// permitted it.
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
    /// launch. `gaps` is `None` while the foreground computes, or if gap fitting is off.
    ///
    /// The job with the least service goes first. If it is not admitted, another job may run
    /// instead, but not at the cost of the delay budget: otherwise a job with long pieces would
    /// never find the budget full.
    pub(crate) fn new(background: &Background, gaps: Option<&mut GapFitting>, now: Duration) -> Option<Self> {
        let starts = background.free_at(now);
        let mut gaps = gaps;
        let mut admission = |place: usize, tasklet: &Tasklet| match &mut gaps {
            Some(gaps) => gaps.admit(now, starts, background.expected(tasklet), background.last(place)),
            None => Admission::Now { overrun: Duration::ZERO },
        };
        let least_served = background
            .candidates()
            .min_by(|(one, _), (other, _)| background.served(*one).total_cmp(&background.served(*other)));
        let (first, tasklet) = least_served?;
        let mut again = match admission(first, tasklet) {
            Admission::Now { .. } => return Some(Self::Launch(first)),
            Admission::NotBefore(until) => until,
        };
        let mut next: Option<(f64, usize)> = None;
        for (place, tasklet) in background.candidates().filter(|&(place, _)| place != first) {
            let served = background.served(place);
            match admission(place, tasklet) {
                Admission::Now { overrun } if !overrun.is_zero() => {}
                Admission::Now { .. } if next.is_none_or(|(least, _)| served < least) => {
                    next = Some((served, place));
                }
                Admission::Now { .. } => {}
                Admission::NotBefore(until) => again = again.into_iter().chain(until).min(),
            }
        }
        Some(next.map_or(Self::NotBefore(again), |(_, place)| Self::Launch(place)))
    }
}
