//! New groups: their members meet, and then MPI makes a communicator for them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::ending;
use super::engine::Engine;
use super::group::GroupState;
use super::library::{self, Comm, Failure};
use super::news::LISTEN_EVERY;
use super::operation::GRACE;
use super::pace::Pace;
use super::tags::{self, Kind};
use super::transfer::Transfer;
use super::world::Shared;
use crate::{Call, Error, Operation, Result};

/// What tells one new group from another: the group it is made from, the split (or none, for a list of ranks that were
/// asked for), and its ranks in that group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    pub(super) parent: usize,
    pub(super) split: Option<u64>,
    pub(super) ranks: Vec<usize>,
}

/// Groups that are being made, and those that were asked for by their ranks.
#[derive(Debug, Default)]
pub(super) struct Formations {
    /// `None` while another thread makes it.
    listed: HashMap<Plan, Option<usize>>,
    /// Who has come, with the number that each gave.
    arrivals: HashMap<Plan, HashMap<usize, u64>>,
    /// Arrivals whose words are on their way: the parent, the member and the words.
    arriving: Vec<(usize, usize, Transfer)>,
}

impl Formations {
    /// The groups that were asked for by their ranks in this one, which are no longer listed.
    pub(super) fn forget_those_of(&mut self, parent: usize) -> Vec<usize> {
        let listed = self.listed.iter().filter(|(plan, _)| plan.parent == parent);
        let groups = listed.filter_map(|(_, group)| *group).collect();
        self.listed.retain(|plan, _| plan.parent != parent);
        groups
    }

    /// Members that came to a group which this rank was not asked for.
    pub(super) fn forget_arrivals_of(&mut self, parent: usize) {
        self.arrivals.retain(|plan, _| plan.parent != parent);
    }
}

impl Plan {
    /// This member's message to the others; `founded` is the number that makes the communicator's tag its own.
    fn encode(&self, founded: u64) -> Vec<u64> {
        let ranks = self.ranks.iter().map(|&rank| rank as u64);
        // The numbers of splits begin with 0.
        [founded, self.split.map_or(0, |sequence| sequence + 1)].into_iter().chain(ranks).collect()
    }

    fn decode(parent: usize, words: &[u64]) -> Option<(Self, u64)> {
        let (&[founded, split], ranks) = words.split_first_chunk::<2>()?;
        let ranks = ranks.iter().map(|&rank| rank as usize).collect();
        Some((Self { parent, split: split.checked_sub(1), ranks }, founded))
    }

    fn call(&self) -> Call {
        Call { operation: Operation::Group { ranks: self.ranks.clone() }, element: None }
    }
}

/// Makes a group, or finds it if it is one that was asked for by its ranks before, and holds it for the caller. `place` is
/// this rank's in it.
pub(super) fn form(shared: &Arc<Shared>, plan: &Plan, place: usize) -> Result<usize> {
    if plan.split.is_none() {
        if let Some(group) = claim(shared, plan)? {
            return Ok(group);
        }
    }
    let made = make(shared, plan, place);
    let mut engine = shared.engine();
    if plan.split.is_none() {
        match made {
            Ok(group) => {
                engine.hold(group);
                engine.formations.listed.insert(plan.clone(), Some(group));
            }
            Err(_) => {
                engine.formations.listed.remove(plan);
            }
        }
    }
    made
}

/// The group if it is there; otherwise it is this thread's to make.
fn claim(shared: &Shared, plan: &Plan) -> Result<Option<usize>> {
    let mut pace = Pace::new(shared.strategy);
    loop {
        let mut engine = shared.engine();
        match engine.formations.listed.get(plan) {
            Some(Some(group)) => {
                let group = *group;
                engine.hold(group);
                return Ok(Some(group));
            }
            // The thread that makes it watches the time.
            Some(None) => engine.progress(),
            None => {
                engine.groups[plan.parent].usable()?;
                engine.formations.listed.insert(plan.clone(), None);
                return Ok(None);
            }
        }
        drop(engine);
        pace.pause();
    }
}

fn make(shared: &Arc<Shared>, plan: &Plan, place: usize) -> Result<usize> {
    let tag = meet(shared, plan, place)?;
    let comm = shared.engine().groups[plan.parent].comm;
    // Without the engine's lock: this waits for the other members, who may need this process for something else first.
    let made = watched(shared, plan, || library::create_group(comm, &plan.ranks, tag));
    let mut engine = shared.engine();
    let parent = &engine.groups[plan.parent];
    match made {
        Ok(comm) => {
            let members = plan.ranks.iter().map(|&rank| parent.members[rank]).collect();
            let group = engine.groups.add(GroupState::new(comm, members, place));
            engine.hold(group);
            Ok(group)
        }
        Err(failure) => {
            let error = failure.error(parent.world_rank(), &plan.call());
            Err(engine.fail_group(plan.parent, error))
        }
    }
}

/// Waits until all members have come to make the group, and gives the tag under which they make it.
fn meet(shared: &Shared, plan: &Plan, place: usize) -> Result<c_int> {
    let started = Instant::now();
    let founded = {
        let mut engine = shared.engine();
        engine.catch_up(plan.parent);
        engine.take_leave();
        let founded = engine.groups[plan.parent].founded;
        engine.groups[plan.parent].founded += 1;
        engine.announce(plan, place, founded)?;
        founded
    };
    let mut pace = Pace::new(shared.strategy);
    let mut overdue = false;
    loop {
        let mut engine = shared.engine();
        engine.progress();
        engine.listen(Instant::now());
        let all_heard = engine.hear(plan.parent);
        engine.receive_arrivals(plan)?;
        let come = engine.formations.arrivals.entry(plan.clone()).or_default();
        if come.len() + 1 == plan.ranks.len() && all_heard {
            let first = plan.ranks[0];
            let number = if place == 0 { founded } else { come.get(&first).copied().unwrap_or(founded) };
            engine.formations.arrivals.remove(plan);
            return engine.communicator_tag(plan, first, number);
        }
        // A rank that did not poll for long looks twice.
        if overdue {
            return Err(engine.never_came(plan, place, started.elapsed()));
        }
        overdue = started.elapsed() >= engine.timeout;
        drop(engine);
        pace.pause();
    }
}

