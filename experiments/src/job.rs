use burst_planner::Error as Unplanned;
use deeppool::Error;
use deeppool::compare::Comparison;
use deeppool::costs::Costs;
use deeppool::gpu_mux::{DeviceParameters, Policy};
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::{find_frontier, find_plan};
use deeppool::program::LowerOptions;
use deeppool::simulate::{BackgroundCosts, SimulateOptions, Simulation, simulate_plan, undisturbed};
use layer_profile::{DataSheet, ProfileTable};

use crate::testbed::Testbed;
use crate::workload::Workload;

/// Iterations that are simulated, of which a quarter warms up, where an experiment does not say otherwise.
const ITERATIONS: usize = 20;

/// A workload with what it costs on a testbed.
pub(crate) struct ForegroundJob<'a> {
    pub(crate) workload: Workload,
    pub(crate) testbed: &'a Testbed,
    pub(crate) profile: ProfileTable,
}

/// A foreground job that is ready to be simulated.
pub(crate) struct Foreground {
    pub(crate) plan: ExecutionPlan,
}

impl<'a> ForegroundJob<'a> {
    pub(crate) fn new(workload: Workload, testbed: &'a Testbed) -> anyhow::Result<Self> {
        let profile = testbed.times.profile(&workload.network, &workload.batches(testbed.gpus))?;
        Ok(Self { workload, testbed, profile })
    }

