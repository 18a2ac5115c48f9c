//! Sources of layer times: a device model or a measured profile.

use anyhow::bail;
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ModelAccuracy, Origin, ProfileTable};

/// Layer times of a device.
#[derive(Debug, Clone)]
pub(crate) enum LayerTimes {
    /// A model, which covers any network.
    Model(DeviceModel),
    /// A profile of one network: times at some batches, interpolated between them.
    Table(ProfileTable),
}

impl LayerTimes {
    /// Returns the device's name.
    pub(crate) fn device(&self) -> &str {
        match self {
            Self::Model(model) => model.name(),
            Self::Table(table) => table.device(),
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Model(_) => Origin::Modelled,
            Self::Table(table) => table.origin(),
        }
    }

    /// Returns the error of the times relative to measured ones, if it is known.
    pub(crate) fn accuracy(&self) -> Option<&ModelAccuracy> {
        match self {
            Self::Model(model) => Some(model.accuracy()),
            Self::Table(table) => table.accuracy(),
        }
    }

    /// Those of a network at these batches.
    /// Returns the times of a network at the given batches.
    ///
    /// # Errors
    /// Returns an error if the profile is of another network or does not cover one of the batches.
    pub(crate) fn profile(&self, network: &LayerGraph, batches: &[usize]) -> anyhow::Result<ProfileTable> {
        let table = match self {
            Self::Model(model) => return Ok(model.profile(network, batches)?),
            Self::Table(table) => table.clone().for_model(network)?,
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

    /// Checks that the times cover a network at the given batches. A model covers all, so that
    /// nothing is computed for it.
    ///
    /// # Errors
    /// As [`profile`](Self::profile).
    pub(crate) fn check(&self, network: &LayerGraph, batches: &[usize]) -> anyhow::Result<()> {
        match self {
            Self::Model(_) => Ok(()),
            Self::Table(_) => self.profile(network, batches).map(drop),
        }
    }

    /// Returns a short description.
    pub(crate) fn name(&self) -> String {
        let kind = match self {
            Self::Model(_) => "device model",
            Self::Table(_) => "a profile of",
        };
        format!("layer times of {kind} {}", self.device())
    }

    /// Returns a description with the error of the times.
    pub(crate) fn about(&self) -> String {
        let accuracy = self.accuracy().map(|accuracy| format!(", {accuracy}")).unwrap_or_default();
        format!("{} ({}{accuracy})", self.name(), self.origin())
    }
}
