//! Which network, device and links an experiment is about.

use std::path::PathBuf;

use clap::Args;
use collectives::LinkModel;
use deeppool::costs::default_link;
use layer_graph::{LayerGraph, onnx, zoo};
use layer_profile::DeviceModel;

/// A network.
#[derive(Debug, Clone, Args)]
pub(crate) struct NetworkOptions {
    /// A network of `deeppool models`
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A network from an ONNX file, instead of a built-in one
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(crate) onnx: Option<PathBuf>,
}

impl NetworkOptions {
    /// The network that is asked for, if any.
    pub(crate) fn load(&self) -> anyhow::Result<Option<LayerGraph>> {
        Ok(match (&self.onnx, &self.model) {
            (Some(path), _) => Some(onnx::import(path)?.graph),
            (None, Some(model)) => Some(zoo::model(model)?),
            (None, None) => None,
        })
    }
}

/// A device model, and how devices are linked.
#[derive(Debug, Clone, Args)]
pub(crate) struct MachineOptions {
    /// A built-in device model, such as a100, a100-80gb, h100, h200 or v100; or the FILE.json of one (see `deeppool fit`)
    #[arg(long, value_name = "NAME|FILE", default_value = "a100")]
    device: String,
    /// How the GPUs are linked: the name of a link model, such as dgx-a100, dgx-a100-pod or a100-100gbe, or its FILE.json
    /// [default: the host that goes with the device, or a pod of them]
    #[arg(long, value_name = "NAME|FILE")]
    link: Option<String>,
}

impl MachineOptions {
    /// So many GPUs, or as many as the links connect that are asked for.
    pub(crate) fn at_most(&self, gpus: usize) -> anyhow::Result<usize> {
        let Some(link) = &self.link else { return Ok(gpus) };
        Ok(LinkModel::named_or_loaded(link)?.most_ranks().map_or(gpus, |most| gpus.min(most)))
    }

    /// The device and the links of so many.
    pub(crate) fn load(&self, gpus: usize) -> anyhow::Result<(DeviceModel, LinkModel)> {
        let device = DeviceModel::named_or_loaded(&self.device)?;
        let link = match &self.link {
            Some(link) => LinkModel::named_or_loaded(link)?,
            None => default_link(device.name(), gpus)?,
        };
        link.check_ranks(gpus)?;
        Ok((device, link))
    }
}
