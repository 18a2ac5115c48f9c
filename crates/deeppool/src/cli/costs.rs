//! What several commands ask: the network, its costs, and how GPUs are used.

use std::path::PathBuf;

use anyhow::{Context, bail};
use burst_planner::{SearchOptions, TimeModel};
use clap::{Args, ValueEnum};
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::planning::{Mode, PlanFile, PlanRequest, ProfileOrigin};
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, Origin, ProfileTable};

use super::links::default_link;

#[derive(Args)]
pub(crate) struct CostArgs {
    /// A built-in device model: a100, h100, h200, v100, cpu-core; or the FILE.json of one (see `deeppool fit`)
    #[arg(long, conflicts_with = "profile")]
    pub(crate) device: Option<String>,
    /// A file of layer times (see `deeppool profile`), instead of a device model
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// A built-in link model: dgx-a100, dgx-h100, dgx-h200, ethernet-10g, ethernet-25g, ethernet-100g,
    /// shared-memory [default: the one that goes with the device, where that is a processor or a built-in GPU; for a v100,
    /// dgx-a100]
    #[arg(long)]
    pub(crate) link: Option<String>,
}

/// Layer times of a network, and links.
pub(crate) struct CostTables {
    pub(crate) profile: ProfileTable,
    pub(crate) link: LinkModel,
}

impl CostArgs {
    /// The tables for a global batch on up to `gpus` GPUs. What is not given is taken from a plan, or is the default.
    pub(crate) fn load(
        &self,
        network: &LayerGraph,
        batch: usize,
        gpus: usize,
        plan: Option<&PlanFile>,
        default_device: Option<&str>,
    ) -> anyhow::Result<CostTables> {
        let from_plan = plan.and_then(|plan| plan.profile.as_ref());
        let profile = if let Some(path) = &self.profile {
            let table = ProfileTable::load(path)?;
            table.for_model(network).with_context(|| path.display().to_string())?
        } else {
            let device = match (&self.device, from_plan, default_device) {
                (Some(device), _, _) => device,
                (None, Some(ProfileOrigin { device, origin: Origin::Modelled, .. }), _) => {
                    if !DeviceModel::names().contains(&device.as_str()) {
                        bail!(
                            "the plan was made with the device model `{device}`, which is not built in: \
                             give its file with --device FILE.json"
                        );
                    }
                    device
                }
                (None, Some(ProfileOrigin { device, origin, .. }), _) => bail!(
                    "the plan was made from a profile ({device}, {origin}): give it again with --profile FILE"
                ),
                (None, None, Some(device)) => device,
                (None, None, None) => bail!("give --device NAME or --profile FILE"),
            };
            device_model(device)?.profile(network, &shard_sizes(batch, gpus))?
        };
        let link = match (&self.link, plan.and_then(|plan| plan.link.as_ref())) {
            (Some(link), _) | (None, Some(link)) => LinkModel::named(link)?,
            (None, None) => default_link(profile.device())?,
        };
        Ok(CostTables { profile, link })
    }

    /// The layer times of a background job on the same device.
    pub(crate) fn background(
        &self,
        job: &BackgroundSpec,
        network: &LayerGraph,
        foreground: &ProfileTable,
    ) -> anyhow::Result<ProfileTable> {
        if foreground.origin() == Origin::Modelled && self.profile.is_none() {
            let device = self.device.as_deref().unwrap_or(foreground.device());
            return Ok(device_model(device)?.profile(network, &shard_sizes(job.batch, job.batch))?);
        }
        if job.model != foreground.model() {
            bail!(
                "the profile is of `{}`, but the background is `{}`: use the same network, or a --device",
                foreground.model(),
                job.model
            );
        }
        Ok(foreground.clone())
    }
}

/// A device model by the name of a built-in one, or by its file.
pub(crate) fn device_model(device: &str) -> anyhow::Result<DeviceModel> {
    let is_file = std::path::Path::new(device).extension().is_some_and(|extension| extension == "json");
    let model = if is_file { DeviceModel::load(device)? } else { DeviceModel::named(device)? };
    Ok(model)
}

#[derive(Args)]
pub(crate) struct ModeArgs {
    /// How GPUs are used
    #[arg(long, value_enum, default_value = "burst")]
    pub(crate) mode: ModeName,
    /// The largest amplification of a burst plan: its GPU time over the iteration time on one GPU
    #[arg(long, default_value_t = 2.0, value_name = "LIMIT")]
    pub(crate) amplification: f64,
    /// How the planner adds up the time of a burst plan's iteration [default: waves]
    #[arg(long, value_enum, value_name = "MODEL")]
    pub(crate) time_model: Option<TimeModelName>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeModelName {
    /// One thing after another
    Additive,
    /// Branches of the network may run at the same time on different GPUs
    Waves,
    /// All-reduces overlap with the backward pass; not with --pareto, --deadline and --knee
    Overlap,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// Every layer on all GPUs
    Dp,
    /// Each layer on a GPU count of its own
    Burst,
}

impl ModeArgs {
    /// How burst plans are searched for.
    pub(crate) fn search(&self) -> SearchOptions {
        SearchOptions::default().with_time_model(match self.time_model {
            Some(TimeModelName::Additive) => TimeModel::Additive,
            None | Some(TimeModelName::Waves) => TimeModel::Waves,
            Some(TimeModelName::Overlap) => TimeModel::Overlap,
        })
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.mode {
            ModeName::Dp => Mode::DataParallel,
            ModeName::Burst => Mode::Burst { amplification: self.amplification },
        }
    }
}

/// A plan that was read from a file, or one that is made now.
pub(crate) fn plan_or_make(
    file: Option<PlanFile>,
    costs: &Costs<'_>,
    batch: usize,
    gpus: usize,
    mode: &ModeArgs,
) -> anyhow::Result<PlanFile> {
    if let Some(plan) = file {
        return Ok(plan);
    }
    let planned = PlanRequest::new(costs, batch, gpus, mode.mode()).with_search(mode.search()).plan()?;
    Ok(PlanFile::new(&planned.problem, &planned.plan).made_from(costs, batch, mode.mode()))
}

/// The number of GPUs and the global batch: those of the options, which must agree with a plan's.
pub(crate) fn size(
    gpus: Option<usize>,
    batch: Option<usize>,
    plan: Option<&PlanFile>,
) -> anyhow::Result<(usize, usize)> {
    let (planned_gpus, planned_batch) = (plan.map(|plan| plan.gpus), plan.and_then(|plan| plan.batch));
    let agree = |what, given: Option<usize>, planned: Option<usize>| match (given, planned) {
        (Some(given), Some(planned)) if given != planned => {
            bail!(
                "the plan is for {planned} {what}, not {given}: leave that option out, or make another plan"
            )
        }
        (given, planned) => given.or(planned).with_context(|| format!("the number of {what} is not given")),
    };
    Ok((agree("GPUs", gpus, planned_gpus)?, agree("samples a batch", batch, planned_batch)?))
}

/// A background job as `MODEL:BATCH`.
#[derive(Clone, Debug)]
pub(crate) struct BackgroundSpec {
    pub(crate) model: String,
    pub(crate) batch: usize,
}

impl std::str::FromStr for BackgroundSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected MODEL:BATCH with a batch of at least 1, such as vgg16:8, got `{text}`");
        let (model, batch) = text.rsplit_once(':').ok_or_else(expected)?;
        match batch.parse() {
            Ok(batch) if batch > 0 => Ok(Self { model: model.into(), batch }),
            _ => Err(expected()),
        }
    }
}

/// A count of at least 1.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("expected a whole number of at least 1".into()),
    }
}
