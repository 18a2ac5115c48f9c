//! What several commands say and ask of checkpoints.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use deeppool::train::{CheckpointConfig, CheckpointEvery, Weights};

use super::counts::within;

/// Checkpoints that are kept.
const KEPT: RangeInclusive<usize> = 1..=1_000_000;

/// Which checkpoints a run keeps.
#[derive(Args)]
pub(crate) struct CheckpointArgs {
    /// Keep checkpoints in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Iterations between checkpoints, or the time, such as 10min [default: 30s, or longer where writing takes more than a twentieth of
    /// the time]
    #[arg(long, value_name = "N|TIME", requires = "checkpoint", value_parser = parse_every)]
    checkpoint_every: Option<CheckpointEvery>,
    /// How many of the newest checkpoints are kept
    #[arg(long, value_name = "N", requires = "checkpoint", value_parser = within(KEPT), default_value = "2")]
    checkpoint_keep: usize,
    /// Write a checkpoint after each epoch with a higher test accuracy than all before, and keep the best, too
    #[arg(long, requires = "checkpoint")]
    checkpoint_best: bool,
    /// Go on from the newest checkpoint in the folder that is whole, if there is one
    #[arg(long, requires = "checkpoint")]
    pub(crate) resume: bool,
}

impl CheckpointArgs {
    pub(crate) fn config(&self) -> Option<CheckpointConfig> {
        let config = CheckpointConfig::new(self.checkpoint.as_ref()?)
            .with_resume(self.resume)
            .with_keep(self.checkpoint_keep)
            .with_keep_best(self.checkpoint_best);
        Some(match self.checkpoint_every {
            Some(every) => config.with_every(every),
            None => config,
        })
    }
}

/// Says that a checkpoint is damaged, where the one before is taken.
pub(crate) fn warn_of_damaged(problem: impl std::fmt::Display) {
    eprintln!("warning: {problem}; going on from the one before");
}

/// The weights of the newest checkpoint in a folder that is whole, or of the best one.
pub(crate) fn weights_of(folder: &Path, best: bool) -> Result<Weights, deeppool::Error> {
    if best {
        Weights::of_best_checkpoint(folder)
    } else {
        Weights::of_checkpoint(folder, |problem| warn_of_damaged(problem))
    }
}

/// When checkpoints are written: `100` iterations, or a time with its unit, such as `10min`.
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

/// Whether a command for ranks keeps checkpoints.
pub(crate) fn names_checkpoints(command: &[OsString]) -> bool {
    names_option(command, "--checkpoint")
}

/// Whether a command has this option.
pub(crate) fn names_option(command: &[OsString], option: &str) -> bool {
    let names =
        |word: &str| word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
    command.iter().any(|word| word.to_str().is_some_and(names))
}
