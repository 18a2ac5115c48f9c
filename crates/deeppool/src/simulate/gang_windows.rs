//! The gang windows of distributed background jobs in a simulation. The ranks of the
//! [gangs](gpu_mux::Gangs) are the classes of equal ranks, of which one rank each is simulated. A
//! *window* of a job is an interval in which the foreground is idle on all its members.

use std::collections::BTreeMap;
use std::time::Duration;

use gpu_mux::{GangEvent, GangId, Gangs, Grant};

use super::DistributedBackground;
use super::member::Arrival;
use super::rank::Rank;
use super::steps::RankClass;
use crate::Error;

/// Parts of a piece of a collective that are tried, from the longest, until one fits into the
/// window. None is shorter than twice its latency.
const PARTS: [u32; 4] = [1, 2, 4, 8];

/// The distributed background jobs of a simulation: the gangs of their collectives, and their
/// windows.
pub(super) struct GangWindows {
    gangs: Gangs,
    /// Gang of each collective of each job, by job and then by collective.
    gang_of: Vec<Vec<Option<GangId>>>,
    /// State of each gang.
    states: Vec<GangState>,
    /// Gangs of each class.
    of_class: Vec<Vec<GangId>>,
    /// Classes with events since the last decision.
    changed: Vec<bool>,
    /// Time at which to decide again.
    wake: Option<Duration>,
    windows: Vec<JobWindows>,
    /// Whether the foreground is idle on each class, and whether background is on the device.
    activity: Vec<(bool, bool)>,
}

struct GangState {
    job: usize,
    /// Arrival of the members at a piece of a collective.
    arrival: Option<Arrival>,
    /// Duration of the piece for which members have been asked last.
    takes: Duration,
    /// Number of classes on which the last collective runs.
    running: usize,
    /// Expected end of the last collective.
    ends: Duration,
}

/// Progress of a distributed background job up to a time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JobProgress {
    /// Samples trained on. A part of an iteration counts.
    pub(super) samples: f64,
    /// Number of launched pieces of collectives.
    pub(super) collectives: u64,
    /// Sum of the times for which all members waited for a window.
    pub(super) waited: Duration,
    /// Number of windows that have begun.
    pub(super) windows: u64,
    /// Time in windows.
    pub(super) window_time: Duration,
    /// Mean over the members of the time in windows with background on the device, in seconds.
    pub(super) used: f64,
}

/// The windows of a job so far.
struct JobWindows {
    /// The classes of its members, each with its number of ranks.
    classes: Vec<(usize, usize)>,
    since: Duration,
    is_open: bool,
    progress: JobProgress,
}

