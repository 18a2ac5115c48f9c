//! Plans in virtual time.

use super::{SimulateOptions, Simulation, simulate};
use crate::Error;
use crate::job::Job;
use crate::plan::ExecutionPlan;
use crate::program::lower_for_simulation;

impl Job<'_> {
    /// Runs a plan's program in virtual time, as [`simulate`](super::simulate()) does.
    ///
    /// # Errors
    /// As [`lower`](Self::lower), and when the profile lacks a time.
    pub fn simulate(&self, plan: &ExecutionPlan, options: &SimulateOptions) -> Result<Simulation, Error> {
        let placement = self.placement(plan)?;
        let program =
            lower_for_simulation(self.costs().network(), &placement, self.batch(), self.lowering())?;
        simulate(&program, self.costs(), options)
    }
}
