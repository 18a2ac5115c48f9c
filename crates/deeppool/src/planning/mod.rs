//! From costs to a plan, and plans as files.

mod file;
mod gpu_counts;
mod request;

pub use file::{FrontierEntry, PlanFile, PlannedLayer, ProfileOrigin};
pub use gpu_counts::GpuCounts;
pub use request::{Mode, PlanRequest, Planned, data_parallel_by};
