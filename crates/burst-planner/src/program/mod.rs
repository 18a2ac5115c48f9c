#![doc = include_str!("../../docs/time-of-a-program.md")]

mod activity;
mod arrangement;
mod bound;
mod costs;
mod evaluator;
mod groups;
mod iteration;
pub(crate) mod json;
mod known;
mod memory;
mod order;
mod path;
mod placed;
mod problem;
mod recompute;
mod search;
mod steady;
mod table;

pub use activity::Activity;
pub use arrangement::Arrangement;
pub use costs::{NodeMemory, Share, StepTimes, TrainingCosts};
pub use evaluator::{Evaluator, TrainingTime};
pub use path::{PathKind, PathStep};
pub(crate) use problem::Structure;
pub use problem::{BackwardReads, GradientOptions, SynchronizedBytes, TrainingNode, TrainingProblem};
pub use search::{TrainingFrontier, TrainingPoint, TrainingSearch, evaluate_arrangements, search_training};
pub use table::{AllReduceTime, TableCosts, TransferTimes};
