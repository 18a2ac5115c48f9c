//! The answer: which option every node takes, on which ranks, and what it adds up to.

use std::ops::Range;
use std::time::Duration;

use crate::totals::chosen_options;
use crate::{PlanProblem, Result, Totals, evaluate};

/// A choice for every node, spelled out.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// `choice[n]` is the index of the option that node `n` takes.
    pub choice: Vec<usize>,
    /// What an iteration costs.
    pub totals: Totals,
    /// The largest GPU count of any node: how many ranks the plan needs.
    pub gpus: usize,
    /// Where each node runs, in node order.
    pub assignments: Vec<Assignment>,
    /// How long the search took. Zero for a plan that was not searched for.
    pub search_time: Duration,
    /// No plan within the same limit has an iteration time below `iteration_us / (1 + certified_epsilon)`; 0 is
    /// an optimal plan. `None` where nothing was certified, as for a choice made by the caller.
    pub certified_epsilon: Option<f64>,
}

/// Where one node runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The node's name.
    pub name: String,
    /// Its GPU count.
    pub gpus: usize,
    /// Its ranks. Branches run one after another, so they always start at 0.
    pub ranks: Range<usize>,
    /// Compute and all-reduce, microseconds; transfers are on the edges.
    pub time_us: f64,
}

impl Plan {
    /// Spells out a choice that was made elsewhere, for example read from a file.
    ///
    /// # Errors
    /// What [`PlanProblem::validate`] and [`evaluate`] report. Memory is not checked: the plan of a caller who
    /// knows better is spelled out all the same.
    pub fn from_choice(problem: &PlanProblem, choice: Vec<usize>) -> Result<Self> {
        problem.validate()?;
        let totals = evaluate(problem, &choice)?;
        let options = chosen_options(problem, &choice)?;
        let assignments: Vec<Assignment> = problem
            .nodes
            .iter()
            .zip(&options)
            .map(|(node, option)| Assignment {
                name: node.name.clone(),
                gpus: option.gpus,
                ranks: 0..option.gpus,
                time_us: option.total_us(),
            })
            .collect();
        let gpus = options.iter().map(|option| option.gpus).max().unwrap_or(0);
        Ok(Self { choice, totals, gpus, assignments, search_time: Duration::ZERO, certified_epsilon: None })
    }
}
