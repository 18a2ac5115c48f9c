//! Options that several commands share: layer times, links, and the use of GPUs.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use collectives::LinkModel;
use command_line::numbers::{amplification, within};
use deeppool::costs::{Costs, default_link, shard_sizes};
use deeppool::job::{Job, LoweredPlan};
use deeppool::machine::Calibration;
use deeppool::plan::{Capacity, ExecutionPlan, GpuCounts, MAX_GPUS, Mode, PlanRequest, ProfileOrigin};
use deeppool::planning::plan_within_memory;
use deeppool::program::LowerOptions;
use layer_engine::{Precision, Sgd};
use layer_graph::{LayerGraph, Split};
use layer_profile::{DataSheet, DeviceModel, Gpu, NumberFormat, Origin, ProfileTable};

use super::background_spec::BackgroundSpec;
use super::inputs;
use super::left_out::warn;
use super::progress::with_spinner;
use super::ranks::{LayerPrecision, RankEngine};

/// Options for layer times and links.
#[derive(Args)]
pub(crate) struct CostArgs {
    /// Device model: a100 (40 GB), a100-80gb, h100, h200, v100 (16 GB), v100-32gb, cpu-core, or the
    /// FILE.json of one (see `deeppool fit`). A GPU multiplies in TF32, a V100 in FP32; the name
    /// may end in another number format: a100-bf16, a100-fp32, v100-fp16
    #[arg(long, conflicts_with = "profile")]
    pub(crate) device: Option<String>,
    /// Number format of products: f32, tf32, or bf16, which also stores activations and their
    /// gradients in 16 bits. It selects the device model of a GPU in this format [default: the
    /// times of the plan, the profile or the device model, and programs of bf16 if these are of
    /// bf16, else of f32]
    #[arg(long, value_enum)]
    pub(crate) precision: Option<LayerPrecision>,
    /// File of layer times (see `deeppool profile`), instead of a device model
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// File of layer times of the background job's network [default: --profile, or the device
    /// model]
    #[arg(long, value_name = "FILE", requires = "background")]
    pub(crate) background_profile: Option<PathBuf>,
    /// Link model. One host of eight GPUs: dgx1-v100, dgx-a100, dgx-h100, dgx-h200. Several hosts:
    /// dgx-a100-pod, dgx-h100-pod (eight adapters each), dgx1-v100-pod (four), dgx1-v100-ib100,
    /// a100-100gbe (one), aws-p4de, aws-p5. One GPU per host: ethernet-10g, ethernet-25g,
    /// ethernet-100g, ec2-25g-efa, ec2-25g-tcp, slingshot-200g. Threads: shared-memory. Or the
    /// FILE.json of a cluster (see `LinkModel::from_json`; `coll-bench fit -o` writes one)
    /// [default: the host or pod of the device if it is a processor or a built-in GPU]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) link: Option<String>,
    /// File of earlier runs on this machine (see `deeppool train --calibrate`), by which layer
    /// times and links are scaled
    #[arg(long, value_name = "FILE")]
    pub(crate) calibration: Option<PathBuf>,
}

/// Layer times of a network, and a link model.
pub(crate) struct CostTables {
    /// Layer times by batch size.
    pub(crate) profile: ProfileTable,
    /// Link model of the GPUs.
    pub(crate) link: LinkModel,
    /// Whether these times predict the plan. False if the plan was read from a file and defaults
    /// replace its layer or link times, so that a simulation would not match it; otherwise true.
    pub(crate) match_plan: bool,
}

impl CostTables {
    /// Returns the tables scaled by the runs of a calibration.
    ///
    /// # Errors
    /// If a time or a bandwidth is then out of range.
    pub(crate) fn calibrated(&self, calibration: &Calibration) -> Result<Self, deeppool::Error> {
        let (profile, link) = calibration.scaled(&self.profile, self.link.clone())?;
        Ok(Self { profile, link, match_plan: self.match_plan })
    }
}

impl CostArgs {
    /// Creates the options of layer times on a device or in a file, with a link model.
    pub(crate) fn of_job(device: Option<String>, profile: Option<PathBuf>, link: String) -> Self {
        let (precision, background_profile, calibration) = (None, None, None);
        Self { device, precision, profile, background_profile, link: Some(link), calibration }
    }

