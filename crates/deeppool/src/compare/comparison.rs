//! All ways side by side.

use super::{Envelope, Point, Way};
use burst_planner::Error as Unplanned;

use crate::Error;
use crate::job::{Job, LoweredPlan};
use crate::plan::{ExecutionPlan, PlanRequest};
use crate::planning::{PlanAnalysis, data_parallel_times, find_frontier};
use crate::simulate::{BackgroundCosts, SimulateOptions, simulate_plan};

/// Burst plans that are compared, at most: spread over the Pareto frontier.
const PLANS: usize = 14;

/// The ways to use data parallelism on all GPUs, and on a part of them; and a burst plan.
const OF_ALL: [Way; 4] =
    [Way::DataParallel, Way::DataParallelCollocated, Way::Partition, Way::BurstCollocated];
const OF_A_PART: [Way; 2] = [Way::Partition, Way::BurstCollocated];
const OF_A_BURST: [Way; 2] = [Way::Burst, Way::BurstCollocated];
/// Rates that differ by less, relatively, are taken to be the same.
pub(super) const ALIKE: f64 = 0.01;

/// What ways to share GPUs between a foreground job and background jobs of one GPU each give: every point is simulated.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Comparison {
    /// All points, by their way.
    pub points: Vec<Point>,
    /// GPUs that there are.
    pub gpus: usize,
    /// Samples by second of a background job that has a GPU to itself.
    pub background_samples_per_s: f64,
    /// By what part the times of layers are known to be off at worst.
    pub layers_off: Option<f64>,
    /// By what part the times of links are known to be off at worst.
    pub links_off: Option<f64>,
}

