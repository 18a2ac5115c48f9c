//! The search for plans of a [`Job`](crate::job::Job), and the analysis of one plan.

mod analysis;
mod arranged_plan;
mod checkpoint_choice;
mod device_placement;
mod explain;
mod frontier;
mod largest_batch;
mod micro_batches;
mod partial;
mod program_memory;
mod recompute;
mod scaled_costs;
mod search;
mod within_memory;
mod workers;

pub use burst_planner::{PathKind, PathStep};

pub use analysis::PlanAnalysis;
pub use device_placement::placement_problem;
pub use explain::{RunAlternative, RunExplanation};
pub(crate) use frontier::data_parallel_times_on;
pub use frontier::{PlanFrontier, find_frontier, find_plan};
pub use within_memory::plan_within_memory;
