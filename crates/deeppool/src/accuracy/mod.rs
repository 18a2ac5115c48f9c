//! Time to accuracy. It has two factors: the number of epochs to a target accuracy by global batch,
//! measured by training runs, and the iteration time by configuration, predicted by plans.
//!
//! The crate [`time_to_accuracy`] combines both, and can also use published numbers of epochs:
//!
//! ```
//! use deeppool::accuracy::{LayerTimes, PlannedIterationTimes};
//! use deeppool::time_to_accuracy::{Batches, Candidates, EpochCurve, estimate};
//! use layer_graph::zoo;
//! use layer_profile::DeviceModel;
//!
//! // ResNet-50 to 75.9% on up to 64 A100s with data parallelism: fastest, and cheapest within
//! // ten hours.
//! let (network, device) = (zoo::model("resnet-50")?, DeviceModel::named("a100")?);
//! let steps = PlannedIterationTimes::new(&network, LayerTimes::Device(&device));
//! let candidates = Candidates::new([16, 32, 64], Batches::Global(vec![1632, 4096]));
//! let estimates = estimate(&EpochCurve::named("resnet-50")?, &steps, &candidates)?;
//! assert_eq!(estimates.soonest().configuration.workers, 64);
//! println!("{}", estimates.cheapest_by(std::time::Duration::from_secs(36_000))?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod curve;
mod iteration_times;
mod run;

pub use curve::{CurveDescription, epoch_curve};
pub use iteration_times::{LayerTimes, PlannedIterationTimes};
pub use run::{Outcome, TargetRun, check_target, train_to_target};
