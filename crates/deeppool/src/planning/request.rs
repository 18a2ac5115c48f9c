use burst_planner::{Plan, PlanProblem, SearchOptions, data_parallel, fastest, gpu_counts};

use crate::Error;
use crate::costs::Costs;
use crate::program::Placement;

/// How the GPUs are used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// Every layer on as many GPUs as there are, or as the batch has samples.
    DataParallel,
    /// Each layer on a number of GPUs of its own: the fastest plan whose amplification is at most this.
    Burst {
        /// GPU time of the plan over the iteration time on one GPU, at least 1.
        amplification: f64,
    },
}

impl Mode {
    /// `dp` or `bp`, as in reports.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::DataParallel => "dp",
            Self::Burst { .. } => "bp",
        }
    }
}

/// A question to the planner.
#[derive(Debug, Clone)]
pub struct PlanRequest<'a> {
    /// What things cost.
    pub costs: &'a Costs<'a>,
    /// The global batch.
    pub batch: usize,
    /// How many GPUs there are.
    pub gpus: usize,
    /// How they are used.
    pub mode: Mode,
}

/// The planner's answer.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The problem that was solved.
    pub problem: PlanProblem,
    /// Its solution.
    pub plan: Plan,
}

impl PlanRequest<'_> {
    /// The planning problem: each layer may run on 1, 2, 4, ... GPUs, and on all of them.
    ///
    /// # Errors
    /// When there is no GPU or no sample, or the costs lack a figure.
    pub fn problem(&self) -> Result<PlanProblem, Error> {
        if self.gpus == 0 {
            return Err(Error::Setting {
                setting: "the number of GPUs",
                expected: "at least 1",
                got: "0".into(),
            });
        }
        let counts = gpu_counts::powers_of_two(self.gpus.min(self.batch));
        self.costs.problem(self.batch, self.gpus, &counts)
    }

    /// Finds the plan.
    ///
    /// # Errors
    /// When no plan keeps the limit, or as [`problem`](Self::problem).
    pub fn plan(&self) -> Result<Planned, Error> {
        let problem = self.problem()?;
        let plan = match self.mode {
            Mode::DataParallel => data_parallel(&problem)?,
            Mode::Burst { amplification } => fastest(&problem, amplification, &SearchOptions::default())?,
        };
        Ok(Planned { problem, plan })
    }
}

impl Planned {
    /// Where each layer runs.
    ///
    /// # Errors
    /// When the plan is not of the network that `costs` are of.
    pub fn placement(&self, costs: &Costs<'_>) -> Result<Placement, Error> {
        let ranks = self.plan.assignments.iter().map(|layer| layer.ranks.clone().collect()).collect();
        Placement::new(costs.network(), self.problem.gpus, ranks)
    }
}
