//! The trait of the experiments. It separates the check of the input from the work, so that invalid
//! input is reported before any work starts.

use crate::journal::Journal;
use crate::options::RunOptions;
use crate::outcome::Outcome;

/// Function that runs an experiment whose input has been checked, and returns its result. Results
/// that the journal has are not computed again.
pub(crate) type Prepared = Box<dyn FnOnce(&Journal) -> anyhow::Result<Box<dyn Outcome>> + Send>;

/// Parsed command-line options of an experiment.
pub(crate) trait Experiment {
    /// Returns the options that all experiments have.
    fn run_options(&self) -> &RunOptions;

    /// Returns whether the experiment measures this machine, so that no other work may run at the
    /// same time.
    fn is_measured(&self) -> bool {
        false
    }

    /// Reads and checks all input, and returns the function that runs the experiment.
    ///
    /// # Errors
    /// If an option is invalid, or if an input file cannot be read.
    fn prepare(&self) -> anyhow::Result<Prepared>;
}

/// Converts a function that computes a result of type `O` into the function that runs an
/// experiment.
pub(crate) fn prepared<O: Outcome + 'static>(
    run: impl FnOnce(&Journal) -> anyhow::Result<O> + Send + 'static,
) -> Prepared {
    Box::new(move |journal| Ok(Box::new(run(journal)?)))
}
