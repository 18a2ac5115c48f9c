use std::time::Duration;

use crate::Tasklet;
use crate::background::Background;
use crate::gaps::{Admission, GapFitting};

/// What comes of a background that nothing but time holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The next tasklet of the job in this place.
    Launch(usize),
    /// To be asked again then, if time alone can help.
    NotBefore(Option<Duration>),
}

impl Turn {
    /// `None` when no job has anything that it may launch. `gaps` is none while the foreground computes, or without that
    /// rule.
    ///
    /// The job that was served least is next. Where it cannot have its turn the others may go on, but not spend what it
    /// waits for: a job with long pieces would never see the budget full.
    pub(crate) fn of(background: &Background, gaps: Option<&mut GapFitting>, now: Duration) -> Option<Self> {
        let starts = background.free_at(now);
        let mut gaps = gaps;
        let mut admission = |place: usize, tasklet: &Tasklet| match &mut gaps {
            Some(gaps) => gaps.admit(now, starts, background.expected(tasklet), background.last(place)),
            None => Admission::Now { overrun: Duration::ZERO },
        };
        let least = background
            .candidates()
            .min_by(|(one, _), (other, _)| background.turn(*one).total_cmp(&background.turn(*other)));
        let (first, tasklet) = least?;
        let mut again = match admission(first, tasklet) {
            Admission::Now { .. } => return Some(Self::Launch(first)),
            Admission::NotBefore(until) => until,
        };
        let mut next: Option<(f64, usize)> = None;
        for (place, tasklet) in background.candidates().filter(|&(place, _)| place != first) {
            let served = background.turn(place);
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
