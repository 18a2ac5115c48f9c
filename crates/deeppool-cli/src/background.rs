//! Background jobs of `deeppool train`. A piece is a background tasklet: one step of one
//! micro-batch, or an optimiser step.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Op, Placement, RankProgram, lower_training};
use deeppool::simulate::BackgroundCosts;
use deeppool::train::{
    BackgroundConfig, BackgroundReport, JobRanks, MicroBatches, TrainReport, assign_ranks,
};
use gpu_mux::Policy;
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ProfileTable};
use serde_json::{Value, json};

use super::background_spec::{BackgroundGpus, BackgroundSpec};
use super::costs::{CostArgs, CostTables, with_plan_path};
use super::inputs;
use super::output::{print_message, rate, time};

/// Background job, whose batch is cut into micro-batches: a copy on every rank, or one job on some.
pub(crate) struct Background {
    network: LayerGraph,
    /// Number of samples of an iteration: of each copy, or of the global batch of one job.
    batch: usize,
    /// Ranks of one job, numbered from 0; `None` for a copy on every rank.
    placed: Option<Placed>,
    /// Share of background time relative to the other jobs.
    weight: NonZeroU32,
    cut: MicroBatches,
    /// Costs for the simulator; `None` if the profile does not cover the whole batch.
    costs: Option<BackgroundCosts>,
    profile: ProfileTable,
    link: LinkModel,
}

/// Placement of a job on its own ranks, and the lowering of its plan.
struct Placed {
    placement: Placement,
    /// Lowering options of the job's plan; `None` without a plan.
    lowering: Option<LowerOptions>,
}

impl Placed {
    /// Places a job on the ranks of its option. Returns `None` for copies.
    ///
    /// # Errors
    /// If the plan cannot be read, or does not fit the network or the batch.
    fn new(spec: &BackgroundSpec, network: &LayerGraph) -> anyhow::Result<Option<Self>> {
        let placed = match &spec.gpus {
            BackgroundGpus::Each => return Ok(None),
            BackgroundGpus::Count(count) => {
                let counts = vec![*count; network.computing_layers().len()];
                let placement = Placement::first_ranks(network, *count, &counts)?;
                Self { placement, lowering: None }
            }
            BackgroundGpus::Plan(path) => {
                let plan = inputs::plan(path)?;
                let placement = with_plan_path(Some(path), plan.placement(network))?;
                let (file, lowering) =
                    (path.display(), plan.lowering.options(LowerOptions::default().optimizer));
                if plan.batch != spec.batch {
                    bail!(
                        "{file}: the plan is for {} samples a batch, not {}: write `{}:{0}@{file}`, or make \
                         another plan",
                        plan.batch,
                        spec.batch,
                        spec.model
                    );
                }
                if lowering.partial.is_some() {
                    bail!(
                        "{file}: background jobs have no partial backpropagation: make a plan without --spb"
                    );
                }
                Self { placement, lowering: Some(lowering) }
            }
        };
        let ranks = placed.sample_ranges(network).max().unwrap_or(1);
        ensure!(ranks <= spec.batch, deeppool::Error::MoreRanksThanSamples { ranks, batch: spec.batch });
        Ok(Some(placed))
    }

    /// Returns the number of ranges into which each layer divides the samples.
    fn sample_ranges(&self, network: &LayerGraph) -> impl Iterator<Item = usize> {
        network.computing_layers().map(|(id, _)| self.placement.sample_ranges(id))
    }
}

impl Background {
    /// Creates a job whose batch is cut so that each piece takes at most the limit of the policy.
    /// Layer times are those of `--background-profile`. Without it they are for the device of the
    /// foreground's times, or for one core if those are read from a file (`--profile`) and are of
    /// another network.
    ///
    /// # Errors
    /// If the network cannot be loaded, the data set does not fit it, or layer times are missing.
    pub(crate) fn new(
        (spec, weight): (&BackgroundSpec, NonZeroU32),
        dataset: &Dataset,
        args: &CostArgs,
        foreground: &CostTables,
        policy: &Policy,
    ) -> anyhow::Result<Self> {
        let network = spec.network()?;
        let placed = Placed::new(spec, &network)?;
        dataset.fits(&network).context("the background job trains on the same data")?;
        let profile = Self::profile(spec, &network, args, &foreground.profile)?;
        let costs = Costs::new(&network, &profile, &foreground.link);
        // The largest number of samples that a rank has of a layer.
        let ranges = placed.as_ref().and_then(|placed| placed.sample_ranges(&network).min()).unwrap_or(1);
        let of_rank = spec.batch.div_ceil(ranges);
        let cut = MicroBatches::within(policy.background_piece.unwrap_or(Duration::MAX), &costs, of_rank)
            .context("the batch of the background job cannot be cut")?;
        let costs = if placed.is_none() { BackgroundCosts::new(&costs, spec.batch).ok() } else { None };
        let link = foreground.link.clone();
        Ok(Self { network, batch: spec.batch, placed, weight, cut, costs, profile, link })
    }