    fn costs(&self) -> Costs<'_> {
        Costs::new(&self.workload.network, &self.profile, &self.testbed.link)
    }

    /// The workload as a job that is planned and simulated.
    fn job(&self, overlap_all_reduce: bool) -> deeppool::job::Job<'_> {
        let lowering = LowerOptions::default().with_overlap_all_reduce(overlap_all_reduce);
        deeppool::job::Job::new(self.costs(), self.workload.batch, lowering)
    }

    /// Burst plans on all GPUs: under the testbed's limit, and under the amplification of data parallelism. Both are from one
    /// search, which does not depend on the limit.
    pub(crate) fn bursts(&self) -> anyhow::Result<[Foreground; 2]> {
        let job = self.job(true);
        let frontier = find_frontier(&job, &self.request(self.testbed.gpus, self.testbed.burst())?)?;
        let asked = frontier.plan(self.testbed.burst())?;
        // On few GPUs rounding may leave it a trace below 1, which is no limit.
        let amplification = asked.dp.amplification.max(1.0);
        let as_dp = frontier.plan(Mode::Burst { amplification })?;
        Ok([Foreground { plan: asked.into_plan() }, Foreground { plan: as_dp.into_plan() }])
    }

    /// All ways to share the GPUs, simulated.
    ///
    /// # Errors
    /// Where no plan has room, among others.
    pub(crate) fn compared(&self) -> Result<Comparison, Error> {
        let request =
            PlanRequest::new(self.testbed.gpus, self.testbed.burst()).with_memory_limit(self.usable_bytes());
        let options = SimulateOptions::default().with_policy(self.testbed.policy);
        Comparison::new(&self.job(true), &request, &self.background()?, &options, |_| {})
    }

    /// Burst plans on all GPUs under each of some limits, those that a plan can keep.
    pub(crate) fn bursts_under(&self, limits: &[f64]) -> anyhow::Result<Vec<Foreground>> {
        let mode = |amplification| Mode::Burst { amplification };
        let job = self.job(true);
        let frontier = find_frontier(&job, &self.request(self.testbed.gpus, mode(f64::INFINITY))?)?;
        let mut plans = Vec::with_capacity(limits.len());
        for &limit in limits {
            match frontier.plan(mode(limit)) {
                Err(Error::Planner(Unplanned::LimitUnreachable { .. })) => {}
                plan => plans.push(Foreground { plan: plan?.into_plan() }),
            }
        }
        Ok(plans)
    }

    /// At most so many burst plans of the whole frontier on all GPUs, evenly over their times, the fastest first.
    pub(crate) fn frontier(&self, most: usize) -> anyhow::Result<Vec<Foreground>> {
        let mode = Mode::Burst { amplification: f64::INFINITY };
        let job = self.job(true);
        let frontier = find_frontier(&job, &self.request(self.testbed.gpus, mode)?)?;
        Ok(frontier.plans(most)?.into_iter().map(|plan| Foreground { plan: plan.into_plan() }).collect())
    }

    /// Plans the foreground on the first `gpus` GPUs.
    pub(crate) fn foreground(&self, gpus: usize, mode: Mode, overlap: bool) -> anyhow::Result<Foreground> {
        let plan = find_plan(&self.job(overlap), &self.request(gpus, mode)?)?.into_plan();
        Ok(Foreground { plan })
    }

    /// Data parallelism on the first `gpus` GPUs, which have no background job; `None` where they have no room for it.
    pub(crate) fn part(&self, gpus: usize) -> anyhow::Result<Option<Foreground>> {
        let request = PlanRequest::new(gpus, Mode::DataParallel).with_memory_limit(self.usable_bytes());
        match find_plan(&self.job(true), &request) {
            Err(Error::Planner(Unplanned::MemoryExceeded { .. })) => Ok(None),
            plan => Ok(Some(Foreground { plan: plan?.into_plan() })),
        }
    }

    /// What a GPU has room for, where that is known.
    fn usable_bytes(&self) -> Option<u64> {
        DataSheet::of_device(self.profile.device()).map(|sheet| sheet.usable_bytes())
    }

    /// A question to the planner that leaves a background job room on every GPU, where it is known how much there is.
    fn request(&self, gpus: usize, mode: Mode) -> anyhow::Result<PlanRequest> {
        let room = self.background()?.room_beside(self.usable_bytes())?;
        Ok(PlanRequest::new(gpus, mode).with_memory_limit(room))
    }

    pub(crate) fn simulate(
        &self,
        foreground: &Foreground,
        options: &SimulateOptions,
    ) -> anyhow::Result<Simulation> {
        let plan = &foreground.plan;
        let job = self.job(plan.lowering.overlap_all_reduce);
        Ok(simulate_plan(&job, &job.lower(plan.clone())?, options)?)
    }

    /// Simulates the foreground by itself.
    pub(crate) fn alone(&self, foreground: &Foreground) -> anyhow::Result<Simulation> {
        self.alone_on(foreground, undisturbed(), ITERATIONS)
    }

    /// Simulates the foreground by itself on GPUs of this kind.
    pub(crate) fn alone_on(
        &self,
        foreground: &Foreground,
        device: DeviceParameters,
        iterations: usize,
    ) -> anyhow::Result<Simulation> {
        let options = SimulateOptions::default().with_device(device).with_iterations(iterations);
        self.simulate(foreground, &options)
    }

    /// Simulates the foreground with a background job on each of its GPUs, by the testbed's policy.
    pub(crate) fn collocated(&self, foreground: &Foreground) -> anyhow::Result<Simulation> {
        self.collocated_on(foreground, self.testbed.policy, undisturbed(), ITERATIONS)
    }

    /// Simulates the foreground with a background job on each of its GPUs, by this policy on GPUs of this kind.
    pub(crate) fn collocated_on(
        &self,
        foreground: &Foreground,
        policy: Policy,
        device: DeviceParameters,
        iterations: usize,
    ) -> anyhow::Result<Simulation> {
        let background = Some(self.background()?);
        let options = SimulateOptions::default()
            .with_background(background)
            .with_policy(policy)
            .with_device(device)
            .with_iterations(iterations);
        self.simulate(foreground, &options)
    }

    /// Samples by second of `gpus` background jobs, each alone on a GPU.
    pub(crate) fn background_samples_per_s(&self, gpus: usize) -> anyhow::Result<f64> {
        Ok(gpus as f64 * self.background()?.samples_per_s())
    }

    pub(crate) fn background(&self) -> Result<BackgroundCosts, Error> {
        BackgroundCosts::new(&self.costs(), self.workload.background_batch)
    }
}
