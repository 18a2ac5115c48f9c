//! The time of a plan is the time of its training program.

mod activity;
mod arrangement;
mod bound;
mod costs;
mod evaluator;
mod groups;
mod iteration;
mod path;
mod problem;
mod search;

pub use activity::Activity;
pub use arrangement::Arrangement;
pub use costs::{Share, StepTimes, TrainingCosts};
pub use evaluator::{Evaluator, TrainingTime};
pub use search::{TrainingFrontier, TrainingPoint, TrainingSearch, search_training};
pub use path::{PathKind, PathStep};
pub use problem::{GradientOptions, SynchronizedBytes, TrainingNode, TrainingProblem};
