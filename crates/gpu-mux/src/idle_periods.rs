//! The rule [`Policy::idle_periods`](crate::Policy::idle_periods), which launches background only
//! where it is expected to finish before the foreground computes again. An *idle period* is a
//! period in which the foreground does not compute; a communication that is launched in it ends one
//! idle period and begins the next. The length of an idle period is learned by the
//! [site](crate::Tasklet::site) of the tasklet before it. The *budget* is the delay that background
//! may still cause to the foreground; the *debt* is its overdraft. Times are measured from the
//! driver's epoch.

use std::time::Duration;

use crate::policy::IdlePeriodFitting;
use crate::seconds::seconds;
use crate::site_averages::SiteAverages;

/// Minimum time between two checks of a budget that is too small.
const MIN_RECHECK: Duration = Duration::from_micros(1);

/// Maximum debt that a long idle period has to compensate before background runs in it. Without a
/// limit, one stall could keep the background from an idle device indefinitely.
const MAX_DEBT: Duration = Duration::from_millis(20);

/// Minimum share of time, so that the background always runs eventually.
const MIN_SHARE: f64 = 1e-4;

/// State of the rule: learned lengths of idle periods, the current one, and the budget.
#[derive(Debug, Clone)]
pub(crate) struct IdlePeriodRule {
    /// Expected length of the idle period that begins at each site.
    expected: SiteAverages,
    /// Expected time from the start of the idle period at each site to the first transfer of the
    /// foreground in it.
    expected_quiet: SiteAverages,
    /// The current idle period. `None` while the foreground computes.
    open: Option<IdlePeriod>,
    budget: Budget,
    /// Background that was in flight when the foreground returned, and for which it waits.
    delay: Option<Delay>,
}

#[derive(Debug, Clone, Copy)]
struct IdlePeriod {
    since: Duration,
    site: Option<u32>,
    /// Expected end.
    ends: Option<Duration>,
    /// Expected start of the first transfer of the foreground, if one is expected and none has
    /// begun.
    transfers: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Delay {
    since: Duration,
    /// Number of those background tasklets that are still in flight.
    tasklets: usize,
    /// Time from `since` until all of them had finished, if they have.
    blocked: Option<Duration>,
}

/// Decision whether a background tasklet may be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may be launched. It is expected to delay the foreground by `overrun`, which may be zero.
    Now { overrun: Duration },
    /// It may not be launched before this time, when to decide again. `None` if waiting cannot
    /// help.
    NotBefore(Option<Duration>),
}

impl IdlePeriodRule {
    /// Creates the state with the maximum budget and no learned lengths.
    pub(crate) fn new(rules: &IdlePeriodFitting) -> Self {
        let weight = fraction(rules.weight);
        let expected = SiteAverages::new(weight, weight);
        Self {
            expected_quiet: expected.clone(),
            expected,
            open: None,
            budget: Budget::new(rules),
            delay: None,
        }
    }

    /// Records the start of an idle period at `since`. `site` is the site of the last foreground
    /// tasklet, if it has one.
    pub(crate) fn begin(&mut self, since: Duration, site: Option<u32>) {
        let ends = self.expected.get(site).map(|period| since.saturating_add(period));
        let transfers = self.expected_quiet.get(site).map(|quiet| since.saturating_add(quiet));
        self.open = Some(IdlePeriod { since, site, ends, transfers });
    }

    /// Records the end of the current idle period at `now`, and learns its length.
    pub(crate) fn end(&mut self, now: Duration) {
        if let Some(period) = self.open.take() {
            self.expected.learn(period.site, now.saturating_sub(period.since));
        }
    }

    /// Records that a communication of the foreground begins to transfer at `now`, and learns the
    /// time from the start of the current idle period to its first transfer.
    pub(crate) fn transfer_begins(&mut self, now: Duration) {
        if let Some(period) = &mut self.open {
            self.expected_quiet.learn(period.site, now.saturating_sub(period.since));
            period.transfers = None;
        }
    }

    /// Charges a delay of the foreground's communication to the budget.
    pub(crate) fn charge(&mut self, delay: Duration) {
        self.budget.charge(delay);
    }

    /// Records that the foreground computes again at `now` while `in_flight` background tasklets
    /// have been launched and not finished, for which it may have to wait.
    pub(crate) fn foreground_computes(&mut self, now: Duration, in_flight: usize) {
        self.delay = (in_flight > 0).then_some(Delay { since: now, tasklets: in_flight, blocked: None });
    }

    /// Records that a background tasklet is no longer in flight since `now`.
    pub(crate) fn background_ended(&mut self, now: Duration) {
        if let Some(delay) = &mut self.delay {
            delay.tasklets = delay.tasklets.saturating_sub(1);
            if delay.tasklets == 0 {
                delay.blocked.get_or_insert(now.saturating_sub(delay.since));
            }
        }
    }

    /// Charges to the budget the delay of the first foreground compute tasklet that may have waited
    /// for background. It has finished at `now`, after `took`. The delay is at most the time beyond
    /// the tasklet's own duration, and at most the time for which background was in its way. The
    /// own duration is the estimate, limited to the measured time.
    pub(crate) fn foreground_finished(&mut self, now: Duration, estimate: Option<Duration>, took: Duration) {
        if let Some(delay) = self.delay.take() {
            let own = estimate.unwrap_or_default().min(took);
            let longer = now.saturating_sub(delay.since).saturating_sub(own);
            self.budget.charge(delay.blocked.map_or(longer, |blocked| blocked.min(longer)));
        }
    }

