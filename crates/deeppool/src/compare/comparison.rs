//! The comparison of all ways to share the GPUs. A point is the simulated throughput of one way.
//! The envelope of some points is their maximum total throughput at each speed of the foreground if
//! they may alternate in time.

use super::beside::frontier_beside;
use super::{Envelope, Point, SharingMode};
use burst_planner::Error as Unplanned;

use crate::Error;
use crate::job::{Job, LoweredPlan};
use crate::plan::{ExecutionPlan, PlanRequest};
use crate::planning::{PlanAnalysis, PlanFrontier, data_parallel_times_on};
use crate::simulate::{BackgroundCosts, SimulateOptions, Simulation, simulate_plan};

/// Maximum number of burst plans that are compared, spread over the Pareto frontier.
const MAX_BURST_PLANS: usize = 14;

/// Modes in which the plan of data parallelism on all GPUs is compared.
const MODES_ON_ALL: [SharingMode; 4] = [
    SharingMode::DataParallel,
    SharingMode::DataParallelCollocated,
    SharingMode::Partition,
    SharingMode::BurstCollocated,
];
/// Modes in which a plan of data parallelism on a part of the GPUs is compared.
const MODES_ON_A_PART: [SharingMode; 2] = [SharingMode::Partition, SharingMode::BurstCollocated];
/// Modes in which a burst plan is compared.
const BURST_MODES: [SharingMode; 2] = [SharingMode::Burst, SharingMode::BurstCollocated];
/// Relative difference below which rates count as equal.
pub(super) const TOLERANCE: f64 = 0.01;

/// The simulated throughput of each way to share GPUs between a foreground job and background jobs
/// of one GPU each.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Comparison {
    /// The throughput of each simulated plan in each mode, sorted by mode and then by the speed of
    /// the foreground.
    pub points: Vec<Point>,
    /// Number of GPUs that foreground and background jobs share.
    pub gpus: usize,
    /// Number of GPU counts, among powers of two and the maximum, on which data parallelism is not
    /// simulated because it does not fit into memory.
    pub counts_without_memory: usize,
    /// Samples per second of one background job on a GPU without a foreground.
    pub background_samples_per_s: f64,
    /// Maximum known relative error (0.1 is 10%) of the layer times, over whole networks; `None` if
    /// they were not compared with measurements.
    pub layers_error: Option<f64>,
    /// Maximum known relative error (0.1 is 10%) of the times of collectives; `None` if they were
    /// not compared with measurements.
    pub links_error: Option<f64>,
}

