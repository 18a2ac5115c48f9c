//! Optimal searches: the fastest plan under a limit, and the frontier of all Pareto-optimal plans.

mod budget;
mod cost;
mod elimination;
mod frontier;
mod guide;
mod history;
mod labels;
mod loads;
mod memory;
pub(crate) mod per_layer;
mod queries;
mod shrink;
mod solver;
mod tables;
mod window;

pub(crate) use budget::{Bracket, exact};
pub(crate) use cost::{Cost, Weights};
pub use frontier::{Frontier, FrontierPoint, frontier, supported};
pub(crate) use history::{Decision, History};
pub(crate) use labels::{Slack, keep_nondominated};
pub(crate) use solver::Solver;
pub(crate) use window::ROUNDING;

use crate::{Error, Result, Stop};

/// Times are compared with limits at this relative tolerance.
const LIMIT_TOLERANCE: f64 = 1e-9;

/// What an amplification limit is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LimitRule {
    /// The limit is a budget for the whole plan: its GPU time over the single-GPU time.
    #[default]
    Total,
    /// The rule of the original DeepPool, to compare with it: along a chain of layers, an option of a layer is taken for being
    /// faster only if this layer's own GPU time, incoming transfer included, is below the limit as a multiple of its time on
    /// one GPU, or closer to it than that of the option it replaces. Layers of at most 300 us on one GPU are exempt, and the last layer is
    /// exempt, too.
    ///
    /// The plan's amplification can be above the limit, and a looser limit or more GPUs can make the plan slower. There is no
    /// certificate. Only for chains, and always with the additive model of time.
    PerLayer,
}

/// How the time of an iteration adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TimeModel {
    /// One thing after another: the sum of all times, as [`evaluate`](crate::evaluate) adds them up.
    Additive,
    /// As additive, but branches between a fork and a join may run at the same time on different ranks, as
    /// [`evaluate_schedule`](crate::evaluate_schedule) says. Which do is part of the plan. Edges have to say what a
    /// transfer between disjoint ranks costs; without [`transfer_disjoint_us`](crate::Edge) this is the additive model.
    #[default]
    Waves,
    /// The all-reduce of a node's gradients overlaps with the backward pass of nodes before it.
    ///
    /// Nodes run one after another in *program order*: producers before consumers, else the one that was added first. The
    /// forward pass takes that order, the backward pass its reverse. When the backward pass of a node is over, the
    /// all-reduce of its gradients is queued. Communication has one lane and keeps its order: all-reduces run one after
    /// another while the backward pass goes on; a transfer waits until the queue is empty, and the backward pass waits
    /// for the transfer; the iteration ends when both the backward pass and the queue are done.
    ///
    /// ```text
    /// exposed = 0;  queue = 0
    /// for each node, in the reverse of program order:
    ///     if a transfer to one of its consumers takes time:  exposed += queue;  queue = 0
    ///     queue = max(queue - backward, 0) + all-reduce
    /// iteration time = sum of times + sum of transfers + exposed + queue
    /// ```
    ///
    /// Without backward time this is the additive model. GPU time always is: an all-reduce is charged in full, hidden or
    /// not.
    ///
    /// Searches are exact where few nodes are live at once (an edge joins them to nodes on the other side of a place in
    /// program order): the work grows with the product of their numbers of options. Beyond that, and with a memory limit,
    /// a plan is returned that another one can be faster than by at most
    /// [`Plan::optimality_gap`](crate::Plan::optimality_gap), by a Lagrangian bound.
    Overlap,
}

/// How to search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SearchOptions {
    /// The tolerance: 0 is exact and the default. It is guaranteed for the result, not for a step on the way.
    pub epsilon: f64,
    /// What the amplification limit is applied to.
    pub limit_rule: LimitRule,
    /// How the time of an iteration adds up.
    pub time_model: TimeModel,
    /// How many partial plans one window of the search may keep before it gives up with
    /// [`Error::TooManyLabels`]; one takes some 50 bytes. 20 million by default.
    pub max_labels: usize,
    /// Ends the search early, without an answer.
    pub stop: Stop,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            epsilon: 0.0,
            limit_rule: LimitRule::Total,
            time_model: TimeModel::Waves,
            max_labels: 20_000_000,
            stop: Stop::default(),
        }
    }
}

impl SearchOptions {
    /// The default with a tolerance.
    #[must_use]
    pub fn with_epsilon(epsilon: f64) -> Self {
        Self { epsilon, ..Self::default() }
    }

    /// These options with another limit rule.
    #[must_use]
    pub fn with_limit_rule(self, limit_rule: LimitRule) -> Self {
        Self { limit_rule, ..self }
    }

    /// These options with another model of time.
    #[must_use]
    pub fn with_time_model(self, time_model: TimeModel) -> Self {
        Self { time_model, ..self }
    }

    /// These options with another way to end the search early.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.epsilon.is_finite() && self.epsilon >= 0.0 {
            return Ok(());
        }
        Err(Error::BadEpsilon { epsilon: self.epsilon })
    }
}

pub(crate) fn limit_error(limit: f64) -> Result<()> {
    // Also false for a limit that is not a number.
    if limit >= 1.0 { Ok(()) } else { Err(Error::BadLimit { limit }) }
}

pub(crate) fn tolerant(limit: f64) -> f64 {
    limit * (1.0 + LIMIT_TOLERANCE)
}
