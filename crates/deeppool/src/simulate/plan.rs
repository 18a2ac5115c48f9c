//! Plans in virtual time.

use super::{SimulateOptions, Simulation, simulate};
use crate::Error;
use crate::job::Job;
use crate::plan::ExecutionPlan;
use crate::program::{Program, lower_for_simulation};

impl Job<'_> {
    /// Runs a plan's program in virtual time, as [`simulate`](super::simulate()) does.
    ///
    /// # Errors
    /// As [`lower`](Self::lower), and when the profile lacks a time.
    pub fn simulate(&self, plan: &ExecutionPlan, options: &SimulateOptions) -> Result<Simulation, Error> {
        simulate(&self.lower_for_simulation(plan)?, self.costs(), options)
    }

    /// A plan as a program that can be simulated: see [`lower_for_simulation`].
    ///
    /// # Errors
    /// As [`lower`](Self::lower).
    pub fn lower_for_simulation(&self, plan: &ExecutionPlan) -> Result<Program, Error> {
        lower_for_simulation(self.costs().network(), &self.placement(plan)?, self.batch(), self.lowering())
    }
}
