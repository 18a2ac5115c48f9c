//! Errors of calls.

use super::Code;

/// Result of a call.
pub(crate) type CallResult<T> = Result<T, CallError>;

/// Error of a call.
#[derive(Debug)]
pub(crate) struct CallError {
    /// Code that the call returns.
    pub(crate) code: Code,
    /// Description of the caller's mistake, for the report. `None` if a correct program may get the
    /// error too.
    pub(crate) misuse: Option<String>,
}

impl CallError {
    /// An error that a correct program may get.
    pub(crate) fn plain(code: Code) -> Self {
        Self { code, misuse: None }
    }

    /// An error caused by a misuse.
    pub(crate) fn misuse(code: Code, text: impl Into<String>) -> Self {
        Self { code, misuse: Some(text.into()) }
    }

    /// An invalid argument.
    pub(crate) fn value(text: impl Into<String>) -> Self {
        Self::misuse(Code::INVALID_VALUE, text)
    }
}

/// Refuses a value other than 0, for arguments whose other values are not supported.
pub(crate) fn only_zero(value: impl Into<u64>, name: &str) -> CallResult<()> {
    let value = value.into();
    if value == 0 { Ok(()) } else { Err(CallError::value(format!("{name} is {value} and must be 0"))) }
}
