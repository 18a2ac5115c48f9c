//! Exclusive access to the driver of the process, in the order of requests.

use super::Driver;
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// State of the process's driver.
enum Place {
    /// Not created yet.
    Nowhere,
    Here(Box<Driver>),
    /// Used by a call.
    Lent,
}

struct Shared {
    place: Place,
    /// Threads that wait for the driver, in order. Without an order, polling threads could starve a
    /// thread that has to be woken.
    asking: VecDeque<Arc<Condvar>>,
    /// Number of times that the driver was released after a possible change.
    uses: u64,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { place: Place::Nowhere, asking: VecDeque::new(), uses: 0 });
static USED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the driver after all earlier waiters.
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

/// Releases the driver and wakes the first waiter.
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

/// Exclusive access of a call. Dropping it, also by a panic, releases the driver.
struct Lent(Option<Box<Driver>>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.take().map(|driver| give_back(driver, true));
    }
}

/// Runs `work` on the driver of the process.
pub(crate) fn with_driver<T>(work: impl FnOnce(&mut Driver) -> T) -> T {
    let mut lent = Lent(Some(take(lock())));
    work(lent.0.get_or_insert_default())
}

impl Driver {
    /// Lets other threads use the driver until one of them may have changed it, or until the
    /// deadline. Returns whether the deadline has not passed. `changed` says whether the calling
    /// thread may have changed the driver.
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
