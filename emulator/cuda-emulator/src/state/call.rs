//! Checks, failure injection and logging common to all calls. An *injected* failure is one that a
//! test has asked for.

use super::{
    CallError, CallResult, Code, Driver, LibraryError, LibraryResult, NcclCode, driver_lock::with_driver,
};
use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Exported function: its name in the header of its library and its requirements.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    name: &'static str,
    needs: Requirement,
    destroys: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Requirement {
    None,
    Initialised,
    Context,
}

impl Call {
    /// Creates the description of a function that may be called before `cuInit`.
    pub(crate) const fn always(name: &'static str) -> Self {
        Self { name, needs: Requirement::None, destroys: false }
    }

    /// Creates the description of a function that requires `cuInit`.
    pub(crate) const fn initialised(name: &'static str) -> Self {
        Self { needs: Requirement::Initialised, ..Self::always(name) }
    }

    /// Creates the description of a function that requires a current context.
    pub(crate) const fn with_context(name: &'static str) -> Self {
        Self { needs: Requirement::Context, ..Self::always(name) }
    }

    /// Marks a function that destroys an object, which it also does if its failure is injected.
    pub(crate) const fn destroying(self) -> Self {
        Self { destroys: true, ..self }
    }

    /// Runs a call: counts it, checks its requirements, does its work and logs it. Returns a
    /// `CUresult`. A panic is reported and becomes `CUDA_ERROR_UNKNOWN`.
    pub(crate) fn run(self, work: impl FnOnce(&mut Driver) -> CallResult<()>) -> u32 {
        self.without_unwinding(Code::UNKNOWN, |driver| {
            self.run_logged(driver, work, |outcome| outcome.map_or_else(|code| code, |()| Code::SUCCESS))
        })
        .0
    }

    /// Runs an NCCL call like [`run`](Self::run). Returns an `ncclResult_t`. A panic becomes
    /// `ncclInternalError`.
    pub(crate) fn run_nccl(self, work: impl FnOnce(&mut Driver) -> CallResult<NcclCode>) -> u32 {
        self.without_unwinding(NcclCode::INTERNAL_ERROR, |driver| {
            self.run_logged(driver, work, |outcome| outcome.unwrap_or_else(NcclCode::from))
        })
        .0
    }

    /// Runs a call of a vendor library like [`run`](Self::run). Returns a status of the library. An
    /// injected `CUresult` is converted to it, and a panic becomes the status of [`Code::UNKNOWN`].
    pub(crate) fn run_library<S: From<Code> + Copy + Display>(
        self,
        work: impl FnOnce(&mut Driver) -> LibraryResult<(), S>,
    ) -> S {
        self.without_unwinding(S::from(Code::UNKNOWN), |driver| {
            let injected = driver.report.count_call();
            let mut status = S::from(Code::SUCCESS);
            if injected.is_none() || self.destroys {
                let outcome = self.check(driver).map_err(LibraryError::from).and_then(|()| work(driver));
                if let Err(error) = outcome {
                    status = error.status;
                    if let Some(misuse) = error.misuse {
                        driver.report.misuse(format!("{}: {misuse}: {status}", self.name));
                    }
                }
            }
            let status = injected.map_or(status, S::from);
            driver.report.log(self.name, status, injected.is_some());
            status
        })
    }

    fn without_unwinding<C>(self, fallback: C, call: impl FnOnce(&mut Driver) -> C) -> C {
        catch_unwind(AssertUnwindSafe(|| with_driver(call))).unwrap_or_else(|_| {
            let text = format!("{}: internal error of the emulated driver: it panicked", self.name);
            with_driver(|driver| driver.report.misuse(text));
            fallback
        })
    }

    fn run_logged<T, C: Copy + Display>(
        self,
        driver: &mut Driver,
        work: impl FnOnce(&mut Driver) -> CallResult<T>,
        to_code: impl FnOnce(Result<T, Code>) -> C,
    ) -> C {
        let injected = driver.report.count_call();
        let outcome = match injected {
            Some(code) => {
                if self.destroys {
                    // The injected code replaces the result of the destruction.
                    _ = self.run_checked(driver, work).map_err(|error| driver.record_error(self.name, error));
                }
                Err(CallError::plain(code))
            }
            None => self.run_checked(driver, work),
        };
        let code = to_code(outcome.map_err(|error| driver.record_error(self.name, error)));
        driver.report.log(self.name, code, injected.is_some());
        code
    }

    fn run_checked<T>(
        self,
        driver: &mut Driver,
        work: impl FnOnce(&mut Driver) -> CallResult<T>,
    ) -> CallResult<T> {
        self.check(driver)?;
        work(driver)
    }

    /// Checks that the function exists and that its requirements hold.
    fn check(self, driver: &mut Driver) -> CallResult<()> {
        if driver.is_missing(self.name) {
            return Err(CallError::plain(Code::NOT_SUPPORTED));
        }
        if self.needs != Requirement::None && !driver.initialised {
            return Err(CallError::misuse(Code::NOT_INITIALIZED, "called before cuInit"));
        }
        if self.needs == Requirement::Context {
            let device = driver.current_device()?;
            driver.execute_ready_work();
            if !self.destroys {
                driver.check_device_not_lost(device)?;
            }
        }
        Ok(())
    }
}
