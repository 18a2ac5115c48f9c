//! Requests: handles of pending operations.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use super::group::{GroupState, Joined, Key, Readiness};
use super::parking::Progress;
use super::ranks::World;
use crate::request::requests;
use crate::{Departure, Element, Error, Exchanged, Request, Result};

/// A pending operation of one member.
#[derive(Debug)]
pub(super) struct Pending<T> {
    world: Arc<World>,
    group: Arc<GroupState>,
    key: Key,
    slot: usize,
    readiness: Arc<Readiness>,
    exchange: Arc<Exchange<T>>,
    started: Instant,
    /// The departures that this operation has been checked against.
    departures: usize,
}

impl<T: Element> Pending<T> {
    pub(super) fn new(world: Arc<World>, group: Arc<GroupState>, joined: Joined<T>) -> Self {
        let Joined { key, slot, readiness, exchange } = joined;
        Self { world, group, key, slot, readiness, exchange, started: Instant::now(), departures: 0 }
    }

    /// The operation's number among the collectives of its group.
    pub(super) fn sequence(&self) -> u64 {
        let (Key::Collective(sequence) | Key::Message(_, sequence)) = self.key;
        sequence
    }

    pub(super) fn test(&mut self) -> Result<bool> {
        Ok(self.poll(Instant::now())? == Progress::Complete)
    }

    pub(super) fn wait(mut self) -> Result<Exchanged<Vec<T>>> {
        self.wait_until(None)?;
        // SAFETY: the wait has seen the work complete, and `self`, the member's only handle of it, ends here.
        Ok(unsafe { self.exchange.collect(self.slot) })
    }

    fn wait_until(&mut self, limit: Option<Instant>) -> Result<bool> {
        let world = Arc::clone(&self.world);
        let alarm = self.started.checked_add(world.timeout);
        world.parking.wait(limit, alarm, |now| self.poll(now))
    }

    fn poll(&mut self, now: Instant) -> Result<Progress> {
        if !self.readiness.is_ready() {
            self.check_on_the_others(now);
            return match self.readiness.failure() {
                Some(failure) => Err(failure),
                None => Ok(Progress::Blocked),
            };
        }
        // SAFETY: an operation is ready after all its members have deposited their buffers, with lengths that were checked.
        let progress = unsafe { self.exchange.advance(self.slot, || self.world.parking.notify()) };
        match self.exchange.broken_by() {
            Some(slot) if progress == Progress::Blocked => Err(Error::RankFailed {
                rank: self.group.world_rank(self.key, slot),
                how: Departure::Panicked,
                call: self.exchange.call(),
            }),
            _ => Ok(progress),
        }
    }

    /// Fails the operation if it waits for a rank that has ended, or has waited too long.
    fn check_on_the_others(&mut self, now: Instant) {
        let departures = self.world.liveness.departures();
        let waited = now.saturating_duration_since(self.started);
        let overdue = waited >= self.world.timeout;
        if departures == self.departures && !overdue {
            return;
        }
        self.departures = departures;
        self.group.give_up(self.key, self.slot, &self.readiness, |missing, call| {
            match self.world.liveness.first_departed(&missing) {
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

/// A pending operation on one buffer.
#[derive(Debug)]
#[must_use = "an operation gives its buffer back when it is waited for"]
pub struct ThreadRequest<T>(pub(super) Pending<T>);

/// A pending operation that reads one buffer and fills another.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct ThreadExchangeRequest<T>(pub(super) Pending<T>);

/// A barrier that not all threads have reached.
#[derive(Debug)]
#[must_use = "a barrier has no effect until it is waited for"]
pub struct ThreadBarrierRequest(pub(super) Pending<u8>);

requests!(ThreadRequest, ThreadExchangeRequest, ThreadBarrierRequest, buffers: Vec);