    /// Decides at `now` whether a background tasklet may be launched. It would start at `starts`
    /// and run for `takes`. `served` is the last time at which a tasklet of its job was launched.
    ///
    /// A delay is acceptable if the tasklet uses at least as much of the idle period. A job whose
    /// tasklets never fit runs one of them each time that the whole budget could have accrued. The
    /// expected end is ignored once the idle period has lasted so long that the budget which
    /// accrued in it covers the tasklet and the debt.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        starts: Duration,
        takes: Duration,
        served: Duration,
    ) -> Admission {
        self.admit_before(self.open.and_then(|period| period.ends), now, starts, takes, served)
    }

    /// Decides at `now` whether a collective may be launched that runs for `takes`, and returns
    /// the expected end of the time for it: the end of the idle period, or the start of the
    /// foreground's next transfer. Otherwise as [`admit`](Self::admit).
    pub(crate) fn admit_collective(
        &mut self,
        now: Duration,
        takes: Duration,
        served: Duration,
    ) -> (Admission, Option<Duration>) {
        let ends = self.open.and_then(|period| period.ends.into_iter().chain(period.transfers).min());
        (self.admit_before(ends, now, now, takes, served), ends)
    }

    fn admit_before(
        &mut self,
        ends: Option<Duration>,
        now: Duration,
        starts: Duration,
        takes: Duration,
        served: Duration,
    ) -> Admission {
        // The foreground may return at any moment while it is late by less than `takes`. After that
        // its return is not predictable.
        let given_up = ends.map(|ends| ends.saturating_add(takes)).filter(|&given_up| now < given_up);
        let overrun = match (ends, given_up) {
            (Some(ends), Some(_)) if now < ends => starts.saturating_add(takes).saturating_sub(ends),
            (_, Some(_)) => takes,
            _ => Duration::ZERO,
        };
        let is_worth_it = overrun <= takes / 2;
        let shortfall = self.budget.shortfall(now, overrun);
        if is_worth_it && shortfall <= 0.0 {
            return Admission::Now { overrun };
        }
        let debt = self.budget.debt().min(MAX_DEBT);
        let long_away = self.open.map(|period| {
            period.since.saturating_add(self.budget.time_to_accrue(takes.saturating_add(debt)))
        });
        if long_away.is_some_and(|long_away| long_away <= now) {
            return Admission::Now { overrun: Duration::ZERO };
        }
        let patient = served.saturating_add(self.budget.time_to_accrue(self.budget.max()));
        let impatient = !is_worth_it && now < patient;
        let again = match (impatient, shortfall > 0.0) {
            (false, false) => return Admission::Now { overrun },
            (true, _) => patient,
            (false, true) => now.saturating_add(self.budget.time_to_cover(shortfall)),
        };
        let given_up = given_up.filter(|_| impatient || !self.budget.is_overdrawn());
        let first = [Some(again), given_up, long_away].into_iter().flatten().min();
        let first = first.filter(|&first| first < Duration::MAX);
        Admission::NotBefore(first.map(|first| first.max(now.saturating_add(MIN_RECHECK))))
    }
}

/// The remaining delay budget, in seconds; negative if a delay exceeded it.
#[derive(Debug, Clone)]
struct Budget {
    share: f64,
    max: f64,
    left: f64,
    as_of: Duration,
}

impl Budget {
    fn new(rules: &IdlePeriodFitting) -> Self {
        let max = rules.credit.as_secs_f64();
        Self { share: fraction(rules.delay_share).max(MIN_SHARE), max, left: max, as_of: Duration::ZERO }
    }

    fn charge(&mut self, delay: Duration) {
        self.left -= delay.as_secs_f64();
    }

    fn is_overdrawn(&self) -> bool {
        self.left < 0.0
    }

    fn debt(&self) -> Duration {
        seconds(-self.left)
    }

    fn max(&self) -> Duration {
        seconds(self.max)
    }

    /// Returns the time in which this delay accrues.
    fn time_to_accrue(&self, delay: Duration) -> Duration {
        seconds(delay.as_secs_f64() / self.share)
    }

    /// Returns the time in which a shortfall accrues.
    fn time_to_cover(&self, shortfall: f64) -> Duration {
        // The factor keeps rounding from leaving it short indefinitely.
        seconds(shortfall / self.share * (1.0 + 1e-9))
    }

    /// Updates the budget to `now` and returns the seconds by which it falls short of `delay` (or
    /// of its maximum, if that is less); zero or negative if it suffices.
    fn shortfall(&mut self, now: Duration, delay: Duration) -> f64 {
        let passed = now.saturating_sub(self.as_of).as_secs_f64();
        self.left = (self.left + self.share * passed).min(self.max);
        self.as_of = now;
        delay.as_secs_f64().min(self.max) - self.left
    }
}

/// Clamps to 0..=1; NaN becomes 0.
fn fraction(figure: f64) -> f64 {
    if figure.is_nan() { 0.0 } else { figure.clamp(0.0, 1.0) }
}
