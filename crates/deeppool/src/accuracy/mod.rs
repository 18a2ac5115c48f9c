//! Time to accuracy: how many epochs a network takes to a target, measured here by global batch.
//!
//! What is done with such a curve, and with those that others have published, is the crate `time-to-accuracy`'s.

mod curve;
mod run;

pub use curve::{MeasuredCurve, epoch_curve};
pub use run::{Outcome, TargetRun, check_target, train_to_target};
