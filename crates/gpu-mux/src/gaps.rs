use std::time::Duration;

use crate::policy::Gaps;

/// Sites above this are not learned: what is remembered of a job stays bounded.
const SITES: usize = 1 << 16;

/// The least time between two looks at a budget that is too small.
const PAUSE: Duration = Duration::from_micros(1);

/// What is known of the foreground's gaps, and what it may still be delayed.
#[derive(Debug, Clone)]
pub(crate) struct GapFitting {
    rules: Gaps,
    /// By site: how long the gap is expected to be that begins there.
    expected: Vec<Option<Duration>>,
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
    Now,
    /// To be asked again then, if time alone can help.
    NotBefore(Option<Duration>),
}

impl GapFitting {
    pub(crate) fn new(rules: Gaps) -> Self {
        Self { rules, expected: Vec::new(), open: None, budget: Budget::new(&rules), delay: None }
    }

    /// The foreground leaves the device alone; `site` is where it does so.
    pub(crate) fn begin(&mut self, since: Duration, site: Option<u32>) {
        let expected = site.and_then(|site| self.expected.get(site as usize).copied().flatten());
        self.open = Some(Gap { since, site, ends: expected.map(|gap| since.saturating_add(gap)) });
    }

    /// The foreground needs the device again.
    pub(crate) fn end(&mut self, now: Duration) {
        if let Some(gap) = self.open.take() {
            self.learn(gap.site, now.saturating_sub(gap.since));
        }
    }

    /// The foreground computes again, and finds this many background tasklets in flight.
    pub(crate) fn find(&mut self, now: Duration, in_flight: usize) {
        self.delay = (in_flight > 0).then_some(Delay { since: now, tasklets: in_flight, blocked: None });
    }

    fn learn(&mut self, site: Option<u32>, length: Duration) {
        let Some(site) = site.map(|site| site as usize).filter(|&site| site < SITES) else { return };
        if self.expected.len() <= site {
            self.expected.resize(site + 1, None);
        }
        let weight = self.rules.weight.clamp(0.0, 1.0);
        let known = self.expected[site].unwrap_or(length);
        self.expected[site] = Some(known.mul_f64(1.0 - weight).saturating_add(length.mul_f64(weight)));
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
    /// longer than it took beyond its own time, nor by more than the background that was in its way.
    pub(crate) fn foreground_finished(&mut self, now: Duration, estimate: Option<Duration>) {
        if let Some(delay) = self.delay.take() {
            let longer = now.saturating_sub(delay.since).saturating_sub(estimate.unwrap_or_default());
            self.budget.charge(delay.blocked.map_or(longer, |blocked| blocked.min(longer)));
        }
    }

    /// Whether a background tasklet may be launched that begins at `starts` and then takes `takes`, of a job that was
    /// last served at `served`.
    ///
    /// A delay is worth its price where at least as much of the gap is used. What never fits has its turn all the
    /// same, once in the time in which the budget is saved up.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        starts: Duration,
        takes: Duration,
        served: Duration,
    ) -> Admission {
        let ends = self.open.and_then(|gap| gap.ends);
        // A foreground that is late by no more than this may come at any moment; after that nobody knows.
        let given_up = ends.map(|ends| ends.saturating_add(takes)).filter(|&given_up| now < given_up);
        let overrun = match (ends, given_up) {
            (Some(ends), Some(_)) if now < ends => starts.saturating_add(takes).saturating_sub(ends),
            (_, Some(_)) => takes,
            _ => Duration::ZERO,
        };
        let patient = Some(self.budget.saved_up_from(served)).filter(|&at| overrun > takes / 2 && now < at);
        let covered = self.budget.covers(now, overrun);
        let again = match (covered, patient) {
            (Ok(()), None) => return Admission::Now,
            (Ok(()), patient) => earlier(patient, given_up),
            (Err(covered), _) if self.budget.is_overdrawn() => covered,
            (Err(covered), patient) => earlier(covered.max(patient), given_up),
        };
        let again = again.filter(|&again| again < Duration::MAX);
        Admission::NotBefore(again.map(|again| again.max(now.saturating_add(PAUSE))))
    }
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
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
        Self { share: rules.delay_share.clamp(0.0, 1.0), most, left: most, as_of: Duration::ZERO }
    }

    fn charge(&mut self, delay: Duration) {
        self.left -= delay.as_secs_f64();
    }

    /// When it has grown from nothing to the most since then.
    fn saved_up_from(&self, since: Duration) -> Duration {
        let all = Duration::try_from_secs_f64(self.most / self.share);
        all.map_or(Duration::MAX, |all| since.saturating_add(all))
    }

    fn is_overdrawn(&self) -> bool {
        self.left < 0.0
    }

    /// Whether what is left by now covers a delay, or all that can be saved up, if that is less; otherwise when it
    /// will.
    fn covers(&mut self, now: Duration, delay: Duration) -> Result<(), Option<Duration>> {
        let passed = now.saturating_sub(self.as_of).as_secs_f64();
        self.left = (self.left + self.share * passed).min(self.most);
        self.as_of = now;
        let lacking = delay.as_secs_f64().min(self.most) - self.left;
        if lacking <= 0.0 {
            return Ok(());
        }
        // Rounding must not leave it short for ever.
        let wait = Duration::try_from_secs_f64(lacking / self.share * (1.0 + 1e-9));
        Err(wait.ok().and_then(|wait| now.checked_add(wait)))
    }
}
