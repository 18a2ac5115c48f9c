//! A command line of an experiment as a part of a longer command.

use std::path::Path;

use anyhow::Context;

use crate::catalog::Single;
use crate::experiment::Prepared;
use crate::journal::Journal;
use crate::outcome::{self, Outcome};
use crate::style::Style;

/// An experiment that is to be run, and how its files are called.
pub(crate) struct Part {
    pub(crate) stem: String,
    /// Its command line without the program's name and the options of all experiments.
    pub(crate) line: Vec<String>,
    /// Whether it measures this machine.
    pub(crate) is_measured: bool,
    prepared: Prepared,
}

/// A part that was run.
pub(crate) struct Done {
    pub(crate) stem: String,
    pub(crate) line: Vec<String>,
    pub(crate) outcome: Box<dyn Outcome>,
}

impl Part {
    /// A part whose input is read and found to be good.
    pub(crate) fn new(stem: impl Into<String>, line: Vec<String>) -> anyhow::Result<Self> {
        let stem = stem.into();
        let single = Single::parse(&line)?;
        let experiment = single.experiment();
        let (is_measured, prepared) = (experiment.is_measured(), experiment.prepare()?);
        Ok(Self { stem, line, is_measured, prepared })
    }

    /// Runs it, but for what the journal knows.
    pub(crate) fn run(self, journal: &Journal) -> anyhow::Result<Done> {
        let Self { stem, line, prepared, .. } = self;
        let outcome = prepared(&journal.part(&stem)).with_context(|| stem.clone())?;
        Ok(Done { stem, line, outcome })
    }
}

impl Done {
    /// Writes its files, and gives its text.
    pub(crate) fn save(&self, folder: &Path, style: Style) -> anyhow::Result<String> {
        outcome::save(&*self.outcome, &self.stem, folder, style)
    }
}
