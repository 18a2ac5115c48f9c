//! Creation of groups. MPI creates a communicator when all members have called for it. First the
//! members tell each other by messages that they have called, so that a missing one causes a
//! time-out instead of a hang. `description` is that of the group to be created.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::abort;
use super::backoff::Backoff;
use super::group::MpiGroup;
use super::group_description::GroupDescription;
use super::library::{self, Comm, LibraryFailure};
use super::operation::GRACE_PERIOD;
use super::pending_operations::NOTICE_INTERVAL;
use super::shared_operations::SharedOperations;
use crate::{Error, Result};

/// Creates the group of `description` with a handle for the caller, or adds a handle to the
/// existing group of the same list of ranks. Returns its identifier on this rank. `place` is this
/// rank's number in it.
///
/// # Errors
/// [`Error::TimedOut`] if a member does not call for it, or an error of the library. Either fails
/// the parent group.
pub(super) fn create(
    shared: &Arc<SharedOperations>,
    description: &GroupDescription,
    place: usize,
) -> Result<usize> {
    if description.split.is_none() {
        if let Some(group) = find_or_reserve(shared, description)? {
            return Ok(group);
        }
    }
    let created = create_new(shared, description, place);
    let mut operations = shared.operations();
    if description.split.is_none() {
        match created {
            Ok(group) => {
                operations.retain(group);
                operations.subgroups.listed.insert(description.clone(), Some(group));
            }
            Err(_) => {
                operations.subgroups.listed.remove(description);
            }
        }
    }
    created
}

/// Returns the group if it exists. Otherwise reserves its creation for this thread and returns
/// `None`.
fn find_or_reserve(shared: &SharedOperations, description: &GroupDescription) -> Result<Option<usize>> {
    let mut backoff = Backoff::new(shared.strategy);
    loop {
        let mut operations = shared.operations();
        match operations.subgroups.listed.get(description) {
            Some(Some(group)) => {
                let group = *group;
                operations.retain(group);
                return Ok(Some(group));
            }
            // The creating thread checks the time-out.
            Some(None) => operations.progress(),
            None => {
                operations.groups[description.parent].usable()?;
                operations.subgroups.listed.insert(description.clone(), None);
                return Ok(None);
            }
        }
        drop(operations);
        backoff.pause();
    }
}

fn create_new(shared: &Arc<SharedOperations>, description: &GroupDescription, place: usize) -> Result<usize> {
    let tag = gather_members(shared, description, place)?;
    let comm = shared.operations().groups[description.parent].comm;
    // Without the lock: the call waits for the other members, which may first need another
    // operation of this process.
    let created = with_watchdog(shared, description, || library::create_group(comm, &description.ranks, tag));
    let mut operations = shared.operations();
    let parent = &operations.groups[description.parent];
    match created {
        Ok(comm) => {
            let members = description.ranks.iter().map(|&rank| parent.members[rank]).collect();
            let group = operations.groups.add(MpiGroup::new(comm, members, place));
            operations.retain(group);
            Ok(group)
        }
        Err(failure) => {
            let error = failure.error(parent.world_rank(), &description.call());
            Err(operations.fail_group(description.parent, error))
        }
    }
}

/// Waits until all members have called for the group, and returns the tag with which they create
/// it.
fn gather_members(shared: &SharedOperations, description: &GroupDescription, place: usize) -> Result<c_int> {
    let started = Instant::now();
    let subgroups_begun = {
        let mut operations = shared.operations();
        operations.catch_up_on_notices(description.parent, Instant::now());
        operations.free_released_groups();
        let subgroups_begun = operations.groups[description.parent].subgroups_begun;
        operations.groups[description.parent].subgroups_begun += 1;
        operations.announce(description, place, subgroups_begun)?;
        subgroups_begun
    };
    let mut backoff = Backoff::new(shared.strategy);
    let mut overdue = false;
    loop {
        let mut operations = shared.operations();
        operations.progress();
        operations.poll_notices(Instant::now());
        let all_received = operations.poll_notices_of(description.parent);
        operations.receive_arrivals(description)?;
        let arrived = operations.subgroups.arrivals.entry(description.clone()).or_default();
        if arrived.len() + 1 == description.ranks.len() && all_received {
            let first = description.ranks[0];
            let number = if place == 0 {
                subgroups_begun
            } else {
                arrived.get(&first).copied().unwrap_or(subgroups_begun)
            };
            operations.subgroups.arrivals.remove(description);
            return operations.communicator_tag(description, first, number);
        }
        // A rank that has not polled for long polls once more before it gives up.
        if overdue {
            return Err(operations.fail_for_missing_members(description, place, started.elapsed()));
        }
        overdue = started.elapsed() >= operations.timeout;
        drop(operations);
        backoff.pause();
    }
}

/// Creates a communicator. The call cannot be interrupted: the job is aborted if it takes longer
/// than the time-out.
fn with_watchdog(
    shared: &Arc<SharedOperations>,
    description: &GroupDescription,
    create: impl FnOnce() -> std::result::Result<Comm, LibraryFailure>,
) -> std::result::Result<Comm, LibraryFailure> {
    let (done, watch) = channel::<()>();
    let (watcher, watched) = (Arc::clone(shared), description.clone());
    let timeout = shared.operations().timeout;
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
fn unresponsive_members(
    shared: &SharedOperations,
    description: &GroupDescription,
    waited: Duration,
) -> (usize, Error) {
    let asked = Instant::now();
    shared.operations().query_liveness(description.parent);
    while asked.elapsed() < GRACE_PERIOD {
        shared.operations().poll_notices(Instant::now());
        thread::sleep(NOTICE_INTERVAL);
    }
    let operations = shared.operations();
    let parent = &operations.groups[description.parent];
    let others = description.ranks.iter().copied().filter(|&rank| rank != parent.rank).collect();
    let missing = operations.unresponsive_since(description.parent, asked, others);
    let missing = missing.into_iter().map(|rank| parent.members[rank]).collect();
    (parent.world_rank(), Error::TimedOut { missing, call: description.call(), waited })
}