    /// Loads layer times and links for a global batch of `batch` samples on up to `gpus` GPUs.
    /// Options that are not given are taken from the plan, or from the device model
    /// `default_device`, which also replaces a device of the plan that is not built in.
    ///
    /// # Errors
    /// If a file cannot be read, or neither an option, the plan nor a default has the times.
    pub(crate) fn load(
        &self,
        network: &LayerGraph,
        batch: usize,
        gpus: usize,
        plan: Option<&ExecutionPlan>,
        default_device: Option<&'static str>,
    ) -> anyhow::Result<CostTables> {
        self.check_plan(plan)?;
        let from_plan = plan.map(|plan| &plan.profile);
        let mut match_plan = true;
        let mut stand_in = |default: &'static str| {
            match_plan = false;
            default
        };
        let profile = if let Some(path) = &self.profile {
            self.profile(path, network)?
        } else {
            let device = match (&self.device, from_plan, default_device) {
                (Some(device), _, _) => device,
                (None, Some(ProfileOrigin { device, origin: Origin::Modelled, .. }), _)
                    if DeviceModel::named(device).is_ok() =>
                {
                    device
                }
                (None, Some(_), Some(default)) => stand_in(default),
                (None, Some(ProfileOrigin { device, origin: Origin::Modelled, .. }), None) => bail!(
                    "the plan was made with the device model `{device}`, which is not built in: \
                     give its file with --device FILE.json"
                ),
                (None, Some(ProfileOrigin { device, origin, .. }), None) => bail!(
                    "the plan was made from a profile ({device}, {origin}): give it again with --profile FILE"
                ),
                (None, None, Some(device)) => device,
                (None, None, None) => bail!("give --device NAME or --profile FILE"),
            };
            let device = device_in_precision(device, self.precision, self.device.is_none())?;
            inputs::device(&device)?.profile(network, &shard_sizes(batch, gpus))?
        };
        check_times(plan, &profile)?;
        let link = match (&self.link, plan.map(|plan| &plan.link)) {
            (Some(link), _) => inputs::link(link)?,
            (None, Some(link)) => match (LinkModel::named(link), default_device) {
                (Err(_), Some(default)) => default_link(stand_in(default), gpus)?,
                (link_of_plan, _) => link_of_plan.with_context(|| {
                    format!(
                        "the plan was made with the links `{link}`: give their file with --link FILE.json"
                    )
                })?,
            },
            (None, None) => default_link(profile.device(), gpus).context("--link")?,
        };
        link.check_ranks(gpus).context("--link")?;
        let tables = CostTables { profile, link, match_plan };
        match &self.calibration {
            Some(path) => {
                tables.calibrated(&inputs::calibration(path)?).with_context(|| path.display().to_string())
            }
            None => Ok(tables),
        }
    }

    /// Returns the precision of the option.
    pub(crate) fn precision(&self) -> Option<Precision> {
        self.precision.map(LayerPrecision::precision)
    }

    /// Returns the precision of the option for ranks on an engine.
    ///
    /// # Errors
    /// If the engine does not compute in this precision.
    pub(crate) fn precision_on(&self, engine: RankEngine) -> anyhow::Result<Option<Precision>> {
        self.precision.map(|precision| precision.of(engine)).transpose()
    }

    /// Checks that a plan is for layers in the precision of the option.
    ///
    /// # Errors
    /// If it is for another one.
    fn check_plan(&self, plan: Option<&ExecutionPlan>) -> anyhow::Result<()> {
        let (Some(precision), Some(plan)) = (self.precision, plan) else { return Ok(()) };
        if plan.lowering.bf16 == (precision == LayerPrecision::Bf16) {
            return Ok(());
        }
        bail!(
            "the plan is for layers in {}, not {}: leave --precision out, or make another plan",
            plan.lowering.precisions(),
            precision.format().label()
        )
    }

    /// Reads a profile of a network.
    ///
    /// # Errors
    /// If the file cannot be read or is not of the network, or if its precision is not that of the
    /// option.
    pub(crate) fn profile(&self, path: &Path, network: &LayerGraph) -> anyhow::Result<ProfileTable> {
        let profile = inputs::profile(path)?;
        match (self.precision.map(LayerPrecision::format), profile.number_format()) {
            (Some(asked), Some(measured)) if asked != measured => bail!(
                "{}: the times are of {}, not {}: leave --precision out, or profile with --precision {2}",
                path.display(),
                measured.label(),
                asked.label()
            ),
            _ => profile.validated_for(network).with_context(|| path.display().to_string()),
        }
    }

    /// Returns the layer times of a background job's network on the device of the foreground's
    /// times.
    ///
    /// # Errors
    /// If the foreground's times are a profile of another network.
    pub(crate) fn background(
        &self,
        job: &BackgroundSpec,
        network: &LayerGraph,
        foreground: &ProfileTable,
    ) -> anyhow::Result<ProfileTable> {
        if let Some(path) = &self.background_profile {
            return self.profile(path, network);
        }
        if foreground.origin() == Origin::Modelled && self.profile.is_none() {
            let device = self.device.as_deref().unwrap_or(foreground.device());
            let model = inputs::device(&device_in_precision(device, self.precision, self.device.is_none())?)?;
            return Ok(model.profile(network, &shard_sizes(job.batch, job.batch))?);
        }
        if network.name() != foreground.model() {
            bail!(
                "the profile is of `{}`, but the background is `{}`: use the same network, \
                 --background-profile FILE, or a --device",
                foreground.model(),
                network.name()
            );
        }
        Ok(foreground.clone())
    }
}

