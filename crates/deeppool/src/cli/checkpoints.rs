/// Says that a checkpoint is damaged, where the one before is taken.
pub(crate) fn warn_of_damaged(problem: impl std::fmt::Display) {
    eprintln!("warning: {problem}; going on from the one before");
}
