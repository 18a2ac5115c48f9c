//! Sources of layer times: a device model or a measured profile.

use anyhow::bail;
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ModelAccuracy, Origin, ProfileTable};

/// Source of the layer times of a device.
#[derive(Debug, Clone)]
pub(crate) enum LayerTimes {
    /// A device model, which covers any network and batch.
    Model(DeviceModel),
    /// A profile of one network: times at some batches, interpolated between them.
    Table(Box<ProfileTable>),
}

impl LayerTimes {
    /// Returns the name of the GPU or processor that the times are of.
    pub(crate) fn device(&self) -> &str {
        match self {
            Self::Model(model) => model.name(),
            Self::Table(table) => table.device(),
        }
    }

    /// Returns whether the times were measured, modelled or imported.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Model(_) => Origin::Modelled,
            Self::Table(table) => table.origin(),
        }
    }

    /// Returns the error of the times relative to measured ones. `None` if it is unknown.
    pub(crate) fn accuracy(&self) -> Option<&ModelAccuracy> {
        match self {
            Self::Model(model) => Some(model.accuracy()),
            Self::Table(table) => table.accuracy(),
        }
    }

    /// Returns the layer times of a network at the given batches. A batch is the number of samples
    /// of one GPU.
    ///
    /// # Errors
    /// If the profile is of another network, is disturbed by other programs, or does not cover one
    /// of the batches.
    pub(crate) fn profile(&self, network: &LayerGraph, batches: &[usize]) -> anyhow::Result<ProfileTable> {
        let table = match self {
            Self::Model(model) => return Ok(model.profile(network, batches)?),
            Self::Table(table) => table.as_ref().clone().for_model(network)?,
        };
        table.check_undisturbed()?;
        let profiled = || table.layers().iter().map(|layer| layer.times.iter().map(|time| time.batch));
        let min = profiled().filter_map(Iterator::min).max().unwrap_or_default();
        let max = profiled().filter_map(Iterator::max).min().unwrap_or_default();
        let is_missing = |batch: &&usize| !(min..=max).contains(*batch);
        if let Some(batch) = batches.iter().find(is_missing) {
            let batches: Vec<_> = batches.iter().map(usize::to_string).collect();
            bail!(
                "the profile has times of {min} to {max} samples, but {batch} are needed: make one with \
                 --batches {}",
                batches.join(",")
            );
        }
        Ok(table)
    }

    /// Checks that the times cover a network at the given batches, in samples of one GPU. A device
    /// model covers all of them and is not evaluated.
    ///
    /// # Errors
    /// As [`profile`](Self::profile).
    pub(crate) fn check(&self, network: &LayerGraph, batches: &[usize]) -> anyhow::Result<()> {
        match self {
            Self::Model(_) => Ok(()),
            Self::Table(_) => self.profile(network, batches).map(drop),
        }
    }

    /// Returns a description with the device's name, such as `layer times of device model a100`.
    pub(crate) fn name(&self) -> String {
        let kind = match self {
            Self::Model(_) => "device model",
            Self::Table(_) => "a profile of",
        };
        format!("layer times of {kind} {}", self.device())
    }

    /// Returns the description with the origin and the error of the times, if that is known.
    pub(crate) fn about(&self) -> String {
        let accuracy = self.accuracy().map(|accuracy| format!(", {accuracy}")).unwrap_or_default();
        format!("{} ({}{accuracy})", self.name(), self.origin())
    }
}
