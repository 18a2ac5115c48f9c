//! The plan with the highest total throughput of foreground and background samples per second.

use super::beside::frontier_beside;
use crate::Error;
use crate::job::{Job, LoweredPlan};
use crate::plan::{Mode, PlanRequest};
use crate::simulate::{BackgroundCosts, SimulateOptions, Simulation, simulate_plan};

/// The plan with the highest total throughput, and its simulation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TotalPlan<'a> {
    /// The plan of the foreground.
    pub plan: LoweredPlan<'a>,
    /// Simulation of the plan with a background job on each GPU.
    pub simulation: Simulation,
    /// Iteration time in microseconds of the fastest plan within the amplification limit, without
    /// background jobs.
    pub fastest_us: f64,
}

/// Finds the plan with the highest total throughput of the foreground and a background job on each
/// GPU, among plans whose foreground alone is at least `foreground` (above 0, at most 1) times as
/// fast as the fastest plan within the request's amplification limit. With 1 it is the fastest
/// plan.
///
/// The throughput is simulated with `options`, whose policy decides which idle times are long
/// enough for background work; their background job is ignored. With a memory limit, plans leave
/// room for a background job. All plans of the frontier that are fast enough are simulated.
/// O(search + plans x simulation).
///
/// # Errors
/// [`Error::Setting`] if `foreground` is out of range or backpropagation is partial, and the errors
/// of [`find_plan`](crate::planning::find_plan).
pub fn max_total_plan<'a>(
    job: &Job<'a>,
    request: &PlanRequest,
    foreground: f64,
    background: &BackgroundCosts,
    options: &SimulateOptions,
) -> Result<TotalPlan<'a>, Error> {
    if !(foreground > 0.0 && foreground <= 1.0) {
        let (setting, expected) = ("the foreground's part of its fastest speed", "above 0, at most 1");
        return Err(Error::Setting { setting, expected, got: foreground.to_string() });
    }
    job.check_full_backpropagation()?;
    let amplification = match request.mode {
        Mode::Burst { amplification } => amplification,
        _ => f64::INFINITY,
    };
    let frontier = frontier_beside(job, request, background)?;
    let options = options.clone().with_memory_limit(request.memory_limit_bytes);
    let fastest_us = frontier.points().fastest_within(amplification)?.time.iteration_us;
    let slowest_us = fastest_us / foreground * (1.0 + 1e-9);
    let points = frontier.points().plans().iter().map(|point| (point.time.iteration_us, point));
    let fast_enough = points.filter(|(time_us, _)| (fastest_us..=slowest_us).contains(time_us));
    let mut best = None;
    // Ordered from the fastest: of equal plans the faster one is taken.
    for (_, point) in fast_enough {
        let options = SimulateOptions { background: Some(background.clone()), ..options.clone() };
        let simulation = simulate_plan(job, &frontier.unbounded_plan_of(point)?, &options)?;
        let total = simulation.foreground_samples_per_s + simulation.background_samples_per_s;
        if best.as_ref().is_none_or(|(max, ..): &(f64, _, _)| total > *max) {
            best = Some((total, point, simulation));
        }
    }
    let (_, point, simulation) = best.ok_or(burst_planner::Error::NoNodes)?;
    Ok(TotalPlan { plan: frontier.plan_of(point, Mode::Burst { amplification })?, simulation, fastest_us })
}
