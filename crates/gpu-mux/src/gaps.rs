use std::time::Duration;

use crate::by_site::BySite;
use crate::policy::Gaps;
use crate::seconds::seconds;

/// The least time between two looks at a budget that is too small.
const PAUSE: Duration = Duration::from_micros(1);

/// A debt above this is not made good before a foreground that stays away is believed to do so: one stall must not
/// keep the background from an idle device for ever.
const MOST_DEBT: Duration = Duration::from_millis(20);

/// The smallest part of the time that counts, so that the background never waits for ever.
const LEAST_SHARE: f64 = 1e-4;

/// What is known of the foreground's gaps, and what it may still be delayed.
#[derive(Debug, Clone)]
pub(crate) struct GapFitting {
    /// How long the gap is expected to be that begins at a site.
    expected: BySite,
    /// The gap that the foreground is in.
    open: Option<Gap>,
    budget: Budget,
    /// The foreground waits for background that was in flight when it came back.
    delay: Option<Delay>,
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    since: Duration,
    site: Option<u32>,
    /// When it is expected to end.
    ends: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Delay {
    since: Duration,
    /// Background tasklets that were in flight and still are.
    tasklets: usize,
    /// How long it took until they had ended, if they have.
    blocked: Option<Duration>,
}

/// Whether a background tasklet may be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may, and is expected to delay the foreground by this.
    Now { overrun: Duration },
    /// To be asked again then, if time alone can help.
    NotBefore(Option<Duration>),
}

impl GapFitting {
    pub(crate) fn new(rules: &Gaps) -> Self {
        let weight = fraction(rules.weight);
        let expected = BySite::new(weight, weight);
        Self { expected, open: None, budget: Budget::new(rules), delay: None }
    }

    /// The foreground leaves the device alone; `site` is where it does so.
    pub(crate) fn begin(&mut self, since: Duration, site: Option<u32>) {
        let ends = self.expected.get(site).map(|gap| since.saturating_add(gap));
        self.open = Some(Gap { since, site, ends });
    }

    /// The foreground needs the device again.
    pub(crate) fn end(&mut self, now: Duration) {
        if let Some(gap) = self.open.take() {
            self.expected.learn(gap.site, now.saturating_sub(gap.since));
        }
    }

    /// The foreground computes again, and finds this many background tasklets in flight.
    pub(crate) fn find(&mut self, now: Duration, in_flight: usize) {
        self.delay = (in_flight > 0).then_some(Delay { since: now, tasklets: in_flight, blocked: None });
    }

    /// A background tasklet is no longer in flight.
    pub(crate) fn background_ended(&mut self, now: Duration) {
        if let Some(delay) = &mut self.delay {
            delay.tasklets = delay.tasklets.saturating_sub(1);
            if delay.tasklets == 0 {
                delay.blocked.get_or_insert(now.saturating_sub(delay.since));
            }
        }
    }

    /// A foreground compute tasklet has finished: the first that may have waited tells how long. It was not delayed for
    /// longer than it took beyond its own time, nor by more than the background that was in its way. Its own time is its
    /// estimate, if that is not more than it took.
    pub(crate) fn foreground_finished(&mut self, now: Duration, estimate: Option<Duration>, took: Duration) {
        if let Some(delay) = self.delay.take() {
            let own = estimate.unwrap_or_default().min(took);
            let longer = now.saturating_sub(delay.since).saturating_sub(own);
            self.budget.charge(delay.blocked.map_or(longer, |blocked| blocked.min(longer)));
        }
    }

    /// Whether a background tasklet may be launched that begins at `starts` and then takes `takes`, of a job that was
    /// last served at `served`.
    ///
    /// A delay is worth its price where at least as much of the gap is used. What never fits has its turn all the
    /// same, once in the time in which the budget is saved up. A foreground that has been away for so long that the
    /// delay, and what the budget lacks, is within its share of the gap alone is not waited for.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        starts: Duration,
        takes: Duration,
        served: Duration,
    ) -> Admission {
        let ends = self.open.and_then(|gap| gap.ends);
        // A foreground that is late by no more than this may come at any moment; after that its return cannot be predicted.
        let given_up = ends.map(|ends| ends.saturating_add(takes)).filter(|&given_up| now < given_up);
        let overrun = match (ends, given_up) {
            (Some(ends), Some(_)) if now < ends => starts.saturating_add(takes).saturating_sub(ends),
            (_, Some(_)) => takes,
            _ => Duration::ZERO,
        };
        let is_worth_it = overrun <= takes / 2;
        let lacking = self.budget.lacks(now, overrun);
        if is_worth_it && lacking <= 0.0 {
            return Admission::Now { overrun };
        }
        let debt = self.budget.debt().min(MOST_DEBT);
        let long_away =
            self.open.map(|gap| gap.since.saturating_add(self.budget.saves(takes.saturating_add(debt))));
        if long_away.is_some_and(|long_away| long_away <= now) {
            return Admission::Now { overrun: Duration::ZERO };
        }
        let patient = served.saturating_add(self.budget.saves(self.budget.most()));
        let impatient = !is_worth_it && now < patient;
        let again = match (impatient, lacking > 0.0) {
            (false, false) => return Admission::Now { overrun },
            (true, _) => patient,
            (false, true) => now.saturating_add(self.budget.makes_good(lacking)),
        };
        let given_up = given_up.filter(|_| impatient || !self.budget.is_overdrawn());
        let first = [Some(again), given_up, long_away].into_iter().flatten().min();
        let first = first.filter(|&first| first < Duration::MAX);
        Admission::NotBefore(first.map(|first| first.max(now.saturating_add(PAUSE))))
    }
}

/// The delay that is left to be spent, in seconds: below zero after a delay that was not covered.
#[derive(Debug, Clone)]
struct Budget {
    share: f64,
    most: f64,
    left: f64,
    as_of: Duration,
}

impl Budget {
    fn new(rules: &Gaps) -> Self {
        let most = rules.credit.as_secs_f64();
        Self { share: fraction(rules.delay_share).max(LEAST_SHARE), most, left: most, as_of: Duration::ZERO }
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

    fn most(&self) -> Duration {
        seconds(self.most)
    }

    /// How long it takes to save this up.
    fn saves(&self, delay: Duration) -> Duration {
        seconds(delay.as_secs_f64() / self.share)
    }

    /// How long it takes to make good what it lacks.
    fn makes_good(&self, lacking: f64) -> Duration {
        // Rounding must not leave it short for ever.
        seconds(lacking / self.share * (1.0 + 1e-9))
    }

    /// By how many seconds what is left by now falls short of a delay, or of all that can be saved up, if that is less;
    /// zero or less when it does not.
    fn lacks(&mut self, now: Duration, delay: Duration) -> f64 {
        let passed = now.saturating_sub(self.as_of).as_secs_f64();
        self.left = (self.left + self.share * passed).min(self.most);
        self.as_of = now;
        delay.as_secs_f64().min(self.most) - self.left
    }
}

/// A figure from 0 to 1; what is no number counts as 0.
fn fraction(figure: f64) -> f64 {
    if figure.is_nan() { 0.0 } else { figure.clamp(0.0, 1.0) }
}