impl GangWindows {
    /// Creates the gangs of `jobs`, whose members are in `classes`.
    ///
    /// # Errors
    /// [`Error::Mux`] if a collective has no members.
    pub(super) fn new(jobs: &[DistributedBackground], classes: &[RankClass<'_>]) -> Result<Self, Error> {
        let mut gangs = Gangs::new(classes.len());
        let (mut gang_of, mut states) = (Vec::new(), Vec::new());
        let mut of_class: Vec<Vec<GangId>> = vec![Vec::new(); classes.len()];
        let mut windows = Vec::new();
        for (job, background) in jobs.iter().enumerate() {
            let runs = |class: &RankClass<'_>| class.members.iter().any(|&(of, _)| of == job);
            let members = classes.iter().enumerate().filter(|(_, class)| runs(class));
            let members: Vec<(usize, usize)> = members.map(|(index, class)| (index, class.ranks)).collect();
            let mut known: BTreeMap<Vec<usize>, GangId> = BTreeMap::new();
            let mut of_job = Vec::new();
            for collective in &background.collectives {
                let takes_part = |&(index, _): &(usize, usize)| {
                    let first = classes[index].represented_ranks.first();
                    first.is_some_and(|rank| collective.ranks.binary_search(rank).is_ok()).then_some(index)
                };
                let places: Vec<usize> = members.iter().filter_map(takes_part).collect();
                if places.is_empty() {
                    of_job.push(None);
                    continue;
                }
                let id = if let Some(&id) = known.get(&places) {
                    id
                } else {
                    let id = gangs.add(places.iter().copied())?;
                    for &class in &places {
                        of_class[class].push(id);
                    }
                    let zero = Duration::ZERO;
                    states.push(GangState { job, arrival: None, takes: zero, running: 0, ends: zero });
                    known.insert(places, id);
                    id
                };
                of_job.push(Some(id));
            }
            gang_of.push(of_job);
            let progress = JobProgress::default();
            windows.push(JobWindows { classes: members, since: Duration::ZERO, is_open: true, progress });
        }
        Ok(Self {
            gangs,
            gang_of,
            states,
            of_class,
            changed: vec![false; classes.len()],
            wake: None,
            windows,
            activity: vec![(true, false); classes.len()],
        })
    }

    /// Whether there are no distributed background jobs.
    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns the time at which to [decide](Self::decide) again without another event.
    pub(super) fn wake(&self) -> Option<Duration> {
        self.wake
    }

    /// Returns the expected end of the collectives in flight on a class; 0 if there are none.
    pub(super) fn links_free(&self, class: usize) -> Duration {
        let of_class = self.of_class[class].iter().map(|gang| &self.states[gang.0]);
        of_class.filter(|gang| gang.running > 0).map(|gang| gang.ends).max().unwrap_or_default()
    }

    /// Records the events of a class up to `now`.
    pub(super) fn changed(&mut self, class: usize, rank: &Rank<'_>, now: Duration) {
        if self.is_empty() {
            return;
        }
        self.changed[class] = true;
        let activity = rank.activity();
        if activity != self.activity[class] {
            self.record(now, Some(class));
            self.activity[class] = activity;
            self.open_windows(class);
        }
    }

    /// Adds the time up to `now` to the windows of the jobs of a class, or of all jobs.
    fn record(&mut self, now: Duration, class: Option<usize>) {
        let activity = &self.activity;
        for job in &mut self.windows {
            if class.is_some_and(|class| job.classes.iter().all(|&(member, _)| member != class)) {
                continue;
            }
            let passed = now.saturating_sub(job.since);
            job.since = now.max(job.since);
            if job.is_open {
                let all: usize = job.classes.iter().map(|(_, ranks)| ranks).sum();
                let busy = job.classes.iter().filter(|&&(member, _)| activity[member].1);
                let busy: usize = busy.map(|(_, ranks)| ranks).sum();
                job.progress.window_time += passed;
                job.progress.used += passed.as_secs_f64() * busy as f64 / all.max(1) as f64;
            }
        }
    }

    fn open_windows(&mut self, class: usize) {
        let activity = &self.activity;
        for job in &mut self.windows {
            if job.classes.iter().any(|&(member, _)| member == class) {
                let is_open = job.classes.iter().all(|&(member, _)| activity[member].0);
                job.progress.windows += u64::from(is_open && !job.is_open);
                job.is_open = is_open;
            }
        }
    }

    /// Handles the arrivals and ends of collectives at `now`, and launches the collectives that all
    /// members have granted. Appends the classes whose devices have new work to `launched`.
    ///
    /// # Errors
    /// [`Error::Mux`] if a device refuses a launch.
    pub(super) fn decide(
        &mut self,
        ranks: &mut [Rank<'_>],
        now: Duration,
        launched: &mut Vec<usize>,
    ) -> Result<(), Error> {
        let is_due = self.wake.is_some_and(|wake| wake <= now);
        let mut gangs: Vec<GangId> = Vec::new();
        for class in 0..ranks.len() {
            if std::mem::take(&mut self.changed[class]) {
                self.report(class, ranks, now, launched)?;
                gangs.extend(&self.of_class[class]);
            }
        }
        if is_due {
            self.wake = None;
            gangs = (0..self.states.len()).map(GangId).collect();
        }
        gangs.sort_unstable();
        gangs.dedup();
        for gang in gangs {
            self.ask(gang, ranks, now)?;
        }
        while let Some(gang) = self.gangs.poll_launch() {
            let state = &mut self.states[gang.0];
            state.ends = now.saturating_add(state.takes);
            for class in self.gangs.members(gang) {
                ranks[class].launch_collective(state.job, state.takes)?;
                state.running += 1;
                launched.push(class);
            }
        }
        Ok(())
    }

    /// Reports the ends and arrivals of a class to the gangs.
    fn report(
        &mut self,
        class: usize,
        ranks: &mut [Rank<'_>],
        now: Duration,
        launched: &mut Vec<usize>,
    ) -> Result<(), Error> {
        if !self.activity[class].0 {
            self.gangs.handle(now, GangEvent::Withdraw { rank: class })?;
        }
        for job in ranks[class].jobs.ended_collectives() {
            let Some(gang) = self.running_gang(job, class) else { continue };
            self.gangs.handle(now, GangEvent::Finish { gang, rank: class })?;
            self.states[gang.0].running -= 1;
            if self.states[gang.0].running == 0 {
                for member in self.gangs.members(gang) {
                    if let Some(of_job) = ranks[member].jobs.member_mut(job) {
                        of_job.end_collective();
                    }
                    self.changed[member] = true;
                    launched.push(member);
                }
            }
        }
        for (job, arrival) in ranks[class].jobs.arrivals() {
            if let Some(gang) = self.gang_of[job][arrival.collective] {
                self.states[gang.0].arrival = Some(arrival);
                self.gangs.handle(now, GangEvent::Arrive { gang, rank: class })?;
            }
        }
        Ok(())
    }

    /// Returns the gang of a job whose collective runs on a class. There is at most one, because a
    /// member arrives at a collective when the one before has ended on all its ranks.
    fn running_gang(&self, job: usize, class: usize) -> Option<GangId> {
        let runs = |gang: &GangId| self.states[gang.0].job == job && self.states[gang.0].running > 0;
        self.of_class[class].iter().copied().find(runs)
    }

    /// Asks all members of a gang for grants of the longest piece that all of them grant, if grants
    /// matter.
    fn ask(&mut self, gang: GangId, ranks: &mut [Rank<'_>], now: Duration) -> Result<(), Error> {
        if !self.gangs.awaits_grants(gang) {
            return Ok(());
        }
        let Some(arrival) = self.states[gang.0].arrival else { return Ok(()) };
        for part in PARTS {
            let transfer = arrival.transfer / part;
            if part > 1 && transfer < arrival.latency {
                break;
            }
            self.states[gang.0].takes = arrival.latency + transfer;
            if self.ask_for(gang, ranks, now)? {
                break;
            }
        }
        Ok(())
    }

    /// Asks all members of a gang for grants, and returns whether all grant.
    fn ask_for(&mut self, gang: GangId, ranks: &mut [Rank<'_>], now: Duration) -> Result<bool, Error> {
        let takes = self.states[gang.0].takes;
        let mut all_grant = true;
        for rank in self.gangs.members(gang).collect::<Vec<_>>() {
            match ranks[rank].grant(now, takes) {
                Grant::Until(until) => {
                    self.gangs.handle(now, GangEvent::Grant { gang, rank, until })?;
                }
                Grant::NotBefore(until) => {
                    all_grant = false;
                    self.gangs.handle(now, GangEvent::Refuse { gang, rank })?;
                    self.wake = self.wake.into_iter().chain(until.filter(|&until| until > now)).min();
                }
            }
        }
        Ok(all_grant)
    }

    /// Returns the progress of each job up to `now`, to which all ranks have been advanced.
    pub(super) fn progress(&mut self, ranks: &[Rank<'_>], now: Duration) -> Vec<JobProgress> {
        self.record(now, None);
        let jobs = self.windows.iter().enumerate().map(|(index, job)| {
            let of_class =
                |&(class, count): &(usize, usize)| count as f64 * ranks[class].jobs.samples_of(index);
            let mut progress = job.progress;
            progress.samples = job.classes.iter().map(of_class).sum();
            for (gang, _) in self.states.iter().enumerate().filter(|(_, gang)| gang.job == index) {
                let outcome = self.gangs.outcome(GangId(gang)).unwrap_or_default();
                progress.collectives += outcome.launched;
                progress.waited += outcome.waited;
            }
            progress
        });
        jobs.collect()
    }
}
