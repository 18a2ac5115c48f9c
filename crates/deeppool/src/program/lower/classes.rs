//! Classes of ranks that run the same steps for the same numbers of samples. They are found before
//! lowering, from the placement: the ranks of each layer and the order in which the layers run.

use std::collections::{HashMap, HashSet};

use collectives::{Layout, Redistribution};
use layer_graph::{Division, GraphError, LayerGraph, LayerId, NetworkSplits, Values};

use super::LowerOptions;
use super::layout::{Layouts, Lowered, TensorLayout};
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
    // Edges of layers of which one is split.
    let mut split_edges = Vec::new();
    for &id in placement.order() {
        let ranks = placement.ranks(id);
        layers.insert((ranks, placement.division(id).parts));
        if network.own_parameter_count(id) > 0 {
            holders.insert(placement.parameter_ranks(network, id));
        }
        for producer in network.producers(id) {
            let from = placement.ranks(producer);
            if network.is_input(producer) {
                // It is loaded where it is needed.
            } else if [id, producer].iter().any(|&id| !placement.division(id).is_whole()) {
                split_edges.push((producer, id));
            } else if from != ranks {
                edges.insert((from, ranks));
            }
        }
    }
    let splits = placement.is_split().then(|| NetworkSplits::new(network));
    if let Some(splits) = &splits {
        classes.refine_by_parts(network, placement, splits)?;
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
        for &(ranks, parts) in &layers {
            let layout = Layout::grid(&[samples], &[ranks.len() / parts], ranks)?;
            classes.refine(layout.shards().map(|(rank, samples)| (rank, 1 + samples.len())));
        }
        for (from, to) in &edges {
            let redistribution =
                Redistribution::new(&Layout::even(samples, from)?, &Layout::even(samples, to)?)?;
            classes.refine_by_moves(&redistribution);
        }
        if let Some(splits) = &splits {
            let mut layouts = Layouts::default();
            for &edge in &split_edges {
                classes.refine_by_tensor(edge, (placement, splits), (samples, &mut layouts))?;
            }
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

    /// Separates ranks that send and receive in different redistributions.
    fn refine_by_moves(&mut self, redistribution: &Redistribution) {
        let moves = || redistribution.moves().iter();
        self.refine(moves().map(|m| (m.from_rank, 1)));
        self.refine(moves().map(|m| (m.to_rank, 1)));
    }

    /// Separates ranks whose parts of split layers have different sizes, and the first part of each
    /// layer, which may have other parameters and whose gradients may be counted.
    fn refine_by_parts(
        &mut self,
        network: &LayerGraph,
        placement: &Placement,
        splits: &NetworkSplits<'_>,
    ) -> Result<(), Error> {
        let mut known = HashSet::new();
        for &id in placement.order().iter().filter(|&&id| !placement.division(id).is_whole()) {
            let Division { parts, .. } = placement.division(id);
            let units: Result<Vec<usize>, GraphError> = (0..parts)
                .map(|index| Ok(splits.part(id, placement.division(id), index)?.units.len()))
                .collect();
            let units = units?;
            let ranks = placement.ranks(id);
            let is_counted = network.own_parameter_count(id) > 0;
            if known.insert((ranks, units.clone(), is_counted)) {
                let size = |index: usize| 2 * units[index % parts] + usize::from(index < parts && is_counted);
                self.refine(ranks.iter().enumerate().map(|(index, &rank)| (rank, 1 + size(index))));
                let is_first = |index: usize| index % parts == 0;
                self.refine(
                    ranks.iter().enumerate().map(|(index, &rank)| (rank, 1 + usize::from(is_first(index)))),
                );
            }
        }
        Ok(())
    }

    /// Separates ranks that send and receive in different redistributions of the output of a layer,
    /// which another one reads, or of its gradient. One of the two layers is split.
    fn refine_by_tensor(
        &mut self,
        (producer, consumer): (LayerId, LayerId),
        (placement, splits): (&Placement, &NetworkSplits<'_>),
        (samples, layouts): (usize, &mut Layouts),
    ) -> Result<(), Error> {
        let nowhere = Lowered::new(placement.world(), std::iter::empty());
        let mut side = |id: LayerId, values: Values| -> Result<TensorLayout, Error> {
            let ranks = (placement.ranks(id), placement.division(id).parts);
            Ok(TensorLayout::new(layouts.even(samples, ranks, &nowhere)?, values))
        };
        let [from, to] = [producer, consumer].map(|id| placement.values(Some(splits), id));
        // Addends may also have been summed in place.
        let mut moves = Vec::new();
        for values in [from.output, from.output.summed()] {
            moves.push((side(producer, values)?, side(consumer, to.input)?));
        }
        for values in [to.input_gradient, to.input_gradient.summed()] {
            moves.push((side(consumer, values)?, side(producer, from.output.summed())?));
        }
        for (from, to) in moves.iter().filter(|(from, to)| from != to) {
            let (redistribution, _) = layouts.redistribution(from, to, splits.view(producer))?;
            self.refine_by_moves(&redistribution);
        }
        Ok(())
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
