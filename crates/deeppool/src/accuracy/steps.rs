//! Iteration times by plans, for the planner of time to accuracy.

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

/// Source of layer times.
#[derive(Debug, Clone, Copy)]
pub enum LayerTimes<'a> {
    /// A device model, evaluated for the required batch sizes.
    Device(&'a DeviceModel),
    /// A profile, which must have the required batch sizes.
    Profile(&'a ProfileTable),
}

/// Iteration times of plans, one plan per configuration: data parallelism without an amplification
/// limit, and the fastest burst plan with one. Workers of several GPUs are those of
/// [`PlanRequest::with_worker_gpus`], each with a burst plan, or the fastest one without a limit.
/// The time of a plan is that of its program alone.
#[derive(Debug)]
pub struct PlannedSteps<'a> {
    network: &'a LayerGraph,
    times: LayerTimes<'a>,
    link: Option<&'a LinkModel>,
    lowering: LowerOptions,
    request: PlanRequest,
    problems: RefCell<Vec<(Configuration, Error)>>,
}

impl<'a> PlannedSteps<'a> {
    /// Creates plans of a network with these layer times, and the default links of the device.
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

    /// Sets the links for all numbers of GPUs.
    #[must_use]
    pub fn with_link(self, link: Option<&'a LinkModel>) -> Self {
        Self { link, ..self }
    }

    /// Sets the lowering options, except those that a memory limit decides.
    #[must_use]
    pub fn with_lowering(self, lowering: LowerOptions) -> Self {
        Self { lowering, ..self }
    }

    /// Sets GPU counts, memory limit, effort and stop signal. The GPUs and the mode of the request
    /// are ignored.
    #[must_use]
    pub fn with_request(self, request: PlanRequest) -> Self {
        Self { request, ..self }
    }

    /// Returns the plan of a configuration.
    ///
    /// # Errors
    /// Those of [`plan_within_memory`].
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

    /// Returns the configurations without a plan so far, with their errors.
    #[must_use]
    pub fn into_problems(self) -> Vec<(Configuration, Error)> {
        self.problems.into_inner()
    }
}

impl StepTimes for PlannedSteps<'_> {
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
