//! Execution plans ([`ExecutionPlan`]) and the requests for them ([`PlanRequest`]).

mod capacity;
mod check;
mod execution_plan;
mod file;
mod gpu_counts;
mod planning_work;
mod predicted_range;
mod request;
mod worker;

pub(crate) use file::SCHEMA;

pub use capacity::Capacity;
pub use execution_plan::{
    DataParallelTimes, ExecutionPlan, PlanMode, PlannedLayer, PlannedLowering, ProfileOrigin,
};
pub use gpu_counts::GpuCounts;
pub use planning_work::PlanningWork;
pub use predicted_range::PredictedRange;
pub use request::{MAX_GPUS, Mode, PlanRequest};
pub use worker::PlannedWorker;
