//! Plans of problems that are no networks: of something else whose parts run on GPUs of their own.

mod additive;
mod training;

use burst_planner::{LimitRule, Problem, Stop};
use serde_json::Value;

pub use additive::AdditiveAnswer;
pub use training::{TrainingAnswer, points};

use crate::Error;
use crate::plan::Mode;

/// What is asked about a problem.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProblemQuestion {
    /// Which plan is asked for.
    pub mode: Mode,
    /// What the limit on amplification applies to, where times add up.
    pub limit_rule: LimitRule,
    /// Whether all Pareto-optimal plans are asked for as well.
    pub pareto: bool,
    /// Their tolerance, where times add up; 0 is exact.
    pub epsilon: Option<f64>,
    /// Whether it is asked what another choice for each node would do, where times add up.
    pub explain: bool,
    /// Ends the search early, without an answer.
    pub stop: Stop,
}

/// A problem with its plan, and what else was asked for.
#[derive(Debug, Clone)]
pub enum ProblemAnswer {
    /// Of the format `deeppool/plan-problem/v1`, whose times are added up.
    Additive(Box<AdditiveAnswer>),
    /// Of the format `deeppool/plan-problem/v2`, whose time is that of a training program.
    Training(Box<TrainingAnswer>),
}

impl ProblemQuestion {
    /// Asks for the plan of a mode, and nothing else.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let limit_rule = LimitRule::Total;
        Self { mode, limit_rule, pareto: false, epsilon: None, explain: false, stop: Stop::default() }
    }

    /// Plans a problem, by what its format means.
    ///
    /// # Errors
    /// When no plan keeps the limit, or something is asked that its format has not.
    pub fn answer(&self, problem: Problem) -> Result<ProblemAnswer, Error> {
        match problem {
            Problem::Additive(problem) => {
                Ok(ProblemAnswer::Additive(Box::new(AdditiveAnswer::new(self, problem)?)))
            }
            Problem::Training(problem, costs) => {
                Ok(ProblemAnswer::Training(Box::new(TrainingAnswer::new(self, problem, &costs)?)))
            }
        }
    }

    /// The limit on the amplification.
    #[must_use]
    pub fn limit(&self) -> Option<f64> {
        match self.mode {
            Mode::Burst { amplification } => Some(amplification),
            _ => None,
        }
    }

    fn deadline_us(&self) -> Option<f64> {
        match self.mode {
            Mode::Deadline { iteration_us } => Some(iteration_us),
            _ => None,
        }
    }
}

impl ProblemAnswer {
    /// As `deeppool plan --problem --json` prints it.
    #[must_use]
    pub fn report(&self) -> Value {
        match self {
            Self::Additive(answer) => answer.report(),
            Self::Training(answer) => answer.report(),
        }
    }
}
