//! Simulation of a plan.

use super::{SimulateOptions, Simulation, simulate};
use crate::Error;
use crate::job::{Job, LoweredPlan};

/// Runs a plan's program in virtual time, with the costs of its job: see
/// [`simulate`](super::simulate()).
///
/// # Errors
/// As [`simulate`](super::simulate()), and if the plan cannot be lowered.
pub fn simulate_plan(
    job: &Job<'_>,
    plan: &LoweredPlan<'_>,
    options: &SimulateOptions,
) -> Result<Simulation, Error> {
    simulate(plan.training().for_simulation()?, job.costs(), options)
}
