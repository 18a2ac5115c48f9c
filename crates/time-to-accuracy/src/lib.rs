#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! - **What is known of learning**: an [`EpochCurve`], read from a file of the format [`EpochCurveDocument`]; [`Epochs`] at a batch.
//! - **What is known of speed**: [`StepTimes`], the [`StepTime`] of a [`Configuration`]; [`MeasuredEpochs`] are those of runs, and
//!   [`scaling_efficiency`] is what they amount to.
//! - **Who decides**: [`estimate`] goes through [`Candidates`] and gives [`Estimates`], of which one is the soonest, one costs the fewest
//!   GPU hours by a deadline, and some are a Pareto frontier.
//! - **Hybrid against data parallelism**: a [`Comparison`] at one number of GPUs, a [`Crossover`] over many.

mod crossover;
mod curve;
mod error;
mod measured;
mod planner;
mod steps;

pub use crossover::{Comparison, Crossover, Winner};
pub use curve::{CurveSchema, EpochCurve, EpochCurveDocument, EpochPoint, Epochs, Interpolation, Origin};
pub use error::AccuracyError;
pub use measured::{EpochTime, MeasuredEpochs};
pub use planner::{Batches, Candidates, Estimate, Estimates, GpuTime, LeftOut, Reason, estimate, in_hours};
pub use steps::{Configuration, StepTime, StepTimes, scaling_efficiency};
