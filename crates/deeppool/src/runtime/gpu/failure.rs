use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use gpu_mux::cuda;

use crate::Error;

/// Why something could not be enqueued: the driver passes on no more than that it could not.
#[derive(Debug, Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    /// Keeps the error of something that is enqueued, if it is the first.
    pub(super) fn keep<T>(&self, result: Result<T, impl Into<Error> + Display>) -> cuda::Result<T> {
        result.map_err(|error| {
            let message = error.to_string();
            self.lock().get_or_insert(error.into());
            cuda::Error::Invalid(message)
        })
    }

    pub(super) fn take(&self) -> Option<Error> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
