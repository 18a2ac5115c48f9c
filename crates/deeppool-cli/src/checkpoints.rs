//! Options and messages about checkpoints.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use command_line::numbers::within;
use deeppool::train::{CheckpointConfig, CheckpointEvery, Weights};

/// Valid numbers of kept checkpoints.
const KEPT: RangeInclusive<usize> = 1..=1_000_000;

/// Options for the checkpoints of a run.
#[derive(Args)]
pub(crate) struct CheckpointArgs {
    /// Write checkpoints to this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Interval between checkpoints: a number of iterations, or a time such as 10min [default: 30s,
    /// or longer so that writing takes at most 5% of the time]
    #[arg(long, value_name = "N|TIME", requires = "checkpoint", value_parser = parse_every)]
    checkpoint_every: Option<CheckpointEvery>,
    /// Number of newest checkpoints to keep
    #[arg(long, value_name = "N", requires = "checkpoint", value_parser = within(KEPT), default_value = "2")]
    checkpoint_keep: usize,
    /// Write a checkpoint after each epoch with the best test results so far (the highest accuracy,
    /// or the lowest loss if there is none), and keep the best one
    #[arg(long, requires = "checkpoint")]
    checkpoint_best: bool,
    /// Resume from the newest complete checkpoint in the folder, if there is one. Settings that
    /// differ from those of the resumed run are printed; batch and seed must not differ
    #[arg(long, requires = "checkpoint")]
    pub(crate) resume: bool,
    /// Take the folder over from the run that owns it, which is for a run on another host that was
    /// killed less than two minutes ago. If that run still exists, it ends at its next checkpoint
    #[arg(long, requires = "checkpoint")]
    take_over: bool,
}

impl CheckpointArgs {
    /// Returns the configuration of checkpoints; `None` if no folder is given.
    pub(crate) fn config(&self) -> Option<CheckpointConfig> {
        let config = CheckpointConfig::new(self.checkpoint.as_ref()?)
            .with_resume(self.resume)
            .with_take_over(self.take_over)
            .with_keep(self.checkpoint_keep)
            .with_keep_best(self.checkpoint_best);
        Some(match self.checkpoint_every {
            Some(every) => config.with_every(every),
            None => config,
        })
    }
}

/// Prints a warning that a checkpoint is damaged and the previous one is used.
pub(crate) fn warn_of_damaged(problem: impl std::fmt::Display) {
    eprintln!("warning: {problem}; going on from the one before");
}

/// Reads the weights of the newest valid checkpoint in a folder, or, if `best` is set, of the one
/// with the best test results. Prints a warning for each newer checkpoint that is damaged.
///
/// # Errors
/// `deeppool::Error::Checkpoint` if there is no such checkpoint.
pub(crate) fn weights_of(folder: &Path, best: bool) -> Result<Weights, deeppool::Error> {
    if best {
        Weights::of_best_checkpoint(folder)
    } else {
        Weights::of_checkpoint(folder, |problem| warn_of_damaged(problem))
    }
}

/// Parses the interval between checkpoints: a number of iterations, or a time with its unit, such
/// as `10min`, in `s`, `min` or `h`.
///
/// # Errors
/// A message if it is neither, or 0.
pub(crate) fn parse_every(text: &str) -> Result<CheckpointEvery, String> {
    let wrong = || "expected a number of iterations above 0, or a time such as 30s, 10min or 1h".to_owned();
    let count = |number: &str| number.trim_end().parse().ok().filter(|&count: &u64| count > 0);
    let units = [("min", 60), ("s", 1), ("h", 3600)];
    let time = units.iter().find_map(|(unit, seconds)| {
        let seconds = count(text.strip_suffix(unit)?)?.checked_mul(*seconds)?;
        Some(CheckpointEvery::Time(Duration::from_secs(seconds)))
    });
    time.or_else(|| count(text).map(CheckpointEvery::Iterations)).ok_or_else(wrong)
}

/// Returns whether the words of a `train` command have the option `--checkpoint`.
pub(crate) fn has_checkpoint_option(command: &[OsString]) -> bool {
    has_option(command, "--checkpoint")
}

/// Returns whether the words of a command have an option, given with its dashes: as a word, or as
/// `--option=VALUE`.
pub(crate) fn has_option(command: &[OsString], option: &str) -> bool {
    let names =
        |word: &str| word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
    command.iter().any(|word| word.to_str().is_some_and(names))
}
