//! Creation of groups. MPI creates a communicator when all members have called for it. First the
//! members tell each other by messages that they have called, so that a missing one causes a
//! time-out instead of a hang. A *plan* describes the group to be created.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::abort;
use super::backoff::Backoff;
use super::engine::NOTICE_INTERVAL;
use super::group::MpiGroup;
use super::group_plan::GroupPlan;
use super::library::{self, Comm, LibraryFailure};
use super::operation::GRACE_PERIOD;
use super::shared_engine::SharedEngine;
use crate::{Error, Result};

/// Creates the group of `plan` with a handle for the caller, or adds a handle to the existing group
/// of the same list of ranks. Returns its identifier on this rank. `place` is this rank's number in
/// it.
///
/// # Errors
/// [`Error::TimedOut`] if a member does not call for it, or an error of the library. Either fails
/// the parent group.
pub(super) fn create(shared: &Arc<SharedEngine>, plan: &GroupPlan, place: usize) -> Result<usize> {
    if plan.split.is_none() {
        if let Some(group) = find_or_reserve(shared, plan)? {
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

/// Returns the group if it exists. Otherwise reserves its creation for this thread and returns
/// `None`.
fn find_or_reserve(shared: &SharedEngine, plan: &GroupPlan) -> Result<Option<usize>> {
    let mut backoff = Backoff::new(shared.strategy);
    loop {
        let mut engine = shared.engine();
        match engine.plans.listed.get(plan) {
            Some(Some(group)) => {
                let group = *group;
                engine.retain(group);
                return Ok(Some(group));
            }
            // The creating thread checks the time-out.
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

fn create_new(shared: &Arc<SharedEngine>, plan: &GroupPlan, place: usize) -> Result<usize> {
    let tag = gather_members(shared, plan, place)?;
    let comm = shared.engine().groups[plan.parent].comm;
    // Without the engine's lock: the call waits for the other members, which may first need another
    // operation of this process.
    let created = with_watchdog(shared, plan, || library::create_group(comm, &plan.ranks, tag));
    let mut engine = shared.engine();
    let parent = &engine.groups[plan.parent];
    match created {
        Ok(comm) => {
            let members = plan.ranks.iter().map(|&rank| parent.members[rank]).collect();
            let group = engine.groups.add(MpiGroup::new(comm, members, place));
            engine.retain(group);
            Ok(group)
        }
        Err(failure) => {
            let error = failure.error(parent.world_rank(), &plan.call());
            Err(engine.fail_group(plan.parent, error))
        }
    }
}

/// Waits until all members have called for the group, and returns the tag with which they create
/// it.
fn gather_members(shared: &SharedEngine, plan: &GroupPlan, place: usize) -> Result<c_int> {
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
        let arrived = engine.plans.arrivals.entry(plan.clone()).or_default();
        if arrived.len() + 1 == plan.ranks.len() && all_received {
            let first = plan.ranks[0];
            let number =
                if place == 0 { groups_led } else { arrived.get(&first).copied().unwrap_or(groups_led) };
            engine.plans.arrivals.remove(plan);
            return engine.communicator_tag(plan, first, number);
        }
        // A rank that has not polled for long polls once more before it gives up.
        if overdue {
            return Err(engine.fail_for_missing_members(plan, place, started.elapsed()));
        }
        overdue = started.elapsed() >= engine.timeout;
        drop(engine);
        backoff.pause();
    }
}

/// Creates a communicator. The call cannot be interrupted: the job is aborted if it takes longer
/// than the time-out.
fn with_watchdog(
    shared: &Arc<SharedEngine>,
    plan: &GroupPlan,
    create: impl FnOnce() -> std::result::Result<Comm, LibraryFailure>,
) -> std::result::Result<Comm, LibraryFailure> {
    let (done, watch) = channel::<()>();
    let (watcher, watched) = (Arc::clone(shared), plan.clone());
    let timeout = shared.engine().timeout;
    let watchdog = thread::Builder::new().name("mpi watchdog".into()).spawn(move || {
        let unfinished = || watch.try_recv() != Err(TryRecvError::Disconnected);
        if watch.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
            let (rank, error) = unresponsive_members(&watcher, &watched, timeout);
            if unfinished() {
                abort::print_line(&format!(
                    "rank {rank}: {error}: the job is aborted, because {} cannot stop waiting",
                    library::NAME
                ));
                abort::abort_job();
            }
        }
    });
    let watchdog =
        watchdog.map_err(|error| LibraryFailure(format!("no thread can be started to watch it: {error}")))?;
    let created = create();
    drop(done);
    // The watchdog holds state that must be dropped before the program ends. Its panic would have
    // aborted the job.
    let _ = watchdog.join();
    created
}

/// Returns this rank, and an error that names the members that do not answer. Watchdogs of live
/// members answer.
fn unresponsive_members(shared: &SharedEngine, plan: &GroupPlan, waited: Duration) -> (usize, Error) {
    let asked = Instant::now();
    shared.engine().query_liveness(plan.parent);
    while asked.elapsed() < GRACE_PERIOD {
        shared.engine().poll_notices(Instant::now());
        thread::sleep(NOTICE_INTERVAL);
    }
    let engine = shared.engine();
    let parent = &engine.groups[plan.parent];
    let others = plan.ranks.iter().copied().filter(|&rank| rank != parent.rank).collect();
    let missing = engine.unresponsive_since(plan.parent, asked, others);
    let missing = missing.into_iter().map(|rank| parent.members[rank]).collect();
    (parent.world_rank(), Error::TimedOut { missing, call: plan.call(), waited })
}
