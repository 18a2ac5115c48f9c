//! What goes wrong, as exceptions of the package.

use std::fmt::Display;

use pyo3::{PyErr, import_exception};

import_exception!(deeppool.errors, InputError);

/// What was given is wrong.
pub(crate) fn input_error(error: impl Display) -> PyErr {
    InputError::new_err(error.to_string())
}
