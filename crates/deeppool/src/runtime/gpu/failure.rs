use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use gpu_mux::cuda;

use crate::Error;

/// The cause of a failed launch. The driver only reports that it failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    /// Stores the first error of a launch.
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
