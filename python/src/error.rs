//! What goes wrong, as exceptions of the package.

use command_line::InputError as BadInput;
use deeppool::burst_planner::Error as Unplanned;
use pyo3::{PyErr, import_exception};

import_exception!(deeppool.errors, DeepPoolError);
import_exception!(deeppool.errors, InputError);
import_exception!(deeppool.errors, NoPlanError);

/// Error of a library, or a name or file that cannot be used.
pub(crate) enum Error {
    Library(deeppool::Error),
    Input(BadInput),
}

impl From<BadInput> for Error {
    fn from(error: BadInput) -> Self {
        Self::Input(error)
    }
}

macro_rules! from_library {
    ($($error:ty),+) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Library(error.into())
            }
        })+
    };
}

from_library!(
    deeppool::Error,
    deeppool::burst_planner::Error,
    deeppool::collectives::Error,
    deeppool::layer_graph::GraphError,
    deeppool::layer_profile::ProfileError
);

/// Returns the Python exception for an error.
pub(crate) fn exception(error: impl Into<Error>) -> PyErr {
    let error = match error.into() {
        Error::Input(error) => return input_error(error),
        Error::Library(error) => error,
    };
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
