//! The process's driver, which one call after the other has, in the order in which they ask.

use super::Driver;
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Where the driver is.
enum Place {
    /// Nobody has asked for it yet.
    Nowhere,
    Here(Box<Driver>),
    /// A call has it.
    Lent,
}

struct Shared {
    place: Place,
    /// How to wake the threads that ask for it, which get it in this order: threads that poll would otherwise keep a thread
    /// that has to be woken from it for as long as they poll.
    asking: VecDeque<Arc<Condvar>>,
    /// How often it was given back by somebody who may have changed something.
    uses: u64,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { place: Place::Nowhere, asking: VecDeque::new(), uses: 0 });
static USED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the driver once it is there and all have had it who asked before.
fn take(mut shared: MutexGuard<'static, Shared>) -> Box<Driver> {
    if matches!(shared.place, Place::Lent) || !shared.asking.is_empty() {
        let turn = Arc::new(Condvar::new());
        shared.asking.push_back(Arc::clone(&turn));
        let others = |shared: &mut Shared| {
            let first = shared.asking.front().is_some_and(|first| Arc::ptr_eq(first, &turn));
            matches!(shared.place, Place::Lent) || !first
        };
        shared = turn.wait_while(shared, others).unwrap_or_else(PoisonError::into_inner);
        shared.asking.pop_front();
    }
    match mem::replace(&mut shared.place, Place::Lent) {
        Place::Here(driver) => driver,
        Place::Nowhere | Place::Lent => Box::new(Driver::new()),
    }
}

/// Gives the driver back, for the first of those who ask.
fn give_back(driver: Box<Driver>, changed: bool) -> MutexGuard<'static, Shared> {
    let mut shared = lock();
    shared.place = Place::Here(driver);
    if changed {
        shared.uses += 1;
        USED.notify_all();
    }
    if let Some(first) = shared.asking.front() {
        first.notify_one();
    }
    shared
}

/// The driver while a call has it, which also gives it back if it panics.
struct Lent(Option<Box<Driver>>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.take().map(|driver| give_back(driver, true));
    }
}

/// Runs `work` on the process's driver, which starts as after a reset.
pub(crate) fn with_driver<T>(work: impl FnOnce(&mut Driver) -> T) -> T {
    let mut lent = Lent(Some(take(lock())));
    work(lent.0.get_or_insert_default())
}

impl Driver {
    /// Lets calls of other threads have the driver, until one may have changed something or the time is up; whether it is not.
    /// `changed` says whether this thread may have, since it got the driver.
    pub(super) fn let_others(&mut self, until: Instant, changed: bool) -> bool {
        let shared = give_back(Box::new(mem::take(self)), changed);
        let uses = shared.uses;
        let left = until.saturating_duration_since(Instant::now());
        let unused = |shared: &mut Shared| shared.uses == uses;
        let (shared, _) =
            USED.wait_timeout_while(shared, left, unused).unwrap_or_else(PoisonError::into_inner);
        *self = *take(shared);
        Instant::now() < until
    }
}