    /// Returns the costs for the simulator, or `None` if the profile does not cover the whole
    /// batch, or the job is no copy on every rank.
    pub(crate) fn costs(&self) -> Option<&BackgroundCosts> {
        self.costs.as_ref()
    }

    /// Returns whether every rank has a copy of the job.
    pub(crate) fn is_copies(&self) -> bool {
        self.placed.is_none()
    }

    /// Returns the modelled durations of the steps of the job's program, in the program's order.
    /// `lowering` are the options of the foreground.
    ///
    /// # Errors
    /// If layer times are missing for the size of a micro-batch.
    pub(crate) fn step_times(&self, lowering: &LowerOptions) -> anyhow::Result<Vec<Duration>> {
        let own =
            self.placed.as_ref().and_then(|placed| placed.lowering.as_ref()).unwrap_or(lowering).clone();
        let lowering = own.with_micro_batches(self.cut.count).with_partial(None);
        let placement = match &self.placed {
            Some(placed) => placed.placement.clone(),
            None => Placement::single(&self.network)?,
        };
        let program = lower_training(&self.network, &placement, self.batch, &lowering)?;
        let times = Costs::new(&self.network, &self.profile, &self.link).step_times(&program)?;
        Ok(times.into_iter().next().unwrap_or_default())
    }

    fn profile(
        spec: &BackgroundSpec,
        network: &LayerGraph,
        args: &CostArgs,
        foreground: &ProfileTable,
    ) -> anyhow::Result<ProfileTable> {
        let is_given = args.background_profile.is_some();
        if !is_given && args.profile.is_some() && network.name() != foreground.model() {
            let core = DeviceModel::named("cpu-core")?;
            return Ok(core.profile(network, &shard_sizes(spec.batch, spec.batch))?);
        }
        args.background(spec, network, foreground)
    }

    /// Returns the configuration of the job for training on `dataset`.
    fn job<'a>(&'a self, dataset: &'a Dataset, ranks: Option<JobRanks>) -> BackgroundConfig<'a> {
        BackgroundConfig::new(&self.network, dataset, self.batch)
            .with_micro_batches(self.cut.count)
            .with_weight(self.weight)
            .with_ranks(ranks)
    }

    fn show(&self, report: &BackgroundReport) {
        let losses: Vec<f64> = report.losses.iter().copied().flatten().collect();
        let loss = if losses.is_empty() {
            "no batch done".to_owned()
        } else {
            format!("loss of the last batches {:.4}", losses.iter().sum::<f64>() / losses.len() as f64)
        };
        print_message!(
            "background {:<24} {}, {loss}, {} micro-batches an iteration{}",
            report.label,
            rate(report.samples_per_s),
            self.cut.count,
            if report.is_joint { format!(", ranks {}", ranks_text(&report.ranks)) } else { String::new() },
        );
    }

    fn report(&self, report: &BackgroundReport) -> Value {
        let mut json = json!({
            "name": report.label, "model": self.network.name(), "batch": self.batch, "ranks": report.ranks,
            "micro_batches": self.cut.count, "weight": self.weight, "samples_per_s": report.samples_per_s,
            "iterations": report.iterations, "losses": report.losses,
        });
        if report.is_joint {
            json["iteration_losses"] = report.history.clone().into();
        }
        json
    }
}

