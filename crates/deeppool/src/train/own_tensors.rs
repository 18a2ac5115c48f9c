//! The tensors of a job that each of its ranks writes to a checkpoint.

use layer_graph::{Division, LayerGraph, NetworkSplits, Values};

use super::exchange;
use super::tensors::{self, Tensors, VELOCITY};
use crate::Error;
use crate::program::Placement;
use crate::runtime::{Backend, LoadedProgram, RankDevice, RankState};

/// Parts of a rank of a job by which its state is read. The communicator is that of the job's
/// ranks; a job on one rank needs none.
pub(super) type StateParts<'s, B> =
    (&'s RankState<B>, &'s mut RankDevice<B>, &'s LoadedProgram<B>, Option<&'s <B as Backend>::Communicator>);

/// Returns the tensors of the layers of which rank `number` of the job is the first one. Those of a
/// layer whose parts have different parameters are the sums of what its parts have, which is zero
/// outside of each part. All ranks of the job call it.
///
/// # Errors
/// If the device or the communicator fails.
pub(super) fn own_tensors<B: Backend>(
    network: &LayerGraph,
    placement: &Placement,
    number: usize,
    (state, device, loaded, communicator): StateParts<'_, B>,
) -> Result<Tensors, Error> {
    let splits = NetworkSplits::new(network);
    let is_cut = |id| {
        let Division { split, parts } = placement.division(id);
        parts > 1 && splits.values(id, split).parameter_gradient == Values::Ranges
    };
    let is_first = |id| placement.ranks(id).first() == Some(&number);
    let is_own = |id| is_first(id) && !is_cut(id);
    let mut own = tensors::read(network, loaded.program(), (state, device), is_own)?;
    for (id, layer) in network.layers().filter(|&(id, _)| is_cut(id)) {
        let has_part = placement.ranks(id)[..placement.division(id).parts].contains(&number);
        let is_held = |other| other == id && has_part;
        let mut held = tensors::read(network, loaded.program(), (state, device), is_held)?;
        let parameters = if network.parameter_owner(id) == id { layer.parameters() } else { Vec::new() };
        let velocities = parameters.iter().map(|tensor| (tensor, VELOCITY));
        let statistics = layer.statistics();
        for (tensor, suffix) in
            parameters.iter().chain(&statistics).map(|tensor| (tensor, "")).chain(velocities)
        {
            let name = format!("{}{suffix}", layer.tensor_name(tensor));
            let mut values = held.remove(&name).map(|(_, values)| values).unwrap_or_default();
            values.resize(tensor.elements(), 0.0);
            if let Some(communicator) = communicator {
                exchange::sum(device, communicator, &mut values)?;
            }
            if is_first(id) {
                own.insert(name, (tensor.dims.clone(), values));
            }
        }
    }
    Ok(own)
}
