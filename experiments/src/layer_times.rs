//! Where layer times are from: a model of a device, or the table of a profile.

use anyhow::bail;
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ModelAccuracy, Origin, ProfileTable};

/// How long layers take on a device.
#[derive(Debug, Clone)]
pub(crate) enum LayerTimes {
    /// Of any network.
    Model(DeviceModel),
    /// Of one network, at some batches and between them.
    Table(ProfileTable),
}

impl LayerTimes {
    /// The device's name.
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

    /// How far they are from measured ones, where that is known.
    pub(crate) fn accuracy(&self) -> Option<&ModelAccuracy> {
        match self {
            Self::Model(model) => Some(model.accuracy()),
            Self::Table(table) => table.accuracy(),
        }
    }

    /// Those of a network at these batches.
    ///
    /// # Errors
    /// Where they are a table of another network, or without one of these batches.
    pub(crate) fn profile(&self, network: &LayerGraph, batches: &[usize]) -> anyhow::Result<ProfileTable> {
        let table = match self {
            Self::Model(model) => return Ok(model.profile(network, batches)?),
            Self::Table(table) => table.clone().for_model(network)?,
        };
        table.check_undisturbed()?;
        let profiled = || table.layers().iter().map(|layer| layer.times.iter().map(|time| time.batch));
        let least = profiled().filter_map(Iterator::min).max().unwrap_or_default();
        let most = profiled().filter_map(Iterator::max).min().unwrap_or_default();
        let is_missing = |batch: &&usize| !(least..=most).contains(*batch);
        if let Some(batch) = batches.iter().find(is_missing) {
            let batches: Vec<_> = batches.iter().map(usize::to_string).collect();
            bail!(
                "the profile has times of {least} to {most} samples, and {batch} are asked for: make one with --batches {}",
                batches.join(",")
            );
        }
        Ok(table)
    }

    /// Checks that a table has those of a network at these batches. A model has those of all, and nothing is computed.
    ///
    /// # Errors
    /// As [`profile`](Self::profile).
    pub(crate) fn check(&self, network: &LayerGraph, batches: &[usize]) -> anyhow::Result<()> {
        match self {
            Self::Model(_) => Ok(()),
            Self::Table(_) => self.profile(network, batches).map(drop),
        }
    }

    /// What they are, in few words.
    pub(crate) fn name(&self) -> String {
        let kind = match self {
            Self::Model(_) => "device model",
            Self::Table(_) => "a profile of",
        };
        format!("layer times of {kind} {}", self.device())
    }

    /// What they are, and how far off they are known to be.
    pub(crate) fn about(&self) -> String {
        let accuracy = self.accuracy().map(|accuracy| format!(", {accuracy}")).unwrap_or_default();
        format!("{} ({}{accuracy})", self.name(), self.origin())
    }
}
