//! Options that choose the network, the device and the links.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use collectives::LinkModel;
use deeppool::costs::default_link;
use layer_graph::LayerGraph;

use super::inputs;
use crate::layer_times::LayerTimes;

/// Options that name the network.
#[derive(Debug, Clone, Args)]
pub(crate) struct NetworkOptions {
    /// Network of `deeppool models`
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// ONNX file of a network, instead of a built-in one
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(crate) onnx: Option<PathBuf>,
}

impl NetworkOptions {
    /// Returns the network that these options name, or `None` if they name none. Warnings about an
    /// ONNX file are printed on stderr.
    ///
    /// # Errors
    /// If there is no such built-in network, or if the file is invalid.
    pub(crate) fn named(&self) -> anyhow::Result<Option<LayerGraph>> {
        Ok(match (&self.onnx, &self.model) {
            (Some(path), _) => {
                let imported = inputs::onnx(path)?;
                if let Some(warning) = imported.warning() {
                    eprintln!("warning: {}: {warning}", path.display());
                }
                Some(imported.graph)
            }
            (None, Some(model)) => Some(inputs::model(model)?),
            (None, None) => None,
        })
    }

    /// Returns the network that these options name, or else the network of the measured layer
    /// times. `None` if neither exists.
    ///
    /// # Errors
    /// As [`named`](Self::named), and if the network of the measured layer times is not built in.
    pub(crate) fn load(&self, times: &LayerTimes) -> anyhow::Result<Option<LayerGraph>> {
        match (self.named()?, times) {
            (None, LayerTimes::Table(table)) => {
                let network = inputs::model(table.model());
                let network =
                    network.context("the network of --profile is not built in: give its file with --onnx")?;
                Ok(Some(network))
            }
            (asked, _) => Ok(asked),
        }
    }
}

/// Options that name the source of layer times.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeviceOptions {
    /// Built-in device model, such as a100, a100-80gb, h100, h200 or v100, or the FILE.json of one
    /// (see `deeppool fit`)
    #[arg(long, value_name = "NAME|FILE", default_value = "a100")]
    device: String,
    /// File of measured layer times of one network (see `deeppool profile`), instead of a device
    /// model
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    profile: Option<PathBuf>,
}

impl DeviceOptions {
    /// Returns the device model or the measured layer times that these options name.
    ///
    /// # Errors
    /// If there is no such built-in device model, or if the file is invalid.
    pub(crate) fn load(&self) -> anyhow::Result<LayerTimes> {
        Ok(match &self.profile {
            Some(path) => LayerTimes::Table(Box::new(inputs::profile(path)?)),
            None => LayerTimes::Model(inputs::device(&self.device)?),
        })
    }
}

/// Options that name the source of layer times, and the links.
#[derive(Debug, Clone, Args)]
pub(crate) struct MachineOptions {
    #[command(flatten)]
    device: DeviceOptions,
    /// Link model, such as dgx-a100, dgx-a100-pod or a100-100gbe, or the FILE.json of one
    /// [default: the host that goes with the device, or a pod of such hosts]
    #[arg(long, value_name = "NAME|FILE")]
    link: Option<String>,
}

impl MachineOptions {
    /// Returns whether the layer times are a profile, which is of one network.
    pub(crate) fn has_profile(&self) -> bool {
        self.device.profile.is_some()
    }

    /// Returns `gpus`, or the maximum number of ranks of the link model that `--link` names if that
    /// is smaller.
    ///
    /// # Errors
    /// If there is no such built-in link model, or if the file is invalid.
    pub(crate) fn clamp_gpus(&self, gpus: usize) -> anyhow::Result<usize> {
        let Some(link) = &self.link else { return Ok(gpus) };
        Ok(inputs::link(link)?.max_ranks().map_or(gpus, |most| gpus.min(most)))
    }

    /// Returns the layer times, and the link model for `gpus` GPUs: the named one, or the default
    /// of the device.
    ///
    /// # Errors
    /// If a name is unknown, if a file is invalid, or if the links connect fewer GPUs.
    pub(crate) fn load(&self, gpus: usize) -> anyhow::Result<(LayerTimes, LinkModel)> {
        let times = self.device.load()?;
        let link = match &self.link {
            Some(link) => inputs::link(link)?,
            None => default_link(times.device(), gpus).context("--link")?,
        };
        link.check_ranks(gpus)?;
        Ok((times, link))
    }
}