impl Comparison {
    /// Compares data parallelism and burst plans on all GPUs, each alone and with a background job on each GPU, and data parallelism on
    /// any smaller number of GPUs with background jobs on the others.
    ///
    /// One search gives the burst plans: the one that the request's mode asks for, and others spread over the Pareto frontier.
    /// Where GPUs have a limit on memory, burst plans leave room for a background job, if any can; a partition's GPUs run one job each. Of
    /// the partitions, those that take turns with others best are simulated, and the powers of two. Simulations are by the
    /// options' policy and device, and as long as they say; `progress` is told what part is done. O(search + points x simulation).
    ///
    /// # Errors
    /// When the question is out of proportion, or the profile lacks a time.
    pub fn new(
        job: &Job<'_>,
        request: &PlanRequest,
        background: &BackgroundCosts,
        options: &SimulateOptions,
        mut progress: impl FnMut(f64),
    ) -> Result<Self, Error> {
        job.check_whole()?;
        let gpus = request.gpus;
        let beside = request.clone().with_memory_limit(background.room_beside(request.memory_limit_bytes)?);
        let frontier = match find_frontier(job, &beside) {
            // Without a background job the foreground may fit.
            Err(Error::Planner(Unplanned::MemoryExceeded { .. })) => find_frontier(job, request)?,
            found => found?,
        };
        progress(0.2);
        let mut bursts = frontier.plans(PLANS)?;
        match frontier.point(request.mode) {
            Ok(Some(asked)) => {
                let plan = frontier.unbounded_plan_of(asked)?;
                if !bursts.iter().any(|burst| burst.plan() == plan.plan()) {
                    bursts.push(plan);
                }
            }
            // A limit that no plan keeps is no error here: data parallelism is compared in any case.
            Ok(None)
            | Err(Error::Planner(
                Unplanned::LimitUnreachable { .. } | Unplanned::DeadlineUnreachable { .. },
            )) => {}
            Err(error) => return Err(error),
        }
        let mut runs: Vec<(LoweredPlan<'_>, &[Way])> = Vec::new();
        for part in worthwhile_parts(job, request, background)? {
            let is_all = part == gpus.min(job.batch());
            runs.push((frontier.data_parallel_on(part)?, if is_all { &OF_ALL } else { &OF_A_PART }));
        }
        runs.extend(bursts.into_iter().map(|plan| (plan, &OF_A_BURST[..])));
        let background_samples_per_s = background.samples_per_s();
        let errors = Errors::of(job);
        let mut points = Vec::with_capacity(2 * runs.len() + 1);
        let all = runs.len() as f64;
        for (index, (plan, ways)) in runs.iter().enumerate() {
            request.stop.check()?;
            let has_room = fits(plan.memory_peak_bytes, beside.memory_limit_bytes);
            let speeds = errors.speeds(job, plan)?;
            for point in simulated(job, plan, ways, (background, has_room), options)? {
                points.push(errors.with_ranges(speeds, point));
            }
            progress(0.2 + 0.8 * (index + 1) as f64 / all);
        }
        points.push(errors.with_background_range(Point {
            way: Way::Background,
            gpus: 0,
            amplification: None,
            iteration: None,
            foreground_samples_per_s: 0.0,
            background_samples_per_s: gpus as f64 * background_samples_per_s,
            foreground_range: None,
            total_range: None,
        }));
        points.sort_by(|a, b| {
            let by_speed = a.foreground_samples_per_s.total_cmp(&b.foreground_samples_per_s);
            a.way.cmp(&b.way).then(by_speed)
        });
        let Errors { layers: layers_off, links: links_off } = errors;
        Ok(Self { points, gpus, background_samples_per_s, layers_off, links_off })
    }

    /// The most total throughput of some ways when they take turns, with each other and with background jobs alone.
    #[must_use]
    pub fn envelope(&self, ways: &[Way]) -> Envelope {
        let is_asked = |point: &&Point| ways.contains(&point.way) || point.way == Way::Background;
        let of_point = |point: &Point| (point.foreground_samples_per_s, point.total_samples_per_s());
        Envelope::new(self.points.iter().filter(is_asked).map(of_point))
    }

    /// The point of a way with the fastest foreground whose plan's amplification is at most this.
    #[must_use]
    pub fn fastest_within(&self, way: Way, amplification: f64) -> Option<&Point> {
        let limit = amplification * (1.0 + 1e-9);
        let is_within = |point: &&Point| {
            point.way == way && point.amplification.is_some_and(|amplification| amplification <= limit)
        };
        let speed = |point: &Point| point.foreground_samples_per_s;
        self.points.iter().filter(is_within).max_by(|a, b| speed(a).total_cmp(&speed(b)))
    }

    /// A part of the [fastest](Self::fastest_foreground) foreground's speed, less a tolerance of 1%, samples by second: what tables and
    /// advice ask for.
    #[must_use]
    pub fn about(&self, part: f64) -> f64 {
        self.fastest_foreground() * part * (1.0 - ALIKE)
    }

    /// The speed of the fastest foreground, samples by second.
    #[must_use]
    pub fn fastest_foreground(&self) -> f64 {
        self.points.iter().map(|point| point.foreground_samples_per_s).fold(0.0, f64::max)
    }
}

fn fits(bytes: Option<u64>, limit: Option<u64>) -> bool {
    bytes.zip(limit).is_none_or(|(bytes, limit)| bytes <= limit)
}

/// The numbers of GPUs that data parallelism is simulated on, of those on which it has room: powers of two, the most, and those that give
/// most at any speed of the foreground, by the planner's time.
fn worthwhile_parts(
    job: &Job<'_>,
    request: &PlanRequest,
    background: &BackgroundCosts,
) -> Result<Vec<usize>, Error> {
    let gpus = request.gpus;
    let most = gpus.min(job.batch());
    let mut rates: Vec<(usize, (f64, f64))> = Vec::with_capacity(most);
    for part in 1..=most {
        let times = data_parallel_times(job, part)?;
        if fits(times.memory_peak_bytes, request.memory_limit_bytes) {
            let foreground = job.batch() as f64 * 1e6 / times.iteration_us;
            let total = foreground + (gpus - part) as f64 * background.samples_per_s();
            rates.push((part, (foreground, total)));
        }
    }
    let alone = gpus as f64 * background.samples_per_s();
    let envelope = Envelope::new(rates.iter().map(|&(_, rates)| rates).chain([(0.0, alone)]));
    let is_shown = |&&(part, rates): &&(usize, (f64, f64))| {
        part.is_power_of_two() || part == most || envelope.corners().contains(&rates)
    };
    Ok(rates.iter().filter(is_shown).map(|&(part, _)| part).collect())
}

/// What a plan gives in some ways: simulated once alone and once with a background job on each GPU, if those have room.
fn simulated(
    job: &Job<'_>,
    plan: &LoweredPlan<'_>,
    ways: &[Way],
    (background, has_room): (&BackgroundCosts, bool),
    options: &SimulateOptions,
) -> Result<Vec<Point>, Error> {
    let gpus = plan.ranks_used();
    let mut points = Vec::with_capacity(ways.len());
    for background_job in std::iter::once(None).chain(has_room.then_some(Some(background))) {
        let options = SimulateOptions { background: background_job.cloned(), ..options.clone() };
        let result = simulate_plan(job, plan, &options)?;
        let is_shared = background_job.is_some();
        points.extend(ways.iter().filter(|way| way.is_collocated() == is_shared).map(|&way| Point {
            way,
            gpus,
            amplification: Some(plan.amplification),
            iteration: Some(result.iteration),
            foreground_samples_per_s: result.foreground_samples_per_s,
            background_samples_per_s: match way {
                Way::Partition => (plan.gpus - gpus) as f64 * background.samples_per_s(),
                _ => result.background_samples_per_s,
            },
            foreground_range: None,
            total_range: None,
        }));
    }
    Ok(points)
}

/// By what parts times are known to be off.
struct Errors {
    layers: Option<f64>,
    links: Option<f64>,
}

impl Errors {
    fn of(job: &Job<'_>) -> Self {
        // A network may be one that the model was not fitted to.
        let seen = job.costs().profile().accuracy().and_then(|accuracy| accuracy.errors);
        let layers = seen.map(|seen| seen.held_out_worst.unwrap_or(0.0).max(seen.networks_worst));
        Self { layers, links: job.costs().link().relative_error() }
    }

    /// How much longer and shorter layers take by this.
    fn layers(&self) -> f64 {
        // A model that is off by all of a time or more says nothing.
        self.layers.unwrap_or(0.0).min(0.9)
    }

    /// How many times as fast as planned a plan may be, the least and the most; `None` where nothing is known of that.
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
        let [least, most] = point.foreground_range.unwrap_or_default();
        let background = point.background_samples_per_s;
        let total_range =
            Some([least + background / (1.0 + self.layers()), most + background / (1.0 - self.layers())]);
        Point { total_range, ..point }
    }
}
