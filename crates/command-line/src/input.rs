/// A name or a file that a user gave and that cannot be used. The message names it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub(crate) String);
