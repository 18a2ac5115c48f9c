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
    /// Quiet periods, in which collectives of distributed background jobs run.
    quiet: QuietPeriods,
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
        Self { quiet: QuietPeriods::default(), expected, open: None, budget: Budget::new(rules), delay: None }
    }

    /// Records the start of an idle period at `since`. `site` is the site of the last foreground
    /// tasklet, if it has one.
    pub(crate) fn begin(&mut self, since: Duration, site: Option<u32>) {
        let ends = self.expected.get(site).map(|period| since.saturating_add(period));
        self.open = Some(IdlePeriod { since, site, ends });
    }

    /// Records the end of the current idle period at `now`, and learns its length.
    pub(crate) fn end(&mut self, now: Duration) {
        if let Some(period) = self.open.take() {
            self.expected.learn(period.site, now.saturating_sub(period.since));
        }
    }

    /// Returns the quiet periods, to record when they begin and end.
    pub(crate) fn quiet(&mut self) -> &mut QuietPeriods {
        &mut self.quiet
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
        let ends = self.open.and_then(|period| period.ends);
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

    /// Decides at `now` whether a collective that takes `takes` may be launched in the current
    /// quiet period. Returns the latest start, [`Duration::MAX`] if there is none, or the time
    /// before which to decide again.
    ///
    /// Unlike [`admit`](Self::admit), it does not spend the budget: a collective delays the
    /// foreground on all its ranks. Without a prediction, or after the predicted end, the period
    /// has to last until the budget that accrued in it covers the collective and the debt.
    pub(crate) fn admit_collective(&mut self, now: Duration, takes: Duration) -> Result<Duration, Duration> {
        let shortfall = self.budget.shortfall(now, Duration::ZERO);
        let Some((since, ends)) = self.quiet.open() else { return Ok(Duration::MAX) };
        let debt = self.budget.debt().min(MAX_DEBT);
        let long_away = since.saturating_add(self.budget.time_to_accrue(takes.saturating_add(debt)));
        if now >= long_away {
            return Ok(Duration::MAX);
        }
        let latest = ends.and_then(|ends| ends.checked_sub(takes)).filter(|&latest| now <= latest);
        match latest {
            Some(latest) if shortfall <= 0.0 => Ok(latest),
            Some(latest) => {
                let covered = now.saturating_add(self.budget.time_to_cover(shortfall));
                Err(if covered <= latest { covered.max(now.saturating_add(MIN_RECHECK)) } else { long_away })
            }
            None => Err(long_away),
        }
    }
}

/// Fraction by which a longer quiet period changes the expectation; a shorter one replaces it.
const QUIET_RISE: f64 = 0.2;

/// Periods in which the foreground neither computes nor transfers. Their length is learned by the
/// site of the foreground's tasklet whose end begins them. The expectation is cautious: it follows
/// shorter periods at once.
#[derive(Debug, Clone)]
pub(crate) struct QuietPeriods {
    expected: SiteAverages,
    open: Option<(Duration, Option<u32>)>,
}

impl Default for QuietPeriods {
    fn default() -> Self {
        Self { expected: SiteAverages::new(1.0, QUIET_RISE), open: None }
    }
}

impl QuietPeriods {
    /// Records the start of a quiet period at `since`, after a tasklet at `site`.
    pub(crate) fn begin(&mut self, since: Duration, site: Option<u32>) {
        self.open = Some((since, site));
    }

    /// Records the end of the quiet period at `now`, if there is one, and learns its length.
    pub(crate) fn end(&mut self, now: Duration) {
        if let Some((since, site)) = self.open.take() {
            self.expected.learn(site, now.saturating_sub(since));
        }
    }

    /// Returns the start and the expected end of the current quiet period.
    fn open(&self) -> Option<(Duration, Option<Duration>)> {
        let (since, site) = self.open?;
        Some((since, self.expected.get(site).map(|length| since.saturating_add(length))))
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
