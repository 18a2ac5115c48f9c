//! Checks, failure injection and logging common to all calls.

use super::{Code, Driver, Fault, NcclCode, Outcome, lending::with_driver};
use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// An exported function: its name and its requirements.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    name: &'static str,
    needs: Needs,
    destroys: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Initialised,
    Context,
}

impl Call {
    /// A function that may be called before `cuInit`.
    pub(crate) const fn always(name: &'static str) -> Self {
        Self { name, needs: Needs::Nothing, destroys: false }
    }

    /// A function that requires `cuInit`.
    pub(crate) const fn initialised(name: &'static str) -> Self {
        Self { needs: Needs::Initialised, ..Self::always(name) }
    }

    /// A function that requires a current context.
    pub(crate) const fn on(name: &'static str) -> Self {
        Self { needs: Needs::Context, ..Self::always(name) }
    }

    /// Marks a function that destroys an object, which it also does if its failure is injected.
    pub(crate) const fn destroying(self) -> Self {
        Self { destroys: true, ..self }
    }

    /// Runs a call: counts it, checks its requirements, does its work and logs it. Returns a
    /// `CUresult` and never unwinds.
    pub(crate) fn run(self, work: impl FnOnce(&mut Driver) -> Outcome<()>) -> u32 {
        self.guarded(Code::UNKNOWN, |driver| {
            self.run_on(driver, work, |outcome| outcome.map_or_else(|code| code, |()| Code::SUCCESS))
        })
        .0
    }

    /// Runs an NCCL call like [`run`](Self::run). Returns an `ncclResult_t`.
    pub(crate) fn run_nccl(self, work: impl FnOnce(&mut Driver) -> Outcome<NcclCode>) -> u32 {
        self.guarded(NcclCode::INTERNAL_ERROR, |driver| {
            self.run_on(driver, work, |outcome| outcome.unwrap_or_else(NcclCode::from))
        })
        .0
    }

    fn guarded<C>(self, fallback: C, call: impl FnOnce(&mut Driver) -> C) -> C {
        catch_unwind(AssertUnwindSafe(|| with_driver(call))).unwrap_or_else(|_| {
            let text = format!("{}: a fault of the emulated driver itself: it panicked", self.name);
            with_driver(|driver| driver.report.misuse(text));
            fallback
        })
    }

    fn run_on<T, C: Copy + Display>(
        self,
        driver: &mut Driver,
        work: impl FnOnce(&mut Driver) -> Outcome<T>,
        code_of: impl FnOnce(Result<T, Code>) -> C,
    ) -> C {
        let injected = driver.report.count_call();
        let outcome = match injected {
            Some(code) => {
                if self.destroys {
                    // The injected code replaces the result of the destruction.
                    _ = self.checked(driver, work).map_err(|fault| driver.note(self.name, fault));
                }
                Err(Fault::plain(code))
            }
            None => self.checked(driver, work),
        };
        let code = code_of(outcome.map_err(|fault| driver.note(self.name, fault)));
        driver.report.log(self.name, code, injected.is_some());
        code
    }

    fn checked<T>(self, driver: &mut Driver, work: impl FnOnce(&mut Driver) -> Outcome<T>) -> Outcome<T> {
        if driver.lacks(self.name) {
            return Err(Fault::plain(Code::NOT_SUPPORTED));
        }
        if self.needs != Needs::Nothing && !driver.initialised {
            return Err(Fault::misuse(Code::NOT_INITIALIZED, "called before cuInit"));
        }
        if self.needs == Needs::Context {
            let device = driver.current_device()?;
            driver.settle();
            if !self.destroys {
                driver.check_device_lives(device)?;
            }
        }
        work(driver)
    }
}
