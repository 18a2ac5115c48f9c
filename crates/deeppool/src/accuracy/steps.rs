//! How long iterations take by plans, for the planner of time to accuracy.

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

/// Where the times of layers come from.
#[derive(Debug, Clone, Copy)]
pub enum LayerTimes<'a> {
    /// A device model, which is asked for the samples that ranks have.
    Device(&'a DeviceModel),
    /// A profile, which has to cover them.
    Profile(&'a ProfileTable),
}

/// Times of iterations by plans, each made for its configuration: data parallelism without an amplification limit, and the fastest burst
/// plan with one. Workers of several GPUs are as [`PlanRequest::with_worker_gpus`] has them: a burst plan each, without a limit the
/// fastest. A plan's time is that of its program, alone.
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
    /// Plans of a network by these layer times, with the links that go with the device and the number of GPUs.
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

    /// With these links, whatever the number of GPUs.
    #[must_use]
    pub fn with_link(self, link: Option<&'a LinkModel>) -> Self {
        Self { link, ..self }
    }

    /// With iterations that are lowered like this, as far as memory does not decide it.
    #[must_use]
    pub fn with_lowering(self, lowering: LowerOptions) -> Self {
        Self { lowering, ..self }
    }

    /// With the limits of this request: GPU counts, memory, effort, and when to stop. Its GPUs and mode are those of each configuration.
    #[must_use]
    pub fn with_request(self, request: PlanRequest) -> Self {
        Self { request, ..self }
    }

    /// The plan of a configuration.
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

    /// What the planner is asked for a configuration.
    fn request_of(&self, configuration: &Configuration) -> PlanRequest {
        let is_data_parallel = configuration.gpus_per_worker == 1 && configuration.limit.is_none();
        let amplification = configuration.limit.unwrap_or(f64::INFINITY);
        let mode = if is_data_parallel { Mode::DataParallel } else { Mode::Burst { amplification } };
        let workers = Some(configuration.gpus_per_worker).filter(|&gpus| gpus > 1);
        PlanRequest { gpus: configuration.gpus(), mode, ..self.request.clone() }.with_worker_gpus(workers)
    }

    /// The configurations that had no plan so far, each with the reason.
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

/// What an iteration of a plan takes.
fn step_of(plan: &ExecutionPlan) -> StepTime {
    let time = |us: f64| Duration::try_from_secs_f64(us / 1e6).unwrap_or(Duration::MAX);
    StepTime {
        iteration: time(plan.iteration_us),
        active_gpu_time: Some(time(plan.gpu_time_us)),
        amplification: Some(plan.amplification),
    }
}
