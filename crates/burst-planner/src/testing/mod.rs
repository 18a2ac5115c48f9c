//! Tools to test a search: random problems, enumeration, a slow time model, and laws. Requires the
//! feature `testing`.
//!
//! A search is any function that returns an [`Arrangement`](crate::Arrangement), or `None` if it
//! finds none within the limit. This one is data parallelism on as many GPUs as the limit allows:
//!
//! ```
//! use burst_planner::testing::{check_search, random_problem};
//! use burst_planner::{Arrangement, Evaluator, CostModel, PlanProblem};
//!
//! let search = |problem: &PlanProblem, costs: &dyn CostModel, limit: f64| {
//!     let mut evaluator = Evaluator::new(problem, costs).ok()?;
//!     let budget_us = limit * evaluator.single_gpu_us().ok()?;
//!     let all = (1..=problem.gpus);
//!     let all = all.filter_map(|gpus| Arrangement::data_parallel(problem, gpus).ok());
//!     let timed = all.filter_map(|one| Some((evaluator.evaluate(&one).ok()?, one)));
//!     let within = timed.filter(|(time, _)| time.gpu_time_us <= budget_us);
//!     within.min_by(|a, b| a.0.iteration_us.total_cmp(&b.0.iteration_us)).map(|(_, one)| one)
//! };
//! let violations = check_search(&search, (0..5).map(random_problem));
//! assert!(violations.is_empty(), "{violations:?}");
//! ```
//!
//! It satisfies all laws, but is not optimal: compare it with [`Enumeration`], or with
//! [`random_restarts`] for larger problems.

mod enumeration;
mod events;
mod hashed;
mod laws;
mod placements;
mod problems;
mod restarts;
mod splits;
mod strategies;
mod timeline;

pub use enumeration::{Enumeration, best_by_enumeration};
pub use hashed::HashedCosts;
pub use laws::{
    Search, Violation, check_search, faster_links_never_slow_down, keeps_the_limit,
    looser_limits_are_never_slower, more_gpus_are_never_slower, never_slower_than_data_parallelism,
};
pub use placements::{placement_by_enumeration, random_placement_problem};
pub use problems::{Graph, RandomProblem, random_arrangement, random_problem, random_problem_on};
pub use restarts::{Budget, random_restarts};
pub use splits::{SplitTables, add_random_splits, random_split_arrangement};
pub use strategies::{arrangements, problems};
pub use timeline::{SlowTime, slow_time};
