//! What several commands say and ask of checkpoints.

use std::ffi::OsString;

/// Says that a checkpoint is damaged, where the one before is taken.
pub(crate) fn warn_of_damaged(problem: impl std::fmt::Display) {
    eprintln!("warning: {problem}; going on from the one before");
}

/// Whether a command for ranks keeps checkpoints.
pub(crate) fn names_checkpoints(command: &[OsString]) -> bool {
    let names = |word: &str| word == "--checkpoint" || word.starts_with("--checkpoint=");
    command.iter().any(|word| word.to_str().is_some_and(names))
}
