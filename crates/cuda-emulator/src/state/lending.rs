//! The process's driver, which one call after the other has.

use super::Driver;
use std::{
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
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
    /// How often it was given back.
    uses: u64,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { place: Place::Nowhere, uses: 0 });
static GIVEN_BACK: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the driver once it is there, and somebody has used it after the `uses`th use or the time is up.
fn take(uses: Option<(u64, Instant)>) -> Box<Driver> {
    let mut shared = lock();
    loop {
        let unchanged = uses.filter(|(uses, until)| shared.uses == *uses && Instant::now() < *until);
        if unchanged.is_none() {
            match mem::replace(&mut shared.place, Place::Lent) {
                Place::Here(driver) => return driver,
                Place::Nowhere => return Box::new(Driver::new()),
                Place::Lent => {}
            }
        }
        shared = match unchanged {
            None => GIVEN_BACK.wait(shared).unwrap_or_else(PoisonError::into_inner),
            Some((_, until)) => {
                let left = until.saturating_duration_since(Instant::now());
                GIVEN_BACK.wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}

/// Gives the driver back, and returns how often that was done.
fn give_back(driver: Box<Driver>) -> u64 {
    let mut shared = lock();
    shared.place = Place::Here(driver);
    shared.uses += 1;
    GIVEN_BACK.notify_all();
    shared.uses
}

/// The driver while a call has it, which also gives it back if it panics.
struct Lent(Option<Box<Driver>>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.take().map(give_back);
    }
}

/// Runs `work` on the process's driver, which starts as after a reset.
pub(crate) fn with_driver<T>(work: impl FnOnce(&mut Driver) -> T) -> T {
    let mut lent = Lent(Some(take(None)));
    work(lent.0.get_or_insert_default())
}

impl Driver {
    /// Lets calls of other threads have the driver, until one has had it or the time is up; whether one has.
    pub(super) fn let_others(&mut self, until: Instant) -> bool {
        let uses = give_back(Box::new(mem::take(self)));
        *self = *take(Some((uses, until)));
        Instant::now() < until
    }
}