impl Comparison {
    /// Simulates data parallelism and burst plans on all GPUs, each alone and with a background job
    /// on each GPU, and data parallelism on fewer GPUs with background jobs on the others.
    ///
    /// One search finds the burst plans: the one of the request's mode, and others spread over the
    /// frontier. With a memory limit, burst plans leave room for a background job if any can. The
    /// GPUs of a partition run one job each. Partitions are simulated if their number of foreground
    /// GPUs is a power of two or the maximum, or if they are a corner of the envelope by the
    /// planner's times. `options` give the policy, the device and the number of iterations of the
    /// simulations; their background job is ignored. `progress` is called with the completed
    /// fraction (0 to 1). O(search + points x simulation).
    ///
    /// # Errors
    /// [`Error::Setting`] if the request is invalid or too large, the background job does not fit
    /// in the memory of a GPU, or backpropagation is partial. [`Error::Profile`] if the profile
    /// lacks a time.
    pub fn new(
        job: &Job<'_>,
        request: &PlanRequest,
        background: &BackgroundCosts,
        options: &SimulateOptions,
        mut progress: impl FnMut(f64),
    ) -> Result<Self, Error> {
        job.check_full_backpropagation()?;
        let gpus = request.gpus;
        let options = options.clone().with_memory_limit(request.memory_limit_bytes);
        let frontier = frontier_beside(job, request, background)?;
        progress(0.2);
        let bursts = burst_plans(&frontier, request)?;
        let mut runs: Vec<(LoweredPlan<'_>, &[SharingMode])> = Vec::new();
        let (parts, counts_without_memory) = worthwhile_parts(job, request, background)?;
        for part in parts {
            let is_all = part == gpus.min(job.batch());
            runs.push((
                frontier.data_parallel_on(part)?,
                if is_all { &MODES_ON_ALL } else { &MODES_ON_A_PART },
            ));
        }
        runs.extend(bursts.into_iter().map(|plan| (plan, &BURST_MODES[..])));
        let background_samples_per_s = background.samples_per_s();
        let errors = Errors::of(job);
        let mut points = Vec::with_capacity(2 * runs.len() + 1);
        let all = runs.len() as f64;
        let mut simulated: Vec<SimulatedPlan<'_>> = Vec::with_capacity(runs.len());
        for (index, (plan, modes)) in runs.iter().enumerate() {
            request.stop.check()?;
            let is_same = |other: &SimulatedPlan<'_>| {
                other.plan.layers == plan.layers && other.plan.order == plan.order
            };
            let place = simulated.iter().position(is_same).unwrap_or(simulated.len());
            if place == simulated.len() {
                simulated.push(SimulatedPlan::new(job, plan, background, &options, &errors)?);
            }
            points.extend(simulated[place].points(modes, background_samples_per_s, &errors));
            progress(0.2 + 0.8 * (index + 1) as f64 / all);
        }
        points.push(errors.with_background_range(Point {
            mode: SharingMode::Background,
            gpus: 0,
            amplification: None,
            iteration: None,
            foreground_samples_per_s: 0.0,
            background_samples_per_s: gpus as f64 * background_samples_per_s,
            foreground_range: None,
            total_range: None,
        }));
        sort(&mut points);
        let Errors { layers: layers_error, links: links_error } = errors;
        Ok(Self { points, gpus, counts_without_memory, background_samples_per_s, layers_error, links_error })
    }

    /// Simulates burst plans on all GPUs, alone and with a background job on each GPU. The points
    /// are those of [`new`](Self::new) in these two modes, in the same order; with another request,
    /// such as with [split layers](PlanRequest::with_splits), they complement a comparison.
    /// O(search + points x simulation).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn burst_points(
        job: &Job<'_>,
        request: &PlanRequest,
        background: &BackgroundCosts,
        options: &SimulateOptions,
    ) -> Result<Vec<Point>, Error> {
        job.check_full_backpropagation()?;
        let options = options.clone().with_memory_limit(request.memory_limit_bytes);
        let frontier = frontier_beside(job, request, background)?;
        let errors = Errors::of(job);
        let mut points = Vec::new();
        for plan in burst_plans(&frontier, request)? {
            request.stop.check()?;
            let simulated = SimulatedPlan::new(job, &plan, background, &options, &errors)?;
            points.extend(simulated.points(&BURST_MODES, background.samples_per_s(), &errors));
        }
        sort(&mut points);
        Ok(points)
    }

    /// Returns the envelope of the points of the given modes, which may alternate with each other
    /// and with background jobs alone.
    #[must_use]
    pub fn envelope(&self, modes: &[SharingMode]) -> Envelope {
        let is_asked = |point: &&Point| modes.contains(&point.mode) || point.mode == SharingMode::Background;
        let of_point = |point: &Point| (point.foreground_samples_per_s, point.total_samples_per_s());
        Envelope::new(self.points.iter().filter(is_asked).map(of_point))
    }

    /// Returns the point of a mode with the fastest foreground among plans with at most the given
    /// amplification; `None` if no plan of this mode is within it.
    #[must_use]
    pub fn fastest_within(&self, mode: SharingMode, amplification: f64) -> Option<&Point> {
        let limit = amplification * (1.0 + 1e-9);
        let is_within = |point: &&Point| {
            point.mode == mode && point.amplification.is_some_and(|amplification| amplification <= limit)
        };
        let speed = |point: &Point| point.foreground_samples_per_s;
        self.points.iter().filter(is_within).max_by(|a, b| speed(a).total_cmp(&speed(b)))
    }

    /// Returns `part` (0 to 1) of the [fastest](Self::fastest_foreground) foreground's speed, less
    /// a tolerance of 1%, in samples per second. Tables and advice are for these speeds.
    #[must_use]
    pub fn comparable_speed(&self, part: f64) -> f64 {
        self.fastest_foreground() * part * (1.0 - TOLERANCE)
    }

    /// Returns the speed of the fastest foreground of any point, in samples per second.
    #[must_use]
    pub fn fastest_foreground(&self) -> f64 {
        self.points.iter().map(|point| point.foreground_samples_per_s).fold(0.0, f64::max)
    }
}

