#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - Statistical efficiency: [`EpochCurve`] gives the [`Epochs`] at a batch. [`EpochCurveDocument`]
//!   is its file format.
//! - Hardware efficiency: [`StepTimes`] gives the [`StepTime`] of a [`Configuration`].
//!   [`MeasuredEpochs`] implements it for measured runs, and [`scaling_efficiency`] compares two
//!   configurations.
//! - Planning: [`estimate`] returns the [`Estimates`] of [`Candidates`].
//! - Hybrid and data parallelism: [`Comparison`] on one number of GPUs, [`Crossover`] on several.

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
pub use planner::{
    Batches, Candidates, Estimate, Estimates, GpuHours, SkipReason, SkippedCandidate, estimate, format_hours,
};
pub use steps::{Configuration, StepTime, StepTimes, scaling_efficiency};
