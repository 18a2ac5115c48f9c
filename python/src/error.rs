//! What goes wrong, as exceptions of the package.

use deeppool::burst_planner::Error as Unplanned;
use pyo3::{PyErr, import_exception};

import_exception!(deeppool.errors, DeepPoolError);
import_exception!(deeppool.errors, InputError);
import_exception!(deeppool.errors, NoPlanError);

/// An error of the crates as the exception that it is here.
pub(crate) fn exception(error: impl Into<deeppool::Error>) -> PyErr {
    let error = error.into();
    let message = error.to_string();
    match &error {
        deeppool::Error::Planner(
            Unplanned::LimitUnreachable { .. }
            | Unplanned::DeadlineUnreachable { .. }
            | Unplanned::MemoryExceeded { .. },
        ) => NoPlanError::new_err(message),
        error if error.is_input() => InputError::new_err(message),
        _ => DeepPoolError::new_err(message),
    }
}

/// What was given is wrong.
pub(crate) fn input_error(error: impl std::fmt::Display) -> PyErr {
    InputError::new_err(error.to_string())
}