/// Checks that layer times are of the precision of a plan, if their number format is known.
///
/// # Errors
/// If they are of another one.
fn check_times(plan: Option<&ExecutionPlan>, profile: &ProfileTable) -> anyhow::Result<()> {
    let (Some(plan), Some(format)) = (plan, profile.number_format()) else { return Ok(()) };
    if plan.lowering.bf16 == (format == NumberFormat::Half) {
        return Ok(());
    }
    bail!(
        "the plan is for layers in {}, and the layer times ({}) are of {}: give others with --device or \
         --profile, or make another plan",
        plan.lowering.precisions(),
        profile.device(),
        format.label()
    )
}

/// Returns the name of a device model in a precision, if one is given. A model that is no GPU has
/// times of single precision only; if it `is_default`, they stand in for others.
///
/// # Errors
/// If the device has no model in this precision.
pub(crate) fn device_in_precision(
    device: &str,
    precision: Option<LayerPrecision>,
    is_default: bool,
) -> anyhow::Result<String> {
    let Some(precision) = precision else { return Ok(device.to_owned()) };
    if DataSheet::named(device).is_ok() {
        return Gpu::name_in(device, precision.format()).context("--precision");
    }
    // A fitted model has the format that its name ends in.
    let format = Gpu::named(inputs::device(device)?.name()).ok().map(|gpu| gpu.format);
    if format == Some(precision.format())
        || format.is_none() && (is_default || precision == LayerPrecision::F32)
    {
        return Ok(device.to_owned());
    }
    bail!(
        "--precision {} needs layer times in this format, such as those of the GPU a100, and `{device}` has \
         others: leave it out, or give another --device",
        precision.format().label()
    )
}

/// Options for the use of GPUs.
#[derive(Args)]
pub(crate) struct ModeArgs {
    /// Kind of plan
    #[arg(long, value_enum, default_value = "burst")]
    pub(crate) mode: ModeName,
    /// Maximum amplification of a burst plan: the sum over all GPUs of the time in which they
    /// compute or transfer, divided by the iteration time on one GPU. A GPU that waits for others
    /// is idle [default: 2]
    #[arg(long, value_name = "LIMIT", value_parser = amplification)]
    pub(crate) amplification: Option<f64>,
    /// GPU counts that a layer of a burst plan may have: auto (a rank has at most 1, 2, 3, 4, 6, 8,
    /// 12, ... samples), powers-of-two, all, or a list such as 1,2,3,6 [default: auto]
    #[arg(long, value_name = "COUNTS")]
    gpu_counts: Option<GpuCounts>,
    /// Ways in which the GPUs of a layer of a burst plan may divide its work: samples, features
    /// (output features, channels or heads), inputs (input features or channels), positions (of a
    /// sequence), copies, all, or a list such as features,inputs. Samples are always divided
    /// [default: samples]
    #[arg(long, value_name = "WAYS", value_parser = splits)]
    splits: Option<Splits>,
    /// Hybrid parallelism: workers of M GPUs each, which divide the batch and all-reduce their
    /// gradients. A worker runs a burst plan, or with --gpu-counts 1 a placement of the layers. The
    /// GPUs must be a multiple of M, and the batch one of the number of workers
    #[arg(long, value_name = "M", value_parser = within(1..=MAX_GPUS))]
    pub(crate) worker_gpus: Option<usize>,
    /// Memory of each GPU, such as 40GB, 24GiB or unlimited. If no plan fits, activations are
    /// recomputed in the backward pass, or the batch is cut into 2, 4, 8 or more micro-batches if
    /// the network has no batch normalisation: the faster of the two, or both if neither suffices
    /// [default: the memory of a built-in GPU; unlimited for other devices]
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<Capacity>,
    /// All-reduce gradients after the backward pass instead of during it
    #[arg(long)]
    pub(crate) no_overlap: bool,
    /// Compute batch statistics over the global batch instead of the samples of each rank
    #[arg(long)]
    pub(crate) sync_batch_norm: bool,
    /// Structured partial backpropagation: the batch is cut into K parts, and each part
    /// backpropagates through only part of the network, in rotation
    #[arg(long, value_name = "K", value_parser = within(PARTS), conflicts_with = "worker_gpus")]
    pub(crate) spb: Option<usize>,
    /// Depths of the parts of --spb: equal numbers of layers with parameters, or equal fractions of
    /// the backward time
    #[arg(long, value_enum, default_value = "layers", requires = "spb")]
    spb_depth: DepthName,
}

