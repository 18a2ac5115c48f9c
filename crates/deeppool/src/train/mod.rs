//! Trains a network by a placement: ranks are threads, each of which may run a background job in its gaps.

mod batches;
mod checkpoint;
mod config;
mod micro_batches;
mod pace;
mod rank;
mod report;
mod session;

pub use batches::{InOrder, Shuffled};
pub use config::{BackgroundJob, CheckpointConfig, CheckpointEvery, Length, TrainConfig};
pub use micro_batches::MicroBatches;
pub use report::{EpochReport, HeldMemory, IterationTimes, Progress, TrainReport};
pub use session::train;
