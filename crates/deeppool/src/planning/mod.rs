//! From costs to a plan, and plans as files.

mod file;
mod request;

pub use file::{FrontierEntry, PlanFile, PlannedLayer, ProfileOrigin};
pub use request::{Mode, PlanRequest, Planned};