/// Ways to split layers, besides by samples.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Splits(Vec<Split>);

/// Parses the option `--splits`.
fn splits(text: &str) -> Result<Splits, String> {
    let mut ways = Vec::new();
    for way in text.split(',').map(str::trim) {
        match way {
            "samples" => {}
            "all" => ways.extend(Split::ALL),
            way => ways.push(way.parse().map_err(|_| {
                let known = Split::ALL.map(Split::label).join(", ");
                format!("no way `{way}` to divide a layer: give samples, {known} or all")
            })?),
        }
    }
    ways.sort_unstable();
    ways.dedup();
    Ok(Splits(ways))
}

/// Default maximum amplification of a burst plan.
const DEFAULT_AMPLIFICATION: f64 = 2.0;
/// Valid numbers of parts for partial backpropagation. 1 is full backpropagation.
const PARTS: RangeInclusive<usize> = 1..=1024;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DepthName {
    Layers,
    Time,
}

/// Names of the options of [`ModeArgs`] that conflict with a plan file, without dashes.
pub(crate) const PLANNED_OPTIONS: [&str; 10] = [
    "mode",
    "amplification",
    "gpu_counts",
    "splits",
    "worker_gpus",
    "memory",
    "no_overlap",
    "sync_batch_norm",
    "spb",
    "spb_depth",
];

/// Values of the option `--mode`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// Every layer on all GPUs
    Dp,
    /// Each layer on its own GPU count
    Burst,
}

impl ModeArgs {
    /// Creates the options of a kind of plan with the defaults of all others.
    pub(crate) fn of_mode(mode: ModeName, amplification: Option<f64>) -> Self {
        Self {
            mode,
            amplification,
            gpu_counts: None,
            splits: None,
            worker_gpus: None,
            memory: None,
            no_overlap: false,
            sync_batch_norm: false,
            spb: None,
            spb_depth: DepthName::Layers,
        }
    }

    /// Returns the kind of plan to request from the planner, with the amplification limit.
    pub(crate) fn mode(&self) -> Mode {
        match self.mode {
            ModeName::Dp => Mode::DataParallel,
            ModeName::Burst => Mode::Burst { amplification: self.amplification() },
        }
    }

    /// Returns the maximum amplification of a burst plan.
    pub(crate) fn amplification(&self) -> f64 {
        self.amplification.unwrap_or(DEFAULT_AMPLIFICATION)
    }

    /// Returns the GPU counts that a layer of a burst plan may have.
    pub(crate) fn gpu_counts(&self) -> GpuCounts {
        self.gpu_counts.clone().unwrap_or_default()
    }

    /// Checks that no option of burst plans is given for data parallelism, and prints a warning if
    /// GPU counts of the list are left out for a batch of `batch` samples on `gpus` GPUs.
    ///
    /// # Errors
    /// If an option is given that has no effect.
    pub(crate) fn check(&self, (gpus, batch): (usize, usize)) -> anyhow::Result<()> {
        let of_burst = [
            ("--amplification", self.amplification.is_some()),
            ("--gpu-counts", self.gpu_counts.is_some()),
            ("--splits", self.splits.is_some()),
        ];
        let given = of_burst.iter().find(|(_, is_given)| *is_given && self.mode == ModeName::Dp);
        if let Some((option, _)) = given {
            bail!("{option} is for burst plans, and has no effect with --mode dp: leave one of them out");
        }
        let whole = [("--spb", self.spb.is_some()), ("--worker-gpus", self.worker_gpus.is_some())];
        if let Some((option, _)) = whole.iter().find(|(_, is_given)| *is_given && self.splits.is_some()) {
            bail!("--splits has no effect with {option}, whose layers are whole: leave one of them out");
        }
        let counts = self.gpu_counts();
        let left_out = counts.left_out(batch, gpus);
        // A list of which nothing is left is refused later.
        if !left_out.is_empty() && !counts.for_batch(batch, gpus).is_empty() {
            warn(format_args!(
                "left out {} of --gpu-counts {counts}: more than the {gpus} GPUs or the {batch} samples of \
                 the batch",
                left_out.len()
            ));
        }
        Ok(())
    }

