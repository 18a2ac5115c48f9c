//! The cause of a failed launch.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;

/// The first error of a launch since [`take`](Self::take) was called. The multiplexer's driver
/// reports only that a launch failed; this keeps the cause. Clones share the error.
#[derive(Debug, Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    /// Stores the error of a launch, unless an earlier one is stored. Returns the result, with an
    /// error converted to the one of CUDA that caused it, or to `cuda::Error::Invalid` with the
    /// same message.
    pub(super) fn keep<T>(&self, result: Result<T, Error>) -> cuda::Result<T> {
        result.map_err(|error| {
            let cause = error.cuda_error().cloned();
            let cause = cause.unwrap_or_else(|| cuda::Error::Invalid(error.to_string()));
            self.lock().get_or_insert(error);
            cause
        })
    }

    /// Removes and returns the stored error; `None` if there is none.
    pub(super) fn take(&self) -> Option<Error> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
