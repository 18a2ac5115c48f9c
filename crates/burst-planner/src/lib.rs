#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | to | see |
//! |---|---|
//! | state a problem | [`PlanProblem`], [`Node`], [`GradientOptions`], [`gpu_counts`] |
//! | divide the work of a node on each sample | [`NodeSplit`], [`SplitCosts`] |
//! | give durations of steps and collectives | [`TableCosts`], or implement [`CostModel`] |
//! | read both from JSON | [`PlanProblem::from_json`] |
//! | find the fastest plan under a limit | [`plan`](fn@plan), [`Plan`] |
//! | find all Pareto-optimal plans | [`frontier`](fn@frontier), [`Frontier`] |
//! | pick one | [`Frontier::fastest_within`], [`Frontier::cheapest_within`], [`Frontier::knee`] |
//! | know how far from the optimum a plan is | [`Frontier::prove`], [`ProofBudget`] |
//! | stop a search or a proof, or show its progress | [`Stop`] |
//! | compute the time of a given plan | [`Evaluator`], [`Arrangement`], [`Activity`] |
//! | find the critical path of a plan | [`Evaluator::critical_path`], [`PathStep`] |
//! | compare arrangements from elsewhere | [`evaluate_arrangements`] |
//! | place operations on one device each | [`placement`] |
//! | compare with the original DeepPool's planner | [`per_layer`] |
//! | know how the search works | [the search](#the-search), [`Part`] |
//! | test a search of your own | the feature `testing` |
//!
#![doc = include_str!("../docs/time-of-a-program.md")]
//!
#![doc = include_str!("../docs/search.md")]

// Unit tests use the public module `testing` by the crate's name.
#[cfg(test)]
extern crate self as burst_planner;

mod activity;
mod arrangement;
mod bound;
mod cost_cache;
mod costs;
mod critical_path;
mod error;
mod evaluator;
pub mod gpu_counts;
mod groups;
mod iteration;
mod json;
mod memory;
mod memory_model;
mod node_order;
pub mod per_layer;
pub mod placement;
mod problem;
mod proof;
mod recompute;
mod search;
mod splits;
mod steady_state;
mod stop;
mod table;
#[cfg(feature = "testing")]
pub mod testing;

pub use activity::Activity;
pub use arrangement::Arrangement;
pub use costs::{CostBounds, CostModel, NodeMemory, ShardSize, SplitCosts, StepTimes};
pub use critical_path::{PathKind, PathStep};
pub use error::{Error, Result};
pub use evaluator::{Evaluator, Plan, PlanTime};
pub use problem::{BackwardReads, GradientOptions, Node, NodeId, PlanProblem};
pub use proof::{LowerBound, ProofBudget, ProofEnd};
pub use search::{Frontier, Part, SearchEnd, SearchOptions, evaluate_arrangements, frontier, plan};
pub use splits::{NodeSplit, SynchronizedBytes, TensorLayout, Values};
pub use stop::{Progress, Stop};
pub use table::{AllReduceTime, TableCosts, TransferTimes};
