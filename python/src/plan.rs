//! Planning, comparison and simulation of networks. A question is a JSON object with the arguments
//! of a call, and a network is a document of the format `deeppool/graph/v1`.

use deeppool::burst_planner::{ProofBudget, Stop};
use deeppool::compare::Comparison;
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::layer_graph::LayerGraph;
use deeppool::plan::{Capacity, ExecutionPlan, GpuCounts, Mode, PlanRequest};
use deeppool::planning::{find_frontier, plan_within_memory};
use deeppool::program::LowerOptions;
use deeppool::simulate::{SimulateOptions, SimulationReport, contended, undisturbed};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::costs::{Background, CostSource, Tables};
use crate::error::{Error, exception, input_error};
use crate::inputs;
use crate::interrupt::interruptible;

/// Planning arguments, as `deeppool.plans.question_document` writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    costs: CostSource,
    gpus: usize,
    /// Number of samples of the global batch.
    batch: usize,
    mode: ModeDocument,
    /// GPU counts that a layer may have, in the format of `--gpu-counts`.
    gpu_counts: String,
    /// Memory of each GPU: a size such as `40GB`, or `unlimited`. The default is the memory of the
    /// device.
    memory: Option<String>,
    /// Whether gradients are all-reduced during the backward pass, and not after it.
    overlap: bool,
    /// Whether batch statistics are over the global batch, and not the samples of each rank.
    sync_batch_norm: bool,
    /// Search effort as a multiple of the default.
    effort: f64,
    /// Budget for proving a lower bound, in the format of `--prove`.
    #[serde(default)]
    prove: Option<String>,
}

/// Kind of plan, with its limit.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModeDocument {
    /// Every layer on all GPUs.
    DataParallel,
    /// The fastest burst plan within a maximum amplification; `None` for no limit.
    Burst(Option<f64>),
    /// The burst plan with the lowest GPU time within a maximum iteration time in microseconds.
    Deadline(f64),
    /// The burst plan at the knee of the frontier: faster plans cost much more GPU time, and
    /// cheaper plans save little.
    Knee,
}

/// Simulation arguments, as `deeppool.simulate` writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SimulationQuestion {
    costs: CostSource,
    iterations: usize,
    background: Option<Background>,
    policy: String,
    contention: bool,
    timeline: bool,
}

impl ModeDocument {
    /// Returns the mode of a planning request.
    pub(crate) fn mode(&self) -> Mode {
        match *self {
            Self::DataParallel => Mode::DataParallel,
            Self::Burst(limit) => Mode::Burst { amplification: limit.unwrap_or(f64::INFINITY) },
            Self::Deadline(iteration_us) => Mode::Deadline { iteration_us },
            Self::Knee => Mode::Knee,
        }
    }
}

/// Parses a JSON argument.
///
/// # Errors
/// `InputError` with the path of the invalid field.
pub(crate) fn parse<'t, T: Deserialize<'t>>(text: &'t str) -> PyResult<T> {
    // A byte order mark, with which some editors begin a file, is no part of the JSON text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let reader = &mut serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(reader).map_err(input_error)
}

impl Question {
    fn request(&self, device: &str, stop: &Stop) -> Result<PlanRequest, Error> {
        let memory = self.memory.as_ref().map(|memory| memory.parse::<Capacity>()).transpose()?;
        let proof = self.prove.as_deref().map(str::parse::<ProofBudget>).transpose()?;
        Ok(PlanRequest::new(self.gpus, self.mode.mode())
            .with_proof(proof.unwrap_or_default())
            .with_gpu_counts(self.gpu_counts.parse::<GpuCounts>()?)
            .with_effort(self.effort)
            .with_memory_limit(Capacity::of(memory, device).limit_bytes()?)
            .with_stop(stop.clone()))
    }

