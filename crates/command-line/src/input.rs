//! The error of inputs.

/// Error message about a name or a file that a user gave and that cannot be used. It contains the
/// name or the path, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub(crate) String);
