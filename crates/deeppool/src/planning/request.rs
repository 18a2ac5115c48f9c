use burst_planner::{Plan, PlanProblem, SearchOptions, TimeModel, data_parallel, evaluate_overlap, fastest};

use super::GpuCounts;
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
#[non_exhaustive]
pub struct PlanRequest<'a> {
    /// What things cost.
    pub costs: &'a Costs<'a>,
    /// The global batch.
    pub batch: usize,
    /// How many GPUs there are.
    pub gpus: usize,
    /// How they are used.
    pub mode: Mode,
    /// On how many GPUs a layer may run. Data parallelism takes the largest.
    pub gpu_counts: GpuCounts,
    /// How burst plans are searched for.
    pub search: SearchOptions,
}

/// The planner's answer.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The problem that was solved.
    pub problem: PlanProblem,
    /// Its solution.
    pub plan: Plan,
}

impl<'a> PlanRequest<'a> {
    /// Asks for a plan that is optimal within a limit for the whole of it, with powers of two as GPU counts.
    #[must_use]
    pub fn new(costs: &'a Costs<'a>, batch: usize, gpus: usize, mode: Mode) -> Self {
        let (gpu_counts, search) = (GpuCounts::default(), SearchOptions::default());
        Self { costs, batch, gpus, mode, gpu_counts, search }
    }

    /// Sets on how many GPUs a layer may run.
    #[must_use]
    pub fn with_gpu_counts(self, gpu_counts: GpuCounts) -> Self {
        Self { gpu_counts, ..self }
    }

    /// Sets how burst plans are searched for, such as what the limit applies to.
    #[must_use]
    pub fn with_search(self, search: SearchOptions) -> Self {
        Self { search, ..self }
    }

    /// The planning problem: each layer may run on any of the GPU counts.
    ///
    /// # Errors
    /// When there is no GPU or no sample, none of the GPU counts is within both, or the costs lack a figure.
    pub fn problem(&self) -> Result<PlanProblem, Error> {
        if self.gpus == 0 {
            return Err(Error::Setting {
                setting: "the number of GPUs",
                expected: "at least 1",
                got: "0".into(),
            });
        }
        let counts = self.gpu_counts.up_to(self.gpus.min(self.batch));
        self.costs.problem(self.batch, self.gpus, &counts)
    }

    /// Finds the plan.
    ///
    /// # Errors
    /// When no plan keeps the limit, or as [`problem`](Self::problem).
    pub fn plan(&self) -> Result<Planned, Error> {
        let problem = self.problem()?;
        let plan = match self.mode {
            Mode::DataParallel => data_parallel_by(&problem, self.search.time_model)?,
            Mode::Burst { amplification } => fastest(&problem, amplification, &self.search)?,
        };
        Ok(Planned { problem, plan })
    }
}

/// The data-parallel plan, with its time by a time model. It has no branches at the same time.
///
/// # Errors
/// As [`data_parallel`].
pub fn data_parallel_by(problem: &PlanProblem, time_model: TimeModel) -> burst_planner::Result<Plan> {
    let plan = data_parallel(problem)?;
    if time_model != TimeModel::Overlap {
        return Ok(plan);
    }
    Ok(Plan { totals: evaluate_overlap(problem, &plan.choice)?, ..plan })
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