impl Engine {
    fn announce(&mut self, plan: &Plan, place: usize, founded: u64) -> Result<()> {
        let words: Arc<[u64]> = plan.encode(founded).into();
        let call = plan.call();
        let others = plan.ranks.iter().enumerate().filter(|(other, _)| *other != place);
        for (_, &rank) in others {
            self.post(plan.parent, &call, rank, tags::GROUP, &words)
                .map_err(|failure| self.library_failed(plan, failure))?;
        }
        Ok(())
    }

    /// Takes in who has come, to this group or another one of the same parent.
    fn receive_arrivals(&mut self, plan: &Plan) -> Result<()> {
        self.groups[plan.parent].usable()?;
        self.try_receive_arrivals(plan.parent).map_err(|failure| self.library_failed(plan, failure))
    }

    fn try_receive_arrivals(&mut self, parent: usize) -> std::result::Result<(), Failure> {
        let comm = self.groups[parent].comm;
        let Formations { arrivals, arriving, .. } = &mut self.formations;
        while let Some((member, words)) = library::probe(comm, tags::GROUP)? {
            arriving.push((parent, member, Transfer::receive_words(comm, member, tags::GROUP, words)?));
        }
        for (_, _, transfer) in arriving.iter_mut() {
            transfer.test()?;
        }
        arriving.retain(|(parent, member, transfer)| {
            let Some(words) = transfer.words() else { return true };
            if let Some((plan, founded)) = Plan::decode(*parent, words) {
                arrivals.entry(plan).or_default().insert(*member, founded);
            }
            false
        });
        Ok(())
    }

    /// A tag that no other communicator of the same parent has: the first member's count of those that it was first in,
    /// and which member it is.
    fn communicator_tag(&self, plan: &Plan, first: usize, number: u64) -> Result<c_int> {
        let size = self.groups[plan.parent].members.len() as u64;
        let number = number.checked_mul(size).and_then(|number| number.checked_add(first as u64));
        number.and_then(|number| tags::tag(Kind::Communicator, number, self.largest_tag)).ok_or_else(|| {
            let failure = Failure("all tags for new communicators are used up".into());
            failure.error(self.groups[plan.parent].world_rank(), &plan.call())
        })
    }

    fn never_came(&mut self, plan: &Plan, place: usize, waited: Duration) -> Error {
        let come = self.formations.arrivals.remove(plan).unwrap_or_default();
        let parent = &self.groups[plan.parent];
        let absent = |(other, rank): &(usize, &usize)| *other != place && !come.contains_key(*rank);
        let missing = plan.ranks.iter().enumerate().filter(absent).map(|(_, &rank)| parent.members[rank]);
        let error = Error::TimedOut { missing: missing.collect(), call: plan.call(), waited };
        self.fail_group(plan.parent, error)
    }

    fn library_failed(&mut self, plan: &Plan, failure: Failure) -> Error {
        let error = failure.error(self.groups[plan.parent].world_rank(), &plan.call());
        self.fail_group(plan.parent, error)
    }
}

/// Makes a communicator, which cannot be interrupted: if it takes longer than the time-out, the job ends.
fn watched(
    shared: &Arc<Shared>,
    plan: &Plan,
    make: impl FnOnce() -> std::result::Result<Comm, Failure>,
) -> std::result::Result<Comm, Failure> {
    let (done, watch) = channel::<()>();
    let (watcher, watched) = (Arc::clone(shared), plan.clone());
    let timeout = shared.engine().timeout;
    let watchdog = thread::Builder::new().name("mpi watchdog".into()).spawn(move || {
        let unfinished = || watch.try_recv() != Err(TryRecvError::Disconnected);
        if watch.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
            let (rank, error) = who_is_gone(&watcher, &watched, timeout);
            if unfinished() {
                ending::say(&format!(
                    "rank {rank}: {error}: the job ends, because {} waits for ever",
                    library::NAME
                ));
                ending::end_job();
            }
        }
    });
    let watchdog =
        watchdog.map_err(|error| Failure(format!("no thread can be started to watch it: {error}")))?;
    let made = make();
    drop(done);
    // It holds what has to be dropped before the program ends. A panic of it would have ended the job.
    let _ = watchdog.join();
    made
}

/// This rank, and the members that do not answer, as an error. The watchdogs of the others answer.
fn who_is_gone(shared: &Shared, plan: &Plan, waited: Duration) -> (usize, Error) {
    let asked = Instant::now();
    shared.engine().ask_who_is_there(plan.parent);
    while asked.elapsed() < GRACE {
        shared.engine().listen(Instant::now());
        thread::sleep(LISTEN_EVERY);
    }
    let engine = shared.engine();
    let parent = &engine.groups[plan.parent];
    let others = plan.ranks.iter().copied().filter(|&rank| rank != parent.rank).collect();
    let missing = engine.silent_since(plan.parent, asked, others);
    let missing = missing.into_iter().map(|rank| parent.members[rank]).collect();
    (parent.world_rank(), Error::TimedOut { missing, call: plan.call(), waited })
}