/// Sorts points by mode and then by the speed of the foreground.
fn sort(points: &mut [Point]) {
    points.sort_by(|a, b| {
        let by_speed = a.foreground_samples_per_s.total_cmp(&b.foreground_samples_per_s);
        a.mode.cmp(&b.mode).then(by_speed)
    });
}

/// Returns burst plans spread over the frontier, and the plan of the request's mode.
fn burst_plans<'a>(
    frontier: &PlanFrontier<'a>,
    request: &PlanRequest,
) -> Result<Vec<LoweredPlan<'a>>, Error> {
    let mut bursts = frontier.plans(MAX_BURST_PLANS)?;
    match frontier.point(request.mode) {
        Ok(Some(asked)) => {
            let plan = frontier.unbounded_plan_of(asked)?;
            if !bursts.iter().any(|burst| burst.plan() == plan.plan()) {
                bursts.push(plan);
            }
        }
        // An unreachable limit is no error here: data parallelism is compared in any case.
        Ok(None)
        | Err(Error::Planner(Unplanned::LimitUnreachable { .. } | Unplanned::DeadlineUnreachable { .. })) => {
        }
        Err(error) => return Err(error),
    }
    Ok(bursts)
}

fn fits(bytes: Option<u64>, limit: Option<u64>) -> bool {
    bytes.zip(limit).is_none_or(|(bytes, limit)| bytes <= limit)
}

/// Returns the numbers of GPUs on which data parallelism is simulated, among those with enough
/// memory: powers of two, the maximum, and the corners of the envelope by the planner's times. Also
/// returns how many powers of two and maximum have too little memory.
fn worthwhile_parts(
    job: &Job<'_>,
    request: &PlanRequest,
    background: &BackgroundCosts,
) -> Result<(Vec<usize>, usize), Error> {
    let gpus = request.gpus;
    let max = gpus.min(job.batch());
    let is_usual = |part: usize| part.is_power_of_two() || part == max;
    let mut without_memory = 0;
    let mut rates: Vec<(usize, (f64, f64))> = Vec::with_capacity(max);
    for (part, times) in (1..).zip(data_parallel_times_on(job, 1..=max)?) {
        if fits(times.memory_peak_bytes, request.memory_limit_bytes) {
            let foreground = job.batch() as f64 * 1e6 / times.iteration_us;
            let total = foreground + (gpus - part) as f64 * background.samples_per_s();
            rates.push((part, (foreground, total)));
        } else {
            without_memory += usize::from(is_usual(part));
        }
    }
    let alone = gpus as f64 * background.samples_per_s();
    let envelope = Envelope::new(rates.iter().map(|&(_, rates)| rates).chain([(0.0, alone)]));
    let is_shown =
        |&&(part, rates): &&(usize, (f64, f64))| is_usual(part) || envelope.corners().contains(&rates);
    Ok((rates.iter().filter(is_shown).map(|&(part, _)| part).collect(), without_memory))
}

/// Simulations of a plan, which may be both a burst plan and data parallelism.
struct SimulatedPlan<'p> {
    plan: &'p ExecutionPlan,
    /// Without background jobs.
    alone: Simulation,
    /// With a background job on each GPU that has room for it; `None` if none has.
    shared: Option<Simulation>,
    /// Minimum and maximum speed relative to the predicted one, if errors of the costs are known.
    speeds: Option<[f64; 2]>,
}

