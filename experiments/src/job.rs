//! Foreground jobs: their plans, and simulations of the plans alone and beside background jobs. A
//! *testbed* is the simulated machine with its jobs.

use burst_planner::{Error as Unplanned, ProofBudget};
use deeppool::Error;
use deeppool::compare::{Comparison, Point};
use deeppool::costs::Costs;
use deeppool::gpu_mux::{DeviceParameters, Policy};
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::{find_frontier, find_plan};
use deeppool::program::LowerOptions;
use deeppool::simulate::{BackgroundCosts, SimulateOptions, Simulation, simulate_plan, undisturbed};
use layer_graph::Split;
use layer_profile::{DataSheet, ProfileTable};

use crate::testbed::Testbed;
use crate::workload::Workload;

/// Default number of simulated iterations. The first quarter is warm-up.
const ITERATIONS: usize = 20;

/// A workload on a testbed, with its layer times.
pub(crate) struct ForegroundJob<'a> {
    /// Network with the foreground's and the background's batch.
    pub(crate) workload: Workload,
    /// Simulated machine.
    pub(crate) testbed: &'a Testbed,
    /// Layer times for every shard size on 1 to all of the testbed's GPUs, and for the background's
    /// batch.
    pub(crate) profile: ProfileTable,
}

/// A planned foreground job.
pub(crate) struct Foreground {
    /// The plan, with its predicted iteration time.
    pub(crate) plan: ExecutionPlan,
}

impl<'a> ForegroundJob<'a> {
    /// Looks up the layer times of a workload.
    ///
    /// # Errors
    /// If the testbed's layer times do not cover the network or one of its batches.
    pub(crate) fn new(workload: Workload, testbed: &'a Testbed) -> anyhow::Result<Self> {
        let profile = testbed.times.profile(&workload.network, &workload.batches(testbed.gpus))?;
        Ok(Self { workload, testbed, profile })
    }

