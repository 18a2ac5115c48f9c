//! How an experiment is run: everything is checked first.

use crate::journal::Journal;
use crate::options::RunOptions;
use crate::outcome::Outcome;

/// An experiment whose input is read and found to be good.
pub(crate) type Prepared = Box<dyn FnOnce(&Journal) -> anyhow::Result<Box<dyn Outcome>> + Send>;

/// The options of an experiment.
pub(crate) trait Experiment {
    /// The options that all experiments have.
    fn run_options(&self) -> &RunOptions;

    /// Whether it measures this machine, which must do nothing else meanwhile.
    fn is_measured(&self) -> bool {
        false
    }

    /// Reads all input: what is wrong with it is found before any work starts.
    fn prepare(&self) -> anyhow::Result<Prepared>;
}

/// What is left to do, of a kind.
pub(crate) fn prepared<O: Outcome + 'static>(
    run: impl FnOnce(&Journal) -> anyhow::Result<O> + Send + 'static,
) -> Prepared {
    Box::new(move |journal| Ok(Box::new(run(journal)?)))
}
