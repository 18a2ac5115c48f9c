//! Times of the steps of a program.

use std::time::Duration;

use collectives::Flow;

use crate::Error;
use crate::costs::Costs;
use crate::program::Program;

/// Times of the steps of a program.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProgramTimes {
    /// Time of each compute step, by index in [`Program::ranks`], then by step. Those of
    /// communication steps are ignored.
    pub(super) steps: Vec<Vec<Duration>>,
    /// Time of each collective, from the arrival of its last rank to its end.
    pub(super) transfers: Vec<Duration>,
}

impl ProgramTimes {
    /// Returns the times of [`Costs::step_times`].
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub(super) fn new(program: &Program, costs: &Costs<'_>) -> Result<Self, Error> {
        let transfers = program.collectives.iter().map(|collective| costs.collective_time(collective));
        Ok(Self { steps: costs.step_times(program)?, transfers: transfers.collect() })
    }

    /// Returns the times of [`Costs::step_times`], and those of the given flows, one for each
    /// collective.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub(super) fn with_flows(program: &Program, costs: &Costs<'_>, flows: &[Flow]) -> Result<Self, Error> {
        Ok(Self { steps: costs.step_times(program)?, transfers: flows.iter().map(Flow::alone).collect() })
    }
}
