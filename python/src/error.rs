//! Conversion of errors to the package's exceptions.

use command_line::InputError as CommandLineError;
use deeppool::burst_planner::Error as PlannerError;
use pyo3::{PyErr, import_exception};

import_exception!(deeppool.errors, DeepPoolError);
import_exception!(deeppool.errors, InputError);
import_exception!(deeppool.errors, NoPlanError);

/// Error that becomes a Python exception.
pub(crate) enum Error {
    /// Error of one of the Rust crates. It becomes `NoPlanError` if no plan is within the limit,
    /// `InputError` if an input is invalid, and otherwise `DeepPoolError`.
    Library(deeppool::Error),
    /// Argument of the caller that cannot be used: an unknown name, such as that of a network, or a
    /// file that cannot be read. It becomes `InputError`.
    Input(CommandLineError),
}

impl From<CommandLineError> for Error {
    fn from(error: CommandLineError) -> Self {
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

/// Returns the Python exception for an error: `NoPlanError` if no plan is within the limit,
/// `InputError` if an input is invalid, and otherwise `DeepPoolError`.
pub(crate) fn exception(error: impl Into<Error>) -> PyErr {
    let error = match error.into() {
        Error::Input(error) => return input_error(error),
        Error::Library(error) => error,
    };
    let message = error.to_string();
    match &error {
        deeppool::Error::Planner(
            PlannerError::LimitUnreachable { .. }
            | PlannerError::DeadlineUnreachable { .. }
            | PlannerError::MemoryExceeded { .. },
        )
        | deeppool::Error::BatchTooLarge { .. } => NoPlanError::new_err(message),
        error if error.is_input() => InputError::new_err(message),
        _ => DeepPoolError::new_err(message),
    }
}

/// Returns the Python exception `InputError` with the message of an error.
pub(crate) fn input_error(error: impl std::fmt::Display) -> PyErr {
    InputError::new_err(error.to_string())
}
