//! Classes of ranks that run the same steps for the same numbers of samples. They are found before
//! lowering, from the placement: the ranks of each layer and the order in which the layers run.

use std::collections::{HashMap, HashSet};

use collectives::{Layout, Redistribution};
use layer_graph::LayerGraph;

use super::LowerOptions;
use crate::Error;
use crate::program::Placement;

/// Returns the classes of ranks, each in ascending order, sorted by their first ranks. The ranks of
/// a class
/// - run the same layers, with the same numbers of samples in every micro-batch;
/// - hold the same parameters, and, with gradient clipping, are the first holders of the same ones;
/// - send and receive in the same redistributions.
///
/// So the ranks of a class run the same steps, and under any costs these take the same times. If
/// one of them takes part in a collective, all of them do.
///
/// O(d x ranks), where d is the number of different pairs of rank lists that an edge or shared
/// parameters connect: layers with the same ranks are examined once.
///
/// # Errors
/// [`Error::Collectives`] if a layer's list of ranks is empty or has one twice.
pub(super) fn classes_of_ranks(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    options: &LowerOptions,
) -> Result<Vec<Vec<usize>>, Error> {
    let mut classes = Classes { class: vec![0; placement.world()] };
    // The rank lists of layers, and of holders of parameters.
    let (mut layers, mut holders, mut edges) = (HashSet::new(), HashSet::new(), HashSet::new());
    for &id in placement.order() {
        let ranks = placement.ranks(id);
        layers.insert(ranks);
        if network.own_parameter_count(id) > 0 {
            holders.insert(placement.parameter_ranks(network, id));
        }
        for producer in network.producers(id) {
            let from = placement.ranks(producer);
            // The input layer is loaded where it is needed.
            if producer != network.input() && from != ranks {
                edges.insert((from, ranks));
            }
        }
    }
    for ranks in &holders {
        classes.refine(ranks.iter().map(|&rank| (rank, 1)));
        if options.optimizer.clip_norm.is_some() {
            // A layer's gradient is counted on its first rank.
            classes.refine(ranks.first().map(|&rank| (rank, 1)).into_iter());
        }
    }
    // Micro-batches have one of two sizes.
    let cut = options.micro_batches.max(1);
    for samples in HashSet::from([batch / cut, batch.div_ceil(cut)]) {
        for ranks in &layers {
            let layout = Layout::even(samples, ranks)?;
            classes.refine(layout.shards().map(|(rank, samples)| (rank, 1 + samples.len())));
        }
        for (from, to) in &edges {
            let redistribution =
                Redistribution::new(&Layout::even(samples, from)?, &Layout::even(samples, to)?)?;
            let moves = || redistribution.moves().iter();
            classes.refine(moves().map(|m| (m.from_rank, 1)));
            classes.refine(moves().map(|m| (m.to_rank, 1)));
        }
    }
    Ok(classes.members())
}

struct Classes {
    /// The class of each rank.
    class: Vec<usize>,
}

impl Classes {
    /// Separates ranks with different values. `nonzero` are ranks with their values; all others
    /// have the value 0. O(ranks).
    fn refine(&mut self, nonzero: impl Iterator<Item = (usize, usize)>) {
        let mut values = vec![0; self.class.len()];
        for (rank, value) in nonzero {
            values[rank] = value;
        }
        let mut renamed = HashMap::new();
        for (class, value) in self.class.iter_mut().zip(values) {
            let next = renamed.len();
            *class = *renamed.entry((*class, value)).or_insert(next);
        }
    }

    fn members(self) -> Vec<Vec<usize>> {
        let count = self.class.iter().max().map_or(0, |&class| class + 1);
        let mut members = vec![Vec::new(); count];
        for (rank, class) in self.class.into_iter().enumerate() {
            members[class].push(rank);
        }
        members
    }
}