    /// Returns the memory of each GPU: the option, or else that of the device with the given name.
    pub(crate) fn capacity(&self, device: &str) -> Capacity {
        Capacity::of(self.memory, device)
    }

    /// Returns the request for a plan on `gpus` GPUs, without a memory limit.
    pub(crate) fn request(&self, gpus: usize) -> PlanRequest {
        PlanRequest::new(gpus, self.mode())
            .with_gpu_counts(self.gpu_counts())
            .with_splits(self.splits.as_ref().map_or(Vec::new(), |splits| splits.0.clone()))
            .with_worker_gpus(self.worker_gpus)
    }

    /// Returns the job for a new plan with a global batch of `batch` samples, the optimiser and the
    /// precision (`None` for that of the costs), and the lowering options of the command line.
    ///
    /// # Errors
    /// If the parts of partial backpropagation do not fit the network or the batch.
    pub(crate) fn job<'a>(
        &self,
        costs: Costs<'a>,
        batch: usize,
        (optimizer, precision): (Sgd, Option<Precision>),
    ) -> Result<Job<'a>, deeppool::Error> {
        let lowering = LowerOptions::default()
            .with_optimizer(optimizer)
            .with_overlap_all_reduce(!self.no_overlap)
            .with_sync_batch_norm(self.sync_batch_norm);
        let job = in_precision(Job::new(costs, batch, lowering), precision);
        match self.spb {
            None | Some(1) => Ok(job),
            Some(parts) => job.with_partial(parts, self.spb_depth == DepthName::Time),
        }
    }
}

/// Returns the job with layers in a precision, if one is given.
fn in_precision(job: Job<'_>, precision: Option<Precision>) -> Job<'_> {
    match precision {
        Some(precision) => job.with_precision(precision),
        None => job,
    }
}

/// Returns the job with the plan `read` from a file, or, if that is `None`, with a new plan within
/// the memory limit of each GPU. A limit of `None` means unlimited memory. Without a precision it
/// is that of the plan or the costs.
///
/// # Errors
/// If the plan that was read does not fit the network, or no plan is found.
pub(crate) fn job_and_plan<'a>(
    read: Option<ExecutionPlan>,
    costs: Costs<'a>,
    (gpus, batch): (usize, usize),
    mode: &ModeArgs,
    memory_limit_bytes: Option<u64>,
    numerics @ (optimizer, precision): (Sgd, Option<Precision>),
) -> Result<(Job<'a>, LoweredPlan<'a>), deeppool::Error> {
    if let Some(plan) = read {
        let job = in_precision(Job::of_plan(costs, &plan, optimizer)?, precision);
        let lowered = job.lower(plan)?;
        return Ok((job, lowered));
    }
    let request = mode.request(gpus).with_memory_limit(memory_limit_bytes);
    let job = mode.job(costs, batch, numerics)?;
    with_spinner("searching for a plan", || plan_within_memory(&job, &request))
}

/// Prefixes an error about a plan with the path of its file, if the plan was read from one.
///
/// # Errors
/// That of `result`.
pub(crate) fn with_plan_path<T>(
    path: Option<&Path>,
    result: Result<T, deeppool::Error>,
) -> anyhow::Result<T> {
    match (path, result) {
        (
            Some(path),
            Err(
                error @ (deeppool::Error::Plan(_)
                | deeppool::Error::Placement(_)
                | deeppool::Error::Setting { .. }),
            ),
        ) => Err(anyhow::Error::from(error).context(path.display().to_string())),
        (_, result) => Ok(result?),
    }
}

/// Returns the number of GPUs and the global batch in samples: those of the options or of the plan.
///
/// # Errors
/// If options and plan differ, neither has a value, or the number of GPUs is too large.
pub(crate) fn gpus_and_batch(
    gpus: Option<usize>,
    batch: Option<usize>,
    plan: Option<&ExecutionPlan>,
) -> anyhow::Result<(usize, usize)> {
    let (planned_gpus, planned_batch) = (plan.map(|plan| plan.gpus), plan.map(|plan| plan.batch));
    let agree = |what, given: Option<usize>, planned: Option<usize>| match (given, planned) {
        (Some(given), Some(planned)) if given != planned => {
            bail!(
                "the plan is for {planned} {what}, not {given}: leave that option out, or make another plan"
            )
        }
        (given, planned) => given.or(planned).with_context(|| format!("the number of {what} is not given")),
    };
    let gpus = agree("GPUs", gpus, planned_gpus)?;
    if plan.is_none() {
        // Checked before tables are computed for this number of GPUs.
        PlanRequest::new(gpus, Mode::Knee).check()?;
    }
    Ok((gpus, agree("samples a batch", batch, planned_batch)?))
}
