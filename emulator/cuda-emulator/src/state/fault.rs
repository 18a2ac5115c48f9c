//! The result and the report of a call that fails.

use super::Code;

/// The result of a call's work.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// A call's refusal.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    /// What the caller did wrong, for the report. None where a right caller may get this code too.
    pub(crate) misuse: Option<String>,
}

impl Fault {
    /// A refusal that a right caller may get.
    pub(crate) fn plain(code: Code) -> Self {
        Self { code, misuse: None }
    }

    /// A refusal of something that no caller should ask.
    pub(crate) fn misuse(code: Code, text: impl Into<String>) -> Self {
        Self { code, misuse: Some(text.into()) }
    }

    /// An argument that is out of the question.
    pub(crate) fn value(text: impl Into<String>) -> Self {
        Self::misuse(Code::INVALID_VALUE, text)
    }
}

/// Refuses what is not `0`, for arguments that have no other use here.
pub(crate) fn only_zero(value: impl Into<u64>, name: &str) -> Outcome<()> {
    let value = value.into();
    if value == 0 { Ok(()) } else { Err(Fault::value(format!("{name} is {value}, and can only be 0"))) }
}