fn ranks_text(ranks: &[usize]) -> String {
    ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the configurations of background jobs for training on `dataset`, beside a foreground
/// with these programs and costs, whose iteration takes `iteration`. Jobs on some ranks get those
/// that the foreground leaves idle most.
///
/// # Errors
/// If a job needs more ranks than the run has, or several GPUs. `on_gpus` is whether ranks are
/// GPUs, on which background jobs have no collectives yet.
pub(crate) fn configure<'a>(
    jobs: &'a [Background],
    dataset: &'a Dataset,
    training: &LoweredTraining<'_>,
    (costs, iteration): (&Costs<'_>, Duration),
    on_gpus: bool,
) -> anyhow::Result<Vec<BackgroundConfig<'a>>> {
    let placed =
        jobs.iter().filter_map(|job| job.placed.as_ref().map(|placed| (job, placed.placement.world())));
    let mut sizes = Vec::new();
    let world = training.placement().world();
    for (job, size) in placed {
        let name = format!("{}:{}@{size}", job.network.name(), job.batch);
        ensure!(
            size <= world,
            "the background job `{name}` needs {size} ranks, and the run has {world}: give @{world} or less"
        );
        ensure!(
            size == 1 || !on_gpus,
            "the background job `{name}` needs collectives, which background jobs on GPUs do not have in \
             training: give @1, or leave out @{size} for a copy on each GPU"
        );
        sizes.push(size);
    }
    let idle = if sizes.is_empty() { Vec::new() } else { idle_times(training, costs, iteration)? };
    let mut ranks = assign_ranks(&idle, &sizes).into_iter();
    let configure = |job: &'a Background| {
        let ranks = job.placed.as_ref().zip(job.placed.as_ref().and_then(|_| ranks.next()));
        let ranks = ranks.map(|(placed, ranks)| {
            // The optimiser and the precision are those of the run.
            let LowerOptions { optimizer, precision, .. } = training.options().clone();
            let lowering = placed.lowering.clone();
            let lowering = lowering.map(|own| own.with_optimizer(optimizer).with_precision(precision));
            JobRanks::new(placed.placement.clone(), ranks).with_lowering(lowering)
        });
        job.job(dataset, ranks)
    };
    Ok(jobs.iter().map(configure).collect())
}

/// Returns the time of each rank in which it does not compute in the first iteration, if that takes
/// `iteration`; zero without layer times.
fn idle_times(
    training: &LoweredTraining<'_>,
    costs: &Costs<'_>,
    iteration: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let program = training.first_program()?;
    let Ok(times) = costs.step_times(program) else {
        return Ok(vec![Duration::ZERO; training.placement().world()]);
    };
    let idle = |(rank, times): (&RankProgram, &Vec<Duration>)| {
        let steps = rank.steps.iter().zip(times);
        let computing = steps.filter(|(step, _)| !matches!(step.op, Op::Collective(_)));
        iteration.saturating_sub(computing.map(|(_, time)| *time).sum())
    };
    Ok(program.ranks.iter().zip(&times).map(idle).collect())
}

/// Prints the results of each background job, then the number of pieces of all ranks and the
/// duration of the longest one.
pub(crate) fn show(jobs: &[Background], policy: &Policy, report: &TrainReport) {
    for (job, report) in jobs.iter().zip(&report.background) {
        job.show(report);
    }
    let pieces = Pieces::of(report);
    let over = policy.background_piece.map_or_else(String::new, |bound| {
        format!(", {} of them longer than {}", pieces.over_limit, time(bound))
    });
    print_message!(
        "background pieces                   {}, longest {}{over}",
        pieces.count,
        time(pieces.longest)
    );
}

/// Returns the results of the background jobs, in the order of `jobs`, and the statistics of their
/// pieces as JSON; times are in microseconds.
pub(crate) fn report(jobs: &[Background], policy: &Policy, report: &TrainReport) -> Value {
    let pieces = Pieces::of(report);
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let of_jobs = jobs.iter().zip(&report.background).map(|(job, report)| job.report(report));
    json!({
        "jobs": of_jobs.collect::<Vec<_>>(), "pieces": pieces.count, "longest_piece_us": us(pieces.longest),
        "piece_limit_us": policy.background_piece.map(us), "over_long_pieces": pieces.over_limit,
    })
}

/// Statistics of the background tasklets of all ranks.
struct Pieces {
    count: u64,
    /// Maximum duration.
    longest: Duration,
    /// Number of tasklets that exceeded the limit of the policy.
    over_limit: u64,
}

impl Pieces {
    fn of(report: &TrainReport) -> Self {
        let usage = &report.usage;
        Self {
            count: usage.iter().map(|usage| usage.background_tasklets).sum(),
            longest: usage.iter().map(|usage| usage.longest_background).max().unwrap_or_default(),
            over_limit: usage.iter().map(|usage| usage.over_limit).sum(),
        }
    }
}
