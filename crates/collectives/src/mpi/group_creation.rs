//! New groups: MPI creates a communicator once all members have called for it.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::abort;
use super::backoff::Backoff;
use super::engine::NOTICES_EVERY;
use super::group::GroupState;
use super::group_plan::GroupPlan;
use super::library::{self, Comm, Failure};
use super::operation::GRACE;
use super::shared::Shared;
use crate::{Error, Result};

/// Creates a group, or finds it if it was created from the same list of ranks before, with a handle for the caller.
/// `place` is this rank's in it.
pub(super) fn create(shared: &Arc<Shared>, plan: &GroupPlan, place: usize) -> Result<usize> {
    if plan.split.is_none() {
        if let Some(group) = claim(shared, plan)? {
            return Ok(group);
        }
    }
    let created = create_new(shared, plan, place);
    let mut engine = shared.engine();
    if plan.split.is_none() {
        match created {
            Ok(group) => {
                engine.retain(group);
                engine.plans.listed.insert(plan.clone(), Some(group));
            }
            Err(_) => {
                engine.plans.listed.remove(plan);
            }
        }
    }
    created
}

/// The group if it exists; otherwise it is this thread that creates it.
fn claim(shared: &Shared, plan: &GroupPlan) -> Result<Option<usize>> {
    let mut backoff = Backoff::new(shared.strategy);
    loop {
        let mut engine = shared.engine();
        match engine.plans.listed.get(plan) {
            Some(Some(group)) => {
                let group = *group;
                engine.retain(group);
                return Ok(Some(group));
            }
            // The thread that creates it checks the time-out.
            Some(None) => engine.progress(),
            None => {
                engine.groups[plan.parent].usable()?;
                engine.plans.listed.insert(plan.clone(), None);
                return Ok(None);
            }
        }
        drop(engine);
        backoff.pause();
    }
}

fn create_new(shared: &Arc<Shared>, plan: &GroupPlan, place: usize) -> Result<usize> {
    let tag = gather_members(shared, plan, place)?;
    let comm = shared.engine().groups[plan.parent].comm;
    // Without the engine's lock: this waits for the other members, who may need this process for something else first.
    let made = with_watchdog(shared, plan, || library::create_group(comm, &plan.ranks, tag));
    let mut engine = shared.engine();
    let parent = &engine.groups[plan.parent];
    match made {
        Ok(comm) => {
            let members = plan.ranks.iter().map(|&rank| parent.members[rank]).collect();
            let group = engine.groups.add(GroupState::new(comm, members, place));
            engine.retain(group);
            Ok(group)
        }
        Err(failure) => {
            let error = failure.error(parent.world_rank(), &plan.call());
            Err(engine.fail_group(plan.parent, error))
        }
    }
}

/// Waits until all members have called for the group, and gives the tag under which they create it.
fn gather_members(shared: &Shared, plan: &GroupPlan, place: usize) -> Result<c_int> {
    let started = Instant::now();
    let groups_led = {
        let mut engine = shared.engine();
        engine.catch_up_on_notices(plan.parent, Instant::now());
        engine.free_released_groups();
        let groups_led = engine.groups[plan.parent].groups_led;
        engine.groups[plan.parent].groups_led += 1;
        engine.announce(plan, place, groups_led)?;
        groups_led
    };
    let mut backoff = Backoff::new(shared.strategy);
    let mut overdue = false;
    loop {
        let mut engine = shared.engine();
        engine.progress();
        engine.poll_notices(Instant::now());
        let all_received = engine.poll_notices_of(plan.parent);
        engine.receive_arrivals(plan)?;
        let come = engine.plans.arrivals.entry(plan.clone()).or_default();
        if come.len() + 1 == plan.ranks.len() && all_received {
            let first = plan.ranks[0];
            let number =
                if place == 0 { groups_led } else { come.get(&first).copied().unwrap_or(groups_led) };
            engine.plans.arrivals.remove(plan);
            return engine.communicator_tag(plan, first, number);
        }
        // A rank that did not poll for long polls once more before it gives up.
        if overdue {
            return Err(engine.members_missing(plan, place, started.elapsed()));
        }
        overdue = started.elapsed() >= engine.timeout;
        drop(engine);
        backoff.pause();
    }
}

/// Creates a communicator, which cannot be interrupted: if it takes longer than the time-out, the job is aborted.
fn with_watchdog(
    shared: &Arc<Shared>,
    plan: &GroupPlan,
    create: impl FnOnce() -> std::result::Result<Comm, Failure>,
) -> std::result::Result<Comm, Failure> {
    let (done, watch) = channel::<()>();
    let (watcher, watched) = (Arc::clone(shared), plan.clone());
    let timeout = shared.engine().timeout;
    let watchdog = thread::Builder::new().name("mpi watchdog".into()).spawn(move || {
        let unfinished = || watch.try_recv() != Err(TryRecvError::Disconnected);
        if watch.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
            let (rank, error) = unresponsive_members(&watcher, &watched, timeout);
            if unfinished() {
                abort::print_line(&format!(
                    "rank {rank}: {error}: the job ends, because {} waits for ever",
                    library::NAME
                ));
                abort::abort_job();
            }
        }
    });
    let watchdog =
        watchdog.map_err(|error| Failure(format!("no thread can be started to watch it: {error}")))?;
    let created = create();
    drop(done);
    // It holds what has to be dropped before the program ends. A panic of it would have ended the job.
    let _ = watchdog.join();
    created
}

/// This rank, and the members that do not answer, as an error. The watchdogs of the others answer.
fn unresponsive_members(shared: &Shared, plan: &GroupPlan, waited: Duration) -> (usize, Error) {
    let asked = Instant::now();
    shared.engine().query_liveness(plan.parent);
    while asked.elapsed() < GRACE {
        shared.engine().poll_notices(Instant::now());
        thread::sleep(NOTICES_EVERY);
    }
    let engine = shared.engine();
    let parent = &engine.groups[plan.parent];
    let others = plan.ranks.iter().copied().filter(|&rank| rank != parent.rank).collect();
    let missing = engine.unresponsive_since(plan.parent, asked, others);
    let missing = missing.into_iter().map(|rank| parent.members[rank]).collect();
    (parent.world_rank(), Error::TimedOut { missing, call: plan.call(), waited })
}
