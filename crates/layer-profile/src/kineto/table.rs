//! Profiles from the times of traces.

use std::time::Duration;

use layer_graph::{LayerGraph, LayerId};

use super::TraceTimes;
use crate::{
    BatchTime, DeviceModel, ImportedProfile, LayerProfile, LayerTime, ModelAccuracy, NetworkTime, Origin,
    ProfileError, ProfileTable,
};

impl TraceTimes {
    /// Creates a profile of a network from the times of its traces, each with its batch size in
    /// samples, in any order. `device` is the name of the device. `model` supplies the times of
    /// layers without operators and, if no trace has it, that of the optimiser's step.
    ///
    /// # Errors
    /// - [`ProfileError::UntracedLayer`] and [`ProfileError::UntracedUpdate`] if such times are
    ///   missing and there is no model.
    /// - [`ProfileError::Invalid`] if there is no trace, two of them have the same batch size, or
    ///   one is of another network.
    pub fn profile(
        traces: &[(usize, Self)],
        network: &LayerGraph,
        device: &str,
        model: Option<&DeviceModel>,
    ) -> Result<ImportedProfile, ProfileError> {
        let mut sorted: Vec<&(usize, Self)> = traces.iter().collect();
        sorted.sort_by_key(|(batch, _)| *batch);
        let layers = network.computing_layers();
        let layers: Vec<LayerId> = layers.map(|(id, _)| id).collect();
        if sorted.iter().any(|(_, times)| times.layers.len() != layers.len()) {
            let problem =
                format!("expected the times of the {} layers of `{}`", layers.len(), network.name());
            return Err(crate::table::invalid("traces", problem));
        }
        let update = sorted.iter().find_map(|(_, times)| times.update);
        let modelled_update = |id: LayerId| {
            model.filter(|_| update.is_none()).and_then(|model| crate::published::update(network, id, model))
        };
        if update.is_none() && model.is_none() {
            return Err(ProfileError::UntracedUpdate);
        }
        let (mut rows, mut modelled, mut modelled_passes) = (Vec::new(), Vec::new(), Duration::ZERO);
        let mut sums = vec![LayerTime::default(); sorted.len()];
        for (position, &id) in layers.iter().enumerate() {
            let layer = network.layer(id);
            let mut times = Vec::with_capacity(sorted.len());
            for ((batch, trace), sum) in sorted.iter().zip(&mut sums) {
                let [forward, backward] = match (trace.layers[position], model) {
                    (Some(passes), _) => passes,
                    (None, Some(model)) => {
                        let LayerTime { forward, backward, .. } = model.layer_time(layer, *batch);
                        modelled_passes += forward + backward;
                        [forward, backward]
                    }
                    (None, None) => {
                        return Err(ProfileError::UntracedLayer {
                            layer: layer.name().into(),
                            kind: layer.kind().label(),
                        });
                    }
                };
                *sum = *sum + LayerTime { forward, backward, update: Duration::ZERO };
                times.push(BatchTime { batch: *batch, forward, backward, spread: None });
            }
            if sorted.iter().any(|(_, trace)| trace.layers[position].is_none()) {
                modelled.push(layer.name().to_owned());
            }
            rows.push(LayerProfile::new(network, id, modelled_update(id), times));
        }
        let modelled_updates: Duration = rows.iter().filter_map(|row| row.update).sum();
        let update = update.unwrap_or(modelled_updates);
        let all: Duration = sums.iter().map(|sum| sum.forward + sum.backward).sum();
        let whole = sorted.iter().zip(sums).map(|((batch, trace), passes)| {
            let update = trace.update.unwrap_or(update);
            NetworkTime { batch: *batch, time: LayerTime { update, ..passes }, spread: None }
        });
        let table = ProfileTable::new(network.name(), device, Origin::Imported, rows, whole.collect())?;
        let modelled_share = modelled_passes.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
        let accuracy = model.filter(|_| !modelled.is_empty() || !modelled_updates.is_zero());
        let table = match accuracy {
            Some(model) => table.with_accuracy(ModelAccuracy {
                basis: format!("for the times that are not in the trace, {}", model.accuracy().basis),
                ..model.accuracy().clone()
            }),
            None => table,
        };
        Ok(ImportedProfile { table, modelled, modelled_backward: Vec::new(), modelled_share })
    }
}
