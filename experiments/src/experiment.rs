//! The experiment trait. Input is checked before any work starts.

use crate::journal::Journal;
use crate::options::RunOptions;
use crate::outcome::Outcome;

/// An experiment whose input has been read and checked.
pub(crate) type Prepared = Box<dyn FnOnce(&Journal) -> anyhow::Result<Box<dyn Outcome>> + Send>;

/// Options of an experiment.
pub(crate) trait Experiment {
    /// Returns the options that all experiments have.
    fn run_options(&self) -> &RunOptions;

    /// Returns whether the experiment measures this machine. Nothing else may run at the same time.
    fn is_measured(&self) -> bool {
        false
    }

    /// Reads and checks all input, and returns the work to do.
    fn prepare(&self) -> anyhow::Result<Prepared>;
}

/// Boxes the work of an experiment.
pub(crate) fn prepared<O: Outcome + 'static>(
    run: impl FnOnce(&Journal) -> anyhow::Result<O> + Send + 'static,
) -> Prepared {
    Box::new(move |journal| Ok(Box::new(run(journal)?)))
}
