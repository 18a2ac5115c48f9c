//! An experiment that runs as part of a longer command.

use std::path::Path;

use anyhow::Context;

use crate::catalog::Single;
use crate::experiment::Prepared;
use crate::journal::Journal;
use crate::outcome::{self, Outcome};
use crate::style::Style;

/// An experiment to run, and the stem of its files.
pub(crate) struct Part {
    pub(crate) stem: String,
    /// Command line without the program's name and the options that all experiments have.
    pub(crate) line: Vec<String>,
    /// Whether the experiment measures this machine.
    pub(crate) is_measured: bool,
    prepared: Prepared,
}

/// A finished part.
pub(crate) struct Done {
    pub(crate) stem: String,
    pub(crate) line: Vec<String>,
    pub(crate) outcome: Box<dyn Outcome>,
}

impl Part {
    /// Parses the command line and checks the experiment's input.
    pub(crate) fn new(stem: impl Into<String>, line: Vec<String>) -> anyhow::Result<Self> {
        let stem = stem.into();
        let single = Single::parse(&line)?;
        let experiment = single.experiment();
        let (is_measured, prepared) = (experiment.is_measured(), experiment.prepare()?);
        Ok(Self { stem, line, is_measured, prepared })
    }

    /// Runs the experiment. Results that the journal has are not computed again.
    pub(crate) fn run(self, journal: &Journal) -> anyhow::Result<Done> {
        let Self { stem, line, prepared, .. } = self;
        let outcome = prepared(&journal.part(&stem)).with_context(|| stem.clone())?;
        Ok(Done { stem, line, outcome })
    }
}

impl Done {
    /// Writes the files and returns the text to print.
    pub(crate) fn save(&self, folder: &Path, style: Style) -> anyhow::Result<String> {
        outcome::save(&*self.outcome, &self.stem, folder, style)
    }
}