    /// Builds the job, the planning request and the tables, and calls `answer` with them.
    fn with_job<T>(
        &self,
        network: &str,
        stop: &Stop,
        answer: impl FnOnce(&Job<'_>, &PlanRequest, &Tables) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Check the number of GPUs before building tables for it.
        PlanRequest::new(self.gpus, self.mode.mode()).check()?;
        if self.batch == 0 {
            return Err(deeppool::Error::EmptyBatch.into());
        }
        let network = LayerGraph::from_json(network)?;
        let tables = self.costs.tables(&network, self.batch, self.gpus)?;
        let request = self.request(tables.profile.device(), stop)?;
        let lowering = LowerOptions::default()
            .with_overlap_all_reduce(self.overlap)
            .with_sync_batch_norm(self.sync_batch_norm);
        let costs = Costs::new(&network, &tables.profile, &tables.link);
        answer(&Job::new(costs, self.batch, lowering), &request, &tables)
    }
}

/// Finds a plan of a network. Returns a document of the format `deeppool/plan/v3`.
///
/// Raises `InputError` if an argument is invalid, and `NoPlanError` if no plan is within the
/// limits.
#[pyfunction]
pub(crate) fn plan(py: Python<'_>, network: &str, question: &str) -> PyResult<String> {
    let question: Question = parse(question)?;
    interruptible(py, |stop| {
        let found = question
            .with_job(network, stop, |job, request, _| Ok(plan_within_memory(job, request)?.1.to_json()?));
        found.map_err(exception)
    })
}

/// Returns at most `max_plans` plans of the frontier, fastest first, as documents of the format
/// `deeppool/plan/v3`.
///
/// Raises `InputError` if an argument is invalid, and `NoPlanError` if no plan is within the
/// limits.
#[pyfunction]
pub(crate) fn frontier(
    py: Python<'_>,
    network: &str,
    question: &str,
    max_plans: usize,
) -> PyResult<Vec<String>> {
    let question: Question = parse(question)?;
    interruptible(py, |stop| {
        let found = question.with_job(network, stop, |job, request, _| {
            let plans = find_frontier(job, request)?.plans(max_plans)?;
            Ok(plans.iter().map(|plan| plan.to_json()).collect::<Result<_, _>>()?)
        });
        found.map_err(exception)
    })
}

/// Compares ways to share GPUs with background jobs. `background` is a JSON object with the
/// network, the batch and, optionally, the source of layer times of the background job. Returns the
/// report as a JSON object.
///
/// Raises `InputError` if an argument is invalid, and `NoPlanError` if no plan fits into memory.
#[pyfunction]
pub(crate) fn compare(py: Python<'_>, network: &str, question: &str, background: &str) -> PyResult<String> {
    let (question, background): (Question, Background) = (parse(question)?, parse(background)?);
    interruptible(py, |stop| {
        let found = question.with_job(network, stop, |job, request, tables| {
            let costs = background.costs(&question.costs, &tables.link)?;
            let comparison = Comparison::new(job, request, &costs, &SimulateOptions::default(), |_| {})?;
            Ok(json!({
                "model": job.costs().network().name(), "gpus": request.gpus, "batch": job.batch(),
                "background_batch": background.batch(),
                "background_samples_per_s_of_a_gpu": comparison.background_samples_per_s,
                "points": comparison.points, "advice": comparison.advice(),
                "layers_off": comparison.layers_error, "links_off": comparison.links_error,
            }))
        });
        found.map(|report| report.to_string()).map_err(exception)
    })
}

/// Checks a document of the format `deeppool/plan/v3`. Raises `InputError` if it is invalid.
#[pyfunction]
pub(crate) fn check_plan(plan: &str) -> PyResult<()> {
    ExecutionPlan::from_json(plan).map(drop).map_err(exception)
}

/// Simulates a plan, a document of the format `deeppool/plan/v3`. Returns the report as a JSON
/// object, and the timeline of the last iteration as Chrome trace events, or `None` if it is not
/// requested.
///
/// Raises `InputError` if an argument is invalid, or the plan does not fit the network.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    network: &str,
    plan: &str,
    question: &str,
) -> PyResult<(String, Option<String>)> {
    let question: SimulationQuestion = parse(question)?;
    interruptible(py, |_| simulated(network, plan, &question).map_err(exception))
}

fn simulated(
    network: &str,
    plan: &str,
    question: &SimulationQuestion,
) -> Result<(String, Option<String>), Error> {
    let network = LayerGraph::from_json(network)?;
    let plan = ExecutionPlan::from_json(plan)?;
    // Check the plan before building tables for its batch and GPUs.
    plan.placement(&network)?;
    let Tables { profile, link } = question.costs.tables(&network, plan.batch, plan.gpus)?;
    let background = question.background.as_ref().map(|job| job.costs(&question.costs, &link)).transpose()?;
    let costs = Costs::new(&network, &profile, &link);
    let job = Job::of_plan(costs, &plan, LowerOptions::default().optimizer)?;
    let options = SimulateOptions::default()
        .with_iterations(question.iterations)
        .with_background(background)
        .with_policy(inputs::policy(&question.policy)?)
        .with_device(if question.contention { contended() } else { undisturbed() })
        .with_timeline(question.timeline);
    let (report, simulation) = SimulationReport::new(&job, &job.lower(plan)?, &options)?;
    let report: Value = serde_json::to_value(report).unwrap_or_default();
    Ok((report.to_string(), simulation.timeline.map(|timeline| timeline.to_chrome_trace().to_string())))
}
