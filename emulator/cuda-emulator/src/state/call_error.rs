//! Errors of calls. A misuse is a violation of the rules of the API, which a correct program would
//! not commit.

use super::Code;

/// Result of a call of a CUDA or NCCL function.
pub(crate) type CallResult<T> = Result<T, CallError>;

/// Error of a call of a CUDA or NCCL function.
#[derive(Debug)]
pub(crate) struct CallError {
    /// Code that the call returns. NCCL functions convert it.
    pub(crate) code: Code,
    /// Description of the misuse, for the report. `None` if a correct program may get the error
    /// too.
    pub(crate) misuse: Option<String>,
}

impl CallError {
    /// Creates an error that a correct program may get.
    pub(crate) fn plain(code: Code) -> Self {
        Self { code, misuse: None }
    }

    /// Creates an error caused by a misuse, which `text` describes.
    pub(crate) fn misuse(code: Code, text: impl Into<String>) -> Self {
        Self { code, misuse: Some(text.into()) }
    }

    /// Creates an error with the code `INVALID_VALUE` for an invalid argument, which `text`
    /// describes.
    pub(crate) fn value(text: impl Into<String>) -> Self {
        Self::misuse(Code::INVALID_VALUE, text)
    }
}

/// Result of a call of a vendor library whose functions return an `S`.
pub(crate) type LibraryResult<T, S> = Result<T, LibraryError<S>>;

/// Error of a call of a vendor library.
#[derive(Debug)]
pub(crate) struct LibraryError<S> {
    /// Status that the call returns.
    pub(crate) status: S,
    /// Description of the misuse, for the report. `None` if a correct program may get the error
    /// too.
    pub(crate) misuse: Option<String>,
}

impl<S> LibraryError<S> {
    /// Creates an error that a correct program may get.
    pub(crate) fn plain(status: S) -> Self {
        Self { status, misuse: None }
    }

    /// Creates an error caused by a misuse, which `text` describes.
    pub(crate) fn misuse(status: S, text: impl Into<String>) -> Self {
        Self { status, misuse: Some(text.into()) }
    }
}

impl<S: From<Code>> From<CallError> for LibraryError<S> {
    fn from(CallError { code, misuse }: CallError) -> Self {
        Self { status: code.into(), misuse }
    }
}

/// Checks that an argument is 0, because its other values are not supported. `name` is the name of
/// the argument in the error.
pub(crate) fn only_zero(value: impl Into<u64>, name: &str) -> CallResult<()> {
    let value = value.into();
    if value == 0 { Ok(()) } else { Err(CallError::value(format!("{name} is {value} and must be 0"))) }
}
