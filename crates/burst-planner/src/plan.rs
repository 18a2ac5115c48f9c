//! The answer: which option every node takes, on which ranks, and what it adds up to.

use std::ops::Range;
use std::time::Duration;

use crate::totals::chosen_options;
use crate::{PlanProblem, Result, Schedule, Totals, evaluate_schedule, layout};

/// The option chosen for every node, with the schedule, ranks and costs that follow from it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// `choice[n]` is the index of the option that node `n` takes.
    pub choice: Vec<usize>,
    /// Which branches run at once.
    pub schedule: Schedule,
    /// What an iteration costs.
    pub totals: Totals,
    /// How many ranks the plan needs.
    pub gpus: usize,
    /// Where each node runs, in node order.
    pub assignments: Vec<Assignment>,
    /// How long the search took. Zero for a plan that was not searched for.
    pub search_time: Duration,
    /// A proved bound on how far this plan is from the fastest: no plan of the same problem under the same limit on GPU time, or
    /// deadline, has an iteration time below `totals.iteration_us / (1 + optimality_gap)`. 0 is optimal. `None` where nothing
    /// was proved, as for a choice made by the caller.
    pub optimality_gap: Option<f64>,
}

/// Where one node runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Assignment {
    /// The node's name.
    pub name: String,
    /// Its GPU count.
    pub gpus: usize,
    /// Its ranks: from 0, unless it lies in a branch that runs beside another.
    pub ranks: Range<usize>,
    /// Index of its wave in the innermost region that contains it. `None` outside of regions, and for every node where the
    /// schedule lists no region.
    pub wave: Option<usize>,
    /// Compute and all-reduce, microseconds, without the transfers to and from other nodes.
    pub time_us: f64,
}

impl Plan {
    /// The plan of a choice that was made elsewhere, for example read from a file. All nodes run one after another.
    ///
    /// # Errors
    /// What [`PlanProblem::validate`] and [`evaluate`](crate::evaluate) report. The memory limit is not checked.
    pub fn from_choice(problem: &PlanProblem, choice: Vec<usize>) -> Result<Self> {
        Self::from_schedule(problem, choice, Schedule::default())
    }

    /// The plan of a choice whose branches run as a schedule says.
    ///
    /// # Errors
    /// What [`evaluate_schedule`] and [`layout`] report. The memory limit is not checked.
    pub fn from_schedule(problem: &PlanProblem, choice: Vec<usize>, schedule: Schedule) -> Result<Self> {
        let totals = evaluate_schedule(problem, &choice, &schedule)?;
        let layout = layout(problem, &choice, &schedule)?;
        let options = chosen_options(problem, &choice)?;
        let places = layout.ranks.into_iter().zip(layout.waves);
        let assignments: Vec<Assignment> = problem
            .nodes
            .iter()
            .zip(&options)
            .zip(places)
            .map(|((node, option), (ranks, wave))| Assignment {
                name: node.name.clone(),
                gpus: option.gpus,
                ranks,
                // Waves of one branch each are the same as branches one after another.
                wave: wave.filter(|_| !schedule.regions.is_empty()),
                time_us: option.total_us(),
            })
            .collect();
        let gpus = assignments.iter().map(|layer| layer.ranks.end).max().unwrap_or(0);
        Ok(Self {
            choice,
            schedule,
            totals,
            gpus,
            assignments,
            search_time: Duration::ZERO,
            optimality_gap: None,
        })
    }
}
