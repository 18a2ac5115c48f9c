//! Exclusive access to the driver of the process, in the order of requests.

use super::Driver;
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// State of the process's driver.
enum DriverState {
    /// Not created yet.
    Absent,
    Idle(Box<Driver>),
    /// Used by a call.
    InUse,
}

struct Shared {
    state: DriverState,
    /// Threads that wait for the driver, in order. Without an order, polling threads could starve a
    /// thread that has to be woken.
    waiters: VecDeque<Arc<Condvar>>,
    /// Number of times that the driver was released after a possible change.
    changes: u64,
}

static SHARED: Mutex<Shared> =
    Mutex::new(Shared { state: DriverState::Absent, waiters: VecDeque::new(), changes: 0 });
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the driver after all earlier waiters.
fn take(mut shared: MutexGuard<'static, Shared>) -> Box<Driver> {
    if matches!(shared.state, DriverState::InUse) || !shared.waiters.is_empty() {
        let turn = Arc::new(Condvar::new());
        shared.waiters.push_back(Arc::clone(&turn));
        let others = |shared: &mut Shared| {
            let first = shared.waiters.front().is_some_and(|first| Arc::ptr_eq(first, &turn));
            matches!(shared.state, DriverState::InUse) || !first
        };
        shared = turn.wait_while(shared, others).unwrap_or_else(PoisonError::into_inner);
        shared.waiters.pop_front();
    }
    match mem::replace(&mut shared.state, DriverState::InUse) {
        DriverState::Idle(driver) => driver,
        DriverState::Absent | DriverState::InUse => Box::new(Driver::new()),
    }
}

/// Releases the driver and wakes the first waiter.
fn release(driver: Box<Driver>, changed: bool) -> MutexGuard<'static, Shared> {
    let mut shared = lock();
    shared.state = DriverState::Idle(driver);
    if changed {
        shared.changes += 1;
        CHANGED.notify_all();
    }
    if let Some(first) = shared.waiters.front() {
        first.notify_one();
    }
    shared
}

/// Exclusive access of a call. Dropping it, also by a panic, releases the driver.
struct DriverGuard(Option<Box<Driver>>);

impl Drop for DriverGuard {
    fn drop(&mut self) {
        self.0.take().map(|driver| release(driver, true));
    }
}

/// Runs `work` on the driver of the process, which is created at the first use. Waits while other
/// threads use the driver.
pub(crate) fn with_driver<T>(work: impl FnOnce(&mut Driver) -> T) -> T {
    let mut guard = DriverGuard(Some(take(lock())));
    work(guard.0.get_or_insert_default())
}

impl Driver {
    /// Lets other threads use the driver until one of them may have changed it, or until the time
    /// `until`. Returns false once that time has passed. `changed` tells whether the calling thread
    /// may have changed the driver.
    pub(super) fn yield_to_other_threads(&mut self, until: Instant, changed: bool) -> bool {
        let shared = release(Box::new(mem::take(self)), changed);
        let changes = shared.changes;
        let left = until.saturating_duration_since(Instant::now());
        let unused = |shared: &mut Shared| shared.changes == changes;
        let (shared, _) =
            CHANGED.wait_timeout_while(shared, left, unused).unwrap_or_else(PoisonError::into_inner);
        *self = *take(shared);
        Instant::now() < until
    }
}
