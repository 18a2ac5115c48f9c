//! Layer and link times, by name, file or document. A document is a JSON value of a versioned
//! format such as `deeppool/profile/v1`.

use deeppool::collectives::LinkModel;
use deeppool::costs::{Costs, default_link, shard_sizes};
use deeppool::layer_graph::LayerGraph;
use deeppool::layer_profile::{DeviceModel, Gpu, ProfileTable};
use deeppool::simulate::BackgroundCosts;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, exception};
use crate::inputs;

/// Sources of layer and link times, as the class `Costs` of the package writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostSource {
    /// Name or file of a device model.
    device: Option<String>,
    /// Document of the format `deeppool/profile/v1`, in place of a device model.
    profile: Option<Value>,
    /// Name or file of a link model. The default depends on the device and the number of GPUs.
    link: Option<String>,
}

/// A background job on each GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Background {
    /// Document of the format `deeppool/graph/v1`.
    network: Value,
    /// Number of samples of an iteration.
    batch: usize,
    /// Name or file of a device model. Without it and `profile`, the foreground's source is used.
    device: Option<String>,
    /// Document of the format `deeppool/profile/v1`, in place of a device model.
    profile: Option<Value>,
}

/// Layer times of a network, and a link model.
pub(crate) struct Tables {
    /// Layer times by batch size.
    pub(crate) profile: ProfileTable,
    /// Link model of the GPUs.
    pub(crate) link: LinkModel,
}

impl CostSource {
    /// Loads layer and link times for a global batch of `batch` samples on up to `gpus` GPUs.
    ///
    /// # Errors
    /// If no source of layer times is given, a name is unknown, a file or document is invalid, or
    /// the links are for fewer GPUs.
    pub(crate) fn tables(&self, network: &LayerGraph, batch: usize, gpus: usize) -> Result<Tables, Error> {
        let profile = profile(self.device.as_deref(), self.profile.as_ref(), network, batch, gpus)?;
        let link = match &self.link {
            Some(link) => inputs::link(link)?,
            None => default_link(profile.device(), gpus)?,
        };
        link.check_ranks(gpus)?;
        Ok(Tables { profile, link })
    }
}

impl Background {
    /// Computes the job's kernel times for the simulator. `source` is that of the foreground, which
    /// is used if the job has none.
    ///
    /// # Errors
    /// If the network or the source of layer times is invalid, or times are missing.
    pub(crate) fn costs(&self, source: &CostSource, link: &LinkModel) -> Result<BackgroundCosts, Error> {
        let network = LayerGraph::from_json(&self.network.to_string())?;
        let (device, given) = match (&self.device, &self.profile) {
            (None, None) => (source.device.as_deref(), source.profile.as_ref()),
            (device, profile) => (device.as_deref(), profile.as_ref()),
        };
        let profile = profile(device, given, &network, self.batch, self.batch)?;
        Ok(BackgroundCosts::new(&Costs::new(&network, &profile, link), self.batch)?)
    }

    /// Returns the number of samples of an iteration.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }
}

fn profile(
    device: Option<&str>,
    profile: Option<&Value>,
    network: &LayerGraph,
    batch: usize,
    gpus: usize,
) -> Result<ProfileTable, Error> {
    match (device, profile) {
        (_, Some(document)) => Ok(ProfileTable::from_json(&document.to_string())?.validated_for(network)?),
        (Some(device), None) => Ok(inputs::device(device)?.profile(network, &shard_sizes(batch, gpus))?),
        (None, None) => Err(deeppool::Error::Setting {
            setting: "source of layer times",
            expected: "a device or a profile",
            got: "neither".into(),
        }
        .into()),
    }
}

/// Returns the built-in device models as a JSON list: name, accuracy, and the figures of the data
/// sheet (memory in bytes, FLOP/s, bytes/s), which are null if the device has none.
#[pyfunction]
pub(crate) fn device_models() -> PyResult<String> {
    let description = |name: &'static str| {
        let model = DeviceModel::named(name)?;
        let gpu = Gpu::named(name).ok();
        let sheet = gpu.map(|gpu| gpu.sheet);
        let peak_flops_per_s = gpu.and_then(|gpu| gpu.sheet.peak_flops_per_s(gpu.format));
        Ok(json!({
            "name": name, "accuracy": model.accuracy().to_string(),
            "memory_bytes": sheet.map(|sheet| sheet.memory_bytes),
            "peak_flops_per_s": peak_flops_per_s,
            "bandwidth_bytes_per_s": sheet.map(|sheet| sheet.bandwidth_bytes_per_s),
        }))
    };
    let models: Result<Vec<Value>, Error> = DeviceModel::names().into_iter().map(description).collect();
    Ok(Value::from(models.map_err(exception)?).to_string())
}

/// Returns the names of the built-in link models.
#[pyfunction]
pub(crate) fn link_models() -> Vec<String> {
    LinkModel::names()
}

/// Returns the modelled layer times of a network with each of the batch sizes, as a document of the
/// format `deeppool/profile/v1`.
///
/// Arguments: `network` is a document of the format `deeppool/graph/v1`; `device` is the name or
/// the file of a device model.
///
/// Raises `InputError` if the network is invalid, or the device is unknown or its file invalid.
#[pyfunction]
pub(crate) fn modelled_profile(
    py: Python<'_>,
    network: &str,
    device: &str,
    batches: Vec<usize>,
) -> PyResult<String> {
    py.detach(move || {
        let network = LayerGraph::from_json(network)?;
        Ok(inputs::device(device)?.profile(&network, &batches)?.to_json())
    })
    .map_err(|error: Error| exception(error))
}
