//! The rule [`Policy::tasklet_feedback`](crate::Policy::tasklet_feedback): background is withheld
//! (not launched) because of the foreground's current tasklet, the oldest that has been launched
//! and has not finished.

use std::time::Duration;

use crate::policy::TaskletFeedback;
use crate::site_averages::entry_of;
use crate::{Communication, Lane, Tasklet};

/// State of the rule: recent slow-down (measured time divided by estimate) of the foreground's
/// tasklets by site.
#[derive(Debug, Clone)]
pub(crate) struct TaskletFeedbackRule {
    rules: TaskletFeedback,
    /// Moving average of measured time over estimate, by site.
    slowdowns: Vec<Option<f64>>,
}

impl TaskletFeedbackRule {
    /// Creates the rule without measurements.
    pub(crate) fn new(rules: TaskletFeedback) -> Self {
        Self { rules, slowdowns: Vec::new() }
    }

    /// Records that `tasklet` was the foreground's current tasklet for `took`. A tasklet without an
    /// estimate, with a zero estimate or without a site is ignored.
    pub(crate) fn record(&mut self, tasklet: &Tasklet, took: Duration) {
        let Some(alone) = tasklet.estimate.filter(|alone| !alone.is_zero()) else { return };
        let Some(average) = entry_of(&mut self.slowdowns, tasklet.site) else { return };
        let slowdown = took.as_secs_f64() / alone.as_secs_f64();
        let weight = if slowdown > self.rules.limit { self.rules.rise } else { self.rules.fall };
        let known = average.unwrap_or(1.0);
        *average = Some(known + weight * (slowdown - known));
    }

    /// Whether the background is withheld while `tasklet` is the foreground's current tasklet.
    pub(crate) fn withholds(&self, tasklet: &Tasklet) -> bool {
        if tasklet.lane == Lane::Communication {
            match tasklet.communication {
                Communication::AllReduce => return true,
                Communication::Receive
                    if tasklet.estimate.is_some_and(|alone| alone > self.rules.long_receive) =>
                {
                    return false;
                }
                Communication::Receive | Communication::Send => {}
            }
        }
        let known = tasklet.site.and_then(|site| *self.slowdowns.get(site as usize)?);
        known.is_some_and(|slowdown| slowdown > self.rules.limit)
    }
}
