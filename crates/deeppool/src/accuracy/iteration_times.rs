//! Iteration times by plans, for the estimates of time to accuracy. A *step* of `time_to_accuracy`
//! is an iteration.

use std::borrow::Cow;
use std::cell::RefCell;
use std::time::Duration;

use collectives::LinkModel;
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ProfileTable};
use time_to_accuracy::{Configuration, StepTime, StepTimes};

use crate::Error;
use crate::costs::{Costs, default_link, shard_sizes};
use crate::job::Job;
use crate::plan::{ExecutionPlan, Mode, PlanRequest};
use crate::planning::plan_within_memory;
use crate::program::LowerOptions;

/// Source of layer times by batch size.
#[derive(Debug, Clone, Copy)]
pub enum LayerTimes<'a> {
    /// A device model, evaluated for the batch sizes that a plan needs.
    Device(&'a DeviceModel),
    /// A profile, which must have the batch sizes that a plan needs.
    Profile(&'a ProfileTable),
}

/// Source of iteration times: the time of the plan that is found for a configuration.
///
/// A configuration is a number of workers, the GPUs of each, the global batch and a limit on
/// amplification. With one GPU per worker and no limit, the plan is data parallelism; with a limit,
/// the fastest burst plan within it. Workers of several GPUs are those of
/// [`PlanRequest::with_worker_gpus`], each with the fastest burst plan, within the limit if there
/// is one. The time of a plan is that of its program without background jobs.
#[derive(Debug)]
pub struct PlannedIterationTimes<'a> {
    network: &'a LayerGraph,
    times: LayerTimes<'a>,
    link: Option<&'a LinkModel>,
    lowering: LowerOptions,
    request: PlanRequest,
    problems: RefCell<Vec<(Configuration, Error)>>,
}

impl<'a> PlannedIterationTimes<'a> {
    /// Creates a source for a network with these layer times, and the default links of their
    /// device.
    #[must_use]
    pub fn new(network: &'a LayerGraph, times: LayerTimes<'a>) -> Self {
        Self {
            network,
            times,
            link: None,
            lowering: LowerOptions::default(),
            request: PlanRequest::new(1, Mode::DataParallel),
            problems: RefCell::default(),
        }
    }

    /// Sets the link model for all numbers of GPUs; `None` for the default of the device.
    #[must_use]
    pub fn with_link(self, link: Option<&'a LinkModel>) -> Self {
        Self { link, ..self }
    }

    /// Sets the lowering options. A memory limit may change activation checkpoints and
    /// micro-batches.
    #[must_use]
    pub fn with_lowering(self, lowering: LowerOptions) -> Self {
        Self { lowering, ..self }
    }

    /// Sets the options of the search: GPU counts, memory limit, effort and stop signal. The number
    /// of GPUs, the workers and the mode of the request are ignored.
    #[must_use]
    pub fn with_request(self, request: PlanRequest) -> Self {
        Self { request, ..self }
    }

    /// Finds the plan of a configuration.
    ///
    /// # Errors
    /// As [`plan_within_memory`]. [`Error::UnknownLinks`] if the device has no default links.
    /// [`Error::Profile`] if layer times are missing. [`Error::Collectives`] if the links do not
    /// connect all GPUs.
    pub fn plan(&self, configuration: &Configuration) -> Result<ExecutionPlan, Error> {
        let request = self.request_of(configuration);
        request.check()?;
        let (batch, gpus) = (configuration.batch, request.gpus);
        let profile = match self.times {
            LayerTimes::Device(device) => {
                Cow::Owned(device.profile(self.network, &shard_sizes(batch, gpus))?)
            }
            LayerTimes::Profile(profile) => Cow::Borrowed(profile),
        };
        let link = match self.link {
            Some(link) => Cow::Borrowed(link),
            None => Cow::Owned(default_link(profile.device(), gpus)?),
        };
        link.check_ranks(gpus)?;
        let job = Job::new(Costs::new(self.network, &profile, &link), batch, self.lowering.clone());
        Ok(plan_within_memory(&job, &request)?.1.into_plan())
    }

    /// Returns the plan request of a configuration.
    fn request_of(&self, configuration: &Configuration) -> PlanRequest {
        let is_data_parallel = configuration.gpus_per_worker == 1 && configuration.limit.is_none();
        let amplification = configuration.limit.unwrap_or(f64::INFINITY);
        let mode = if is_data_parallel { Mode::DataParallel } else { Mode::Burst { amplification } };
        let workers = Some(configuration.gpus_per_worker).filter(|&gpus| gpus > 1);
        PlanRequest { gpus: configuration.gpus(), mode, ..self.request.clone() }.with_worker_gpus(workers)
    }

    /// Returns the configurations for which no plan was found so far, with their errors.
    #[must_use]
    pub fn into_problems(self) -> Vec<(Configuration, Error)> {
        self.problems.into_inner()
    }
}

impl StepTimes for PlannedIterationTimes<'_> {
    fn step(&self, configuration: &Configuration) -> Option<StepTime> {
        match self.plan(configuration) {
            Ok(plan) => Some(step_of(&plan)),
            Err(error) => {
                self.problems.borrow_mut().push((*configuration, error));
                None
            }
        }
    }
}

/// Returns the iteration time of a plan.
fn step_of(plan: &ExecutionPlan) -> StepTime {
    let time = |us: f64| Duration::try_from_secs_f64(us / 1e6).unwrap_or(Duration::MAX);
    StepTime {
        iteration: time(plan.iteration_us),
        active_gpu_time: Some(time(plan.gpu_time_us)),
        amplification: Some(plan.amplification),
    }
}