impl<'p> SimulatedPlan<'p> {
    fn new(
        job: &Job<'_>,
        plan: &'p LoweredPlan<'_>,
        background: &BackgroundCosts,
        options: &SimulateOptions,
        errors: &Errors,
    ) -> Result<Self, Error> {
        let beside = options.clone().with_background(Some(background.clone()));
        let mut ranks = plan.training().for_simulation()?.ranks.iter();
        let has_room = ranks.any(|rank| beside.background_beside(rank.total_bytes()).is_some());
        Ok(Self {
            plan,
            alone: simulate_plan(job, plan, &options.clone().with_background(None))?,
            shared: has_room.then(|| simulate_plan(job, plan, &beside)).transpose()?,
            speeds: errors.speeds(job, plan)?,
        })
    }

    /// Returns the points of those of the given modes that were simulated.
    fn points(
        &self,
        modes: &[SharingMode],
        background_samples_per_s: f64,
        errors: &Errors,
    ) -> impl Iterator<Item = Point> {
        let gpus = self.plan.ranks_used();
        modes.iter().filter_map(move |&mode| {
            let result = if mode.is_collocated() { self.shared.as_ref()? } else { &self.alone };
            let point = Point {
                mode,
                gpus,
                amplification: Some(self.plan.amplification),
                iteration: Some(result.iteration),
                foreground_samples_per_s: result.foreground_samples_per_s,
                background_samples_per_s: match mode {
                    SharingMode::Partition => (self.plan.gpus - gpus) as f64 * background_samples_per_s,
                    _ => result.background_samples_per_s,
                },
                foreground_range: None,
                total_range: None,
            };
            Some(errors.with_ranges(self.speeds, point))
        })
    }
}

/// Known relative errors of the costs: 0.1 is 10%.
struct Errors {
    /// Error of layer times.
    layers: Option<f64>,
    /// Error of the times of collectives.
    links: Option<f64>,
}

impl Errors {
    fn of(job: &Job<'_>) -> Self {
        let accuracy = job.costs().profile().accuracy();
        let range = accuracy.and_then(|accuracy| accuracy.range(job.costs().network(), job.batch()));
        Self { layers: range.map(|range| range.error), links: job.costs().link().relative_error() }
    }

    /// Returns the relative error of layer times.
    fn layers(&self) -> f64 {
        // With an error of 100% or more nothing would be known.
        self.layers.unwrap_or(0.0).min(0.9)
    }

    /// Returns the minimum and the maximum speed of a plan relative to the predicted one; `None` if
    /// no errors are known.
    fn speeds(&self, job: &Job<'_>, plan: &ExecutionPlan) -> Result<Option<[f64; 2]>, Error> {
        if self.layers.is_none() && self.links.is_none() {
            return Ok(None);
        }
        let (layers, links) = (self.layers(), self.links.unwrap_or(0.0).min(0.9));
        let analysis = PlanAnalysis::new(job, plan)?;
        let fastest_us = analysis.scaled_iteration_us(1.0 - layers, 1.0 - links)?;
        let slowest_us = analysis.scaled_iteration_us(1.0 + layers, 1.0 + links)?;
        Ok(Some([plan.iteration_us / slowest_us, plan.iteration_us / fastest_us]))
    }

    fn with_ranges(&self, speeds: Option<[f64; 2]>, mut point: Point) -> Point {
        point.foreground_range =
            speeds.map(|speeds| speeds.map(|times| point.foreground_samples_per_s * times));
        self.with_background_range(point)
    }

    fn with_background_range(&self, point: Point) -> Point {
        if self.layers.is_none() && self.links.is_none() {
            return point;
        }
        let [min, max] = point.foreground_range.unwrap_or_default();
        let background = point.background_samples_per_s;
        let total_range =
            Some([min + background / (1.0 + self.layers()), max + background / (1.0 - self.layers())]);
        Point { total_range, ..point }
    }
}
