//! Handles of pending operations. An operation consists of independent *units* of work, which the
//! ranks that wait for it execute.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use super::group::{JoinedOperation, OperationKey, Readiness, ThreadGroup};
use super::parking::PollProgress;
use super::world_state::ThreadWorldState;
use crate::request::impl_requests;
use crate::{Departure, Element, Error, Exchanged, HostBuffer, RedistributionBuffers, Request, Result};

/// Pending operation of one member, from its start until it is waited for or dropped.
#[derive(Debug)]
pub(super) struct ThreadOperation<T> {
    world: Arc<ThreadWorldState>,
    group: Arc<ThreadGroup>,
    key: OperationKey,
    slot: usize,
    readiness: Arc<Readiness>,
    exchange: Arc<Exchange<T>>,
    started: Instant,
    /// Number of departures that this operation was checked against.
    departures: usize,
}

impl<T: Element> ThreadOperation<T> {
    /// Creates the request of a joined operation. Its time-out begins now.
    pub(super) fn new(
        world: Arc<ThreadWorldState>,
        group: Arc<ThreadGroup>,
        joined: JoinedOperation<T>,
    ) -> Self {
        let JoinedOperation { key, slot, readiness, exchange } = joined;
        Self { world, group, key, slot, readiness, exchange, started: Instant::now(), departures: 0 }
    }

    /// Sequence number of the operation among the collectives of its group, from 0. For a message,
    /// among those of its channel.
    pub(super) fn sequence(&self) -> u64 {
        let (OperationKey::Collective(sequence) | OperationKey::Message(_, sequence)) = self.key;
        sequence
    }

    /// Returns whether the operation is complete, or its error. Does not wait, but executes up to
    /// one member's share of the operation's work, so that a caller that has other work to do in
    /// the meantime does not keep the other members waiting for the rest of it.
    pub(super) fn test(&mut self) -> Result<bool> {
        for _ in 0..self.exchange.units_per_member() {
            match self.poll(Instant::now())? {
                PollProgress::Advanced => {}
                progress => return Ok(progress == PollProgress::Complete),
            }
        }
        Ok(self.exchange.is_complete())
    }

    /// Waits until the operation is complete and returns its buffers, or the operation's error.
    pub(super) fn wait(mut self) -> Result<Exchanged<HostBuffer<T>>> {
        self.wait_until(None)?;
        // SAFETY: the wait has seen the operation complete, and `self` is the member's only handle.
        Ok(unsafe { self.exchange.collect(self.slot) })
    }

    fn wait_until(&mut self, limit: Option<Instant>) -> Result<bool> {
        let world = Arc::clone(&self.world);
        let alarm = self.started.checked_add(world.timeout);
        world.parking.wait(limit, alarm, |now| self.poll(now))
    }

    fn poll(&mut self, now: Instant) -> Result<PollProgress> {
        if !self.readiness.is_ready() {
            self.check_departures_and_timeout(now);
            return match self.readiness.failure() {
                Some(failure) => Err(failure),
                None => Ok(PollProgress::Blocked),
            };
        }
        // SAFETY: a ready operation has the buffers of all its members, and their lengths were
        // checked.
        let progress = unsafe { self.exchange.advance(self.slot, || self.world.parking.notify()) };
        match self.exchange.panicked_member() {
            Some(slot) if progress == PollProgress::Blocked => Err(Error::RankFailed {
                rank: self.group.world_rank(self.key, slot),
                how: Departure::Panicked,
                call: self.exchange.call(),
            }),
            _ => Ok(progress),
        }
    }

    /// Fails the operation if a rank that it waits for has ended, or if the time-out has passed.
    fn check_departures_and_timeout(&mut self, now: Instant) {
        let departures = self.world.liveness.departures();
        let waited = now.saturating_duration_since(self.started);
        let overdue = waited >= self.world.timeout;
        if departures == self.departures && !overdue {
            return;
        }
        self.departures = departures;
        self.group.fail_if_waiting(self.key, self.slot, &self.readiness, |missing, call| {
            match self.world.liveness.cause_of_failure(&missing) {
                Some((rank, how)) => Some(Error::RankFailed { rank, how, call: call.clone() }),
                None if overdue => Some(Error::TimedOut { missing, call: call.clone(), waited }),
                None => None,
            }
        });
        if self.readiness.failure().is_some() {
            self.world.parking.notify();
        }
    }
}

/// Pending operation on one buffer.
#[derive(Debug)]
#[must_use = "an operation gives its buffer back when it is waited for"]
pub struct ThreadRequest<T>(pub(super) ThreadOperation<T>);

/// Pending operation that reads one buffer and fills another.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct ThreadExchangeRequest<T>(pub(super) ThreadOperation<T>);

/// Pending redistribution.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct ThreadRedistributionRequest<T> {
    /// Exchange between the input and the output.
    pub(super) pending: ThreadOperation<T>,
    /// Buffers for packed elements. Threads copy elements directly.
    pub(super) packed: [HostBuffer<T>; 2],
}

impl_requests!(
    @impl [T: Element]
    ThreadRedistributionRequest<T>, RedistributionBuffers<HostBuffer<T>>, pending, |request| {
        let Self { pending, packed } = request;
        let Exchanged { send: input, receive: output } = pending.wait()?;
        Ok(RedistributionBuffers { input, output, packed })
    }
);

/// Pending barrier, which not all threads have reached.
#[derive(Debug)]
#[must_use = "a barrier has no effect until it is waited for"]
pub struct ThreadBarrierRequest(pub(super) ThreadOperation<u8>);

impl_requests!(ThreadRequest, ThreadExchangeRequest, ThreadBarrierRequest, buffers: HostBuffer);