    /// Returns the costs of the foreground.
    pub(crate) fn costs(&self) -> Costs<'_> {
        Costs::new(&self.workload.network, &self.profile, &self.testbed.link)
    }

    /// Returns the workload as a job that can be planned and simulated.
    pub(crate) fn job(&self, overlap_all_reduce: bool) -> deeppool::job::Job<'_> {
        let lowering = LowerOptions::default().with_overlap_all_reduce(overlap_all_reduce);
        deeppool::job::Job::new(self.costs(), self.workload.batch, lowering)
    }

    /// Returns two burst plans on all GPUs: the first under the testbed's amplification limit, the
    /// second with the amplification of data parallelism as limit. One search yields both.
    ///
    /// # Errors
    /// If layer times are missing, or if no plan fits in memory or keeps the limit.
    pub(crate) fn burst_plans(&self) -> anyhow::Result<[Foreground; 2]> {
        let job = self.job(true);
        let frontier = find_frontier(&job, &self.request(self.testbed.gpus, self.testbed.burst())?)?;
        let asked = frontier.plan(self.testbed.burst())?;
        // On few GPUs, rounding may give slightly less than 1, which is no valid limit.
        let amplification = asked.dp.amplification.max(1.0);
        let as_dp = frontier.plan(Mode::Burst { amplification })?;
        Ok([Foreground { plan: asked.into_plan() }, Foreground { plan: as_dp.into_plan() }])
    }

    /// Returns the burst plan on all GPUs under the testbed's amplification limit whose layers may
    /// be split in all ways. No lower bound is proved: with splits it is far below the plan.
    ///
    /// # Errors
    /// If layer times are missing, or if no plan fits in memory or keeps the limit.
    pub(crate) fn split_burst_plan(&self) -> anyhow::Result<Foreground> {
        let request = self.request(self.testbed.gpus, self.testbed.burst())?;
        let request = request.with_splits(Split::ALL.to_vec()).with_proof(ProofBudget::Off);
        Ok(Foreground { plan: find_plan(&self.job(true), &request)?.into_plan() })
    }

    /// Simulates all ways to share the GPUs between the foreground and background jobs, with static
    /// partitions among them.
    ///
    /// # Errors
    /// If no plan fits in memory, or if planning or simulation fails.
    pub(crate) fn compared(&self) -> Result<Comparison, Error> {
        let (request, options) = self.comparison();
        Comparison::new(&self.job(true), &request, &self.background()?, &options, |_| {})
    }

    /// Simulates burst plans whose layers may be split in all ways, alone and with background jobs,
    /// as points beside those of [`compared`](Self::compared).
    ///
    /// # Errors
    /// As [`compared`](Self::compared).
    pub(crate) fn split_points(&self) -> Result<Vec<Point>, Error> {
        let (request, options) = self.comparison();
        let request = request.with_splits(Split::ALL.to_vec());
        Comparison::burst_points(&self.job(true), &request, &self.background()?, &options)
    }

    /// Returns the request and the options of comparisons.
    fn comparison(&self) -> (PlanRequest, SimulateOptions) {
        let request =
            PlanRequest::new(self.testbed.gpus, self.testbed.burst()).with_memory_limit(self.usable_bytes());
        (request, SimulateOptions::default().with_policy(self.testbed.policy))
    }

    /// Returns the burst plans on all GPUs under each of the amplification limits, in their order.
    /// Limits that no plan can keep are left out.
    ///
    /// # Errors
    /// If layer times are missing, or if no plan fits in memory.
    pub(crate) fn burst_plans_under(&self, limits: &[f64]) -> anyhow::Result<Vec<Foreground>> {
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

    /// Returns at most `max_plans` burst plans of the frontier on all GPUs, at even distances of
    /// iteration time, fastest first.
    ///
    /// # Errors
    /// If layer times are missing, or if no plan fits in memory.
    pub(crate) fn frontier(&self, max_plans: usize) -> anyhow::Result<Vec<Foreground>> {
        let mode = Mode::Burst { amplification: f64::INFINITY };
        let job = self.job(true);
        let frontier = find_frontier(&job, &self.request(self.testbed.gpus, mode)?)?;
        Ok(frontier.plans(max_plans)?.into_iter().map(|plan| Foreground { plan: plan.into_plan() }).collect())
    }

    /// Plans the foreground on the first `gpus` GPUs, with memory left for a background job on
    /// each. With `overlap`, gradient all-reduces run during the backward pass. No lower
    /// bound is proved.
    ///
    /// # Errors
    /// If layer times are missing, or if no plan fits in memory or keeps the limit.
    pub(crate) fn foreground(&self, gpus: usize, mode: Mode, overlap: bool) -> anyhow::Result<Foreground> {
        let request = self.request(gpus, mode)?.with_proof(ProofBudget::Off);
        Ok(Foreground { plan: find_plan(&self.job(overlap), &request)?.into_plan() })
    }

    /// As [`foreground`](Self::foreground) with overlap, and with a lower bound in the plan.
    ///
    /// # Errors
    /// Those of [`foreground`](Self::foreground).
    pub(crate) fn bounded_foreground(&self, gpus: usize, mode: Mode) -> anyhow::Result<Foreground> {
        Ok(Foreground { plan: find_plan(&self.job(true), &self.request(gpus, mode)?)?.into_plan() })
    }

    /// Plans the foreground of a static partition: data parallelism on the first `gpus` GPUs,
    /// without memory for background jobs. Returns `None` if it does not fit in memory.
    ///
    /// # Errors
    /// If layer times are missing.
    pub(crate) fn partition_foreground(&self, gpus: usize) -> anyhow::Result<Option<Foreground>> {
        let request = PlanRequest::new(gpus, Mode::DataParallel).with_memory_limit(self.usable_bytes());
        match find_plan(&self.job(true), &request) {
            Err(Error::Planner(Unplanned::MemoryExceeded { .. })) => Ok(None),
            plan => Ok(Some(Foreground { plan: plan?.into_plan() })),
        }
    }

    /// Returns the usable memory of a GPU in bytes, if the device has a data sheet.
    fn usable_bytes(&self) -> Option<u64> {
        DataSheet::of_device(self.profile.device()).map(|sheet| sheet.usable_bytes())
    }

    /// Returns a plan request that leaves memory for a background job on every GPU, if the memory
    /// size is known.
    fn request(&self, gpus: usize, mode: Mode) -> anyhow::Result<PlanRequest> {
        let room = self.background()?.memory_beside(self.usable_bytes())?;
        Ok(PlanRequest::new(gpus, mode).with_memory_limit(room))
    }

    /// Simulates a planned foreground under the given options.
    ///
    /// # Errors
    /// If layer times are missing, or if the plan cannot be lowered or simulated.
    pub(crate) fn simulate(
        &self,
        foreground: &Foreground,
        options: &SimulateOptions,
    ) -> anyhow::Result<Simulation> {
        let plan = &foreground.plan;
        let job = self.job(plan.lowering.overlap_all_reduce);
        Ok(simulate_plan(&job, &job.lower(plan.clone())?, options)?)
    }

    /// Simulates the foreground without background jobs, launch costs and contention.
    ///
    /// # Errors
    /// If layer times are missing, or if the plan cannot be lowered or simulated.
    pub(crate) fn alone(&self, foreground: &Foreground) -> anyhow::Result<Simulation> {
        self.alone_on(foreground, undisturbed(), ITERATIONS)
    }

    /// Simulates `iterations` iterations of the foreground, the first quarter of them as warm-up,
    /// without background jobs and with the launch and contention costs of `device`.
    ///
    /// # Errors
    /// If layer times are missing, or if the plan cannot be lowered or simulated.
    pub(crate) fn alone_on(
        &self,
        foreground: &Foreground,
        device: DeviceParameters,
        iterations: usize,
    ) -> anyhow::Result<Simulation> {
        let options = SimulateOptions::default().with_device(device).with_iterations(iterations);
        self.simulate(foreground, &options)
    }

    /// Simulates the foreground with a background job on each of the GPUs under the testbed's
    /// policy, without launch costs and contention.
    ///
    /// # Errors
    /// If layer times are missing, or if the plan cannot be lowered or simulated.
    pub(crate) fn collocated(&self, foreground: &Foreground) -> anyhow::Result<Simulation> {
        self.collocated_on(foreground, self.testbed.policy, undisturbed(), ITERATIONS)
    }

    /// Simulates `iterations` iterations of the foreground, the first quarter of them as warm-up,
    /// with a background job on each of the GPUs under the given policy, and with the launch and
    /// contention costs of `device`.
    ///
    /// # Errors
    /// If layer times are missing, or if the plan cannot be lowered or simulated.
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

    /// Returns the throughput of `gpus` background jobs together in samples/s, each alone on a GPU.
    ///
    /// # Errors
    /// If layer times for their batch are missing.
    pub(crate) fn background_samples_per_s(&self, gpus: usize) -> anyhow::Result<f64> {
        Ok(gpus as f64 * self.background()?.samples_per_s())
    }

    /// Returns the costs of a background job on one GPU.
    ///
    /// # Errors
    /// If layer times for its batch are missing.
    pub(crate) fn background(&self) -> Result<BackgroundCosts, Error> {
        BackgroundCosts::new(&self.costs(), self.workload.background_batch)
    }
}
