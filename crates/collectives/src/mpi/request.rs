//! Operations under way.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ending;
use super::pace::Pace;
use super::world::Shared;
use crate::request::requests;
use crate::{Element, Exchanged, Request, Result};

/// This rank's part in an operation.
#[derive(Debug)]
pub(super) struct Pending<T> {
    shared: Arc<Shared>,
    id: u64,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element> Pending<T> {
    pub(super) fn new(shared: Arc<Shared>, id: u64) -> Self {
        Self { shared, id, elements: PhantomData }
    }

    pub(super) fn test(&mut self) -> Result<bool> {
        self.shared.engine().poll(self.id)
    }

    pub(super) fn wait(mut self) -> Result<Exchanged<Vec<T>>> {
        self.wait_until(None)?;
        let buffers = self.shared.engine().collect(self.id);
        // The operation was started with vectors of this type, and this is the only call that takes them.
        Ok(buffers.and_then(super::transfer::Buffers::take).unwrap_or_default())
    }

    fn wait_until(&mut self, limit: Option<Instant>) -> Result<bool> {
        let mut pace = Pace::new(self.shared.strategy);
        loop {
            if self.test()? {
                return Ok(true);
            }
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                return Ok(false);
            }
            pace.pause();
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        ending::end_if_panicking();
        self.shared.engine().abandon(self.id);
    }
}

/// An operation on one buffer, on its way between processes.
#[derive(Debug)]
#[must_use = "an operation gives its buffer back when it is waited for"]
pub struct MpiRequest<T: Element>(pub(super) Pending<T>);

/// An operation that reads one buffer and fills another, on its way between processes.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct MpiExchangeRequest<T: Element>(pub(super) Pending<T>);

/// A barrier that not all processes have reached.
#[derive(Debug)]
#[must_use = "a barrier holds nobody back until it is waited for"]
pub struct MpiBarrierRequest(pub(super) Pending<u8>);

requests!(MpiRequest, MpiExchangeRequest, MpiBarrierRequest, buffers: Vec);
