//! An experiment that runs as part of a longer command: of `all`, or as one point of a sweep.

use std::path::Path;

use anyhow::Context;

use crate::catalog::Single;
use crate::experiment::Prepared;
use crate::journal::Journal;
use crate::outcome::{self, Outcome};
use crate::style::Style;

/// Experiment of a longer command that has not run. Its input has been checked.
pub(crate) struct Part {
    /// Stem of the names of its files, or name of the folder of a sweep's point.
    pub(crate) stem: String,
    /// Command line: the experiment's name and its options, without those of the output.
    pub(crate) line: Vec<String>,
    /// Whether the experiment measures this machine, so that no other work may run at the same
    /// time.
    pub(crate) is_measured: bool,
    prepared: Prepared,
}

/// Experiment of a longer command that has run, with its result.
pub(crate) struct FinishedPart {
    /// Stem of the names of its files, or name of the folder of a sweep's point.
    pub(crate) stem: String,
    /// Command line: the experiment's name and its options, without those of the output.
    pub(crate) line: Vec<String>,
    /// Result of the experiment.
    pub(crate) outcome: Box<dyn Outcome>,
}

impl Part {
    /// Parses the command line and checks the experiment's input.
    ///
    /// # Errors
    /// If the command line or the input is invalid.
    pub(crate) fn new(stem: impl Into<String>, line: Vec<String>) -> anyhow::Result<Self> {
        let stem = stem.into();
        let single = Single::parse(&line)?;
        let experiment = single.experiment();
        let (is_measured, prepared) = (experiment.is_measured(), experiment.prepare()?);
        Ok(Self { stem, line, is_measured, prepared })
    }

    /// Runs the experiment. Results that the journal has are not computed again.
    ///
    /// # Errors
    /// If the experiment fails; the message begins with the stem.
    pub(crate) fn run(self, journal: &Journal) -> anyhow::Result<FinishedPart> {
        let Self { stem, line, prepared, .. } = self;
        let outcome = prepared(&journal.part(&stem)).with_context(|| stem.clone())?;
        Ok(FinishedPart { stem, line, outcome })
    }
}

impl FinishedPart {
    /// Writes the files into `folder` and returns the text to print.
    ///
    /// # Errors
    /// If a figure cannot be drawn, or if a file cannot be written.
    pub(crate) fn save(&self, folder: &Path, style: Style) -> anyhow::Result<String> {
        outcome::save(&*self.outcome, &self.stem, folder, style)
    }
}
