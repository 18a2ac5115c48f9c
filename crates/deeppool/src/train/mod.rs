//! Training runs. Ranks are threads of this process ([`train`]) or members of any communicator
//! ([`train_rank`]). Ranks may train background jobs while their foreground waits: a copy on each
//! rank, or one job on several ranks.
//!
//! The state of a rank is the parameters, running statistics and velocities of its layers. A
//! velocity is the momentum buffer of SGD. A rotation is the sequence of training programs that
//! successive iterations execute; it has one program, or several with partial backpropagation.

mod agreement;
mod background;
mod background_config;
mod background_state;
mod batches;
mod checkpoint;
mod checkpoint_files;
mod config;
mod evaluation;
mod exchange;
mod folder_owner;
#[cfg(feature = "cuda")]
mod gpus;
mod gradients;
mod image_orders;
mod job_ranks;
mod micro_batches;
mod own_tensors;
mod owner;
mod programs;
mod rank;
mod report;
mod session;
mod settings;
mod shared_jobs;
mod step_times;
mod summary;
mod sync_schedule;
mod tensors;
mod threads;
mod trace;
mod weights;

pub use background_config::BackgroundConfig;
pub use batches::{Epochs, InOrder};
pub use config::{CheckpointConfig, CheckpointEvery, EmulatedTimes, Length, TrainConfig};
#[cfg(feature = "cuda")]
pub use gpus::{evaluate_on_gpus, train_on_gpus, train_rank_on_gpu};
pub use gradients::{Gradients, gradients};
pub use job_ranks::{JobRanks, assign_ranks};
pub use micro_batches::MicroBatches;
pub(crate) use report::has_accuracy;
pub use report::{
    BackgroundReport, ChosenKernel, EpochReport, Evaluation, HeldMemory, IterationTimes, LossEvaluation,
    Progress, TrainReport,
};
pub use session::train_rank;
pub use threads::{evaluate, train};
pub use weights::Weights;
