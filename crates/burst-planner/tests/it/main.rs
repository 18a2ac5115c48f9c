//! The planner, as its users call it.

mod bad_problems;
mod explain;
mod export;
mod gpu_counts;
mod json;
mod laws;
mod original;
mod original_data;
mod original_failures;
mod overlap;
mod placement;
mod queries;
mod random;
mod schedules;
mod stop;
mod training;
mod waves;
