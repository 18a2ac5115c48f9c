#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | to | see |
//! |---|---|
//! | state a problem | [`PlanProblem`], [`NodeOption`], [`gpu_counts`] |
//! | read and write it as JSON | [`PlanProblem::from_json`], [`PlanProblem::to_json`] |
//! | find the fastest plan under a limit | [`fastest`] |
//! | find all Pareto-optimal plans | [`frontier`], [`Frontier`] |
//! | pick one of them | [`Frontier::fastest_within`], [`Frontier::cheapest_within`], [`Frontier::knee`] |
//! | compare with data parallelism | [`data_parallel`] |
//! | know why a node has its GPU count | [`explain`](fn@explain), [`Explanation`] |
//! | know the time of a training program, and search by it | [`program`], [`TrainingProblem`], [`Evaluator`], [`search_training`] |
//! | place operations on one of a few devices each | [`placement`], [`place`](placement::place) |
//! | read either kind of problem | [`Problem::from_json`] |
//! | look at a plan in Graphviz or Perfetto | [`export`] |
//! | know what a choice costs | [`evaluate`], [`Totals`] |
//! | run branches at the same time | [`TimeModel::Waves`], [`regions`], [`Schedule`], [`evaluate_schedule`], [`layout`](fn@layout) |
//! | let all-reduces overlap | [`TimeModel::Overlap`], [`evaluate_overlap`] |
//! | compare with the original's limit | [`LimitRule::PerLayer`] |
//!
//! # The model
//!
//! Each node takes one of its options, and a node on `k` GPUs runs on ranks `0..k`. This is the additive model, on which
//! [`TimeModel::Waves`] and [`TimeModel::Overlap`] build:
//!
//! ```text
//! iteration time  = sum of (time + all-reduce) + sum of transfers          of the chosen options
//! GPU time        = sum of GPUs * (time + all-reduce) + sum of max(GPUs of both ends) * transfer
//! single-GPU time = sum over the nodes of the fastest option with one GPU, without its all-reduce
//! amplification   = GPU time / single-GPU time
//! ```
//!
//! A plan is *optimal* when no other choice is at least as good in both times and better in one. With a
//! memory limit only those choices count whose `memory_bytes` add up to no more: rank 0 holds a share of every
//! node, unless waves place it elsewhere.
//!
//! Of plans with the same iteration time the one with less GPU time is taken. Where both are the same (times
//! within 1e-11 relative count as the same) the choice between them is arbitrary but always the same.
//!
//! # How it is searched
//!
//! 1. Regions whose branches can run at once are tabulated: all Pareto-optimal plans between a fork and a join.
//! 2. Nodes are eliminated in an order that ties few others together (the cost is said at [`Error::TooWide`]: tables have as
//!    many entries as tied nodes have combinations of options, 2 nodes at a time for chains, 3 for series-parallel graphs).
//! 3. Minimising `time + price * GPU time` is one linear pass over the tables, and gives a plan and a lower bound. Prices
//!    are varied until the bounds enclose what is asked for.
//! 4. Tables are shrunk to what can still be part of an answer by those bounds, and what is left is searched exactly.

// The generators of random problems are those of the tests outside.
#[cfg(test)]
extern crate self as burst_planner;

mod data_parallel;
mod either;
mod error;
mod explain;
pub mod export;
mod fastest;
pub mod gpu_counts;
mod json;
mod order;
mod overlap;
pub mod placement;
mod plan;
mod problem;
pub mod program;
mod search;
mod stop;
#[cfg(feature = "testing")]
pub mod testing;
mod totals;
mod validate;
mod waves;

pub use data_parallel::data_parallel;
pub use either::Problem;
pub use error::{Error, Result};
pub use explain::{Alternative, Explanation, explain};
pub use fastest::fastest;
pub use overlap::evaluate_overlap;
pub use plan::{Assignment, Plan};
pub use problem::{Edge, Node, NodeId, NodeOption, PlanProblem};
pub use program::{
    Activity, AllReduceTime, Arrangement, BackwardReads, Evaluator, GradientOptions, NodeMemory, PathKind,
    PathStep, Share, StepTimes, SynchronizedBytes, TableCosts, TrainingCosts, TrainingFrontier, TrainingNode,
    TrainingPoint, TrainingProblem, TrainingSearch, TrainingTime, TransferTimes, evaluate_arrangements,
    search_training,
};
pub use search::{Frontier, FrontierPoint, LimitRule, SearchOptions, TimeModel, frontier, supported};
pub use stop::Stop;
pub use totals::{Totals, evaluate};
pub use waves::{Branch, Layout, Link, Region, RegionSchedule, Schedule, evaluate_schedule, layout, regions};
