//! Lowering of partial backpropagation: the ranks of each backward step, and the gradients of
//! layers to which fewer samples contribute. A sample *contributes* to a layer if its gradient
//! reaches the layer. The backpropagated *parts* of the batch are those of
//! [`PartialBackpropagation`]. Without partial backpropagation all samples contribute to all
//! layers.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use layer_engine::{Role, Shard};
use layer_graph::{LayerGraph, LayerId, LayerKind};

use super::layout::TensorLayout;
use super::{DistributedValue, Lowering, PlacedBuffer};
use crate::Error;
use crate::program::builder::Bucket;
use crate::program::partial::{Contributions, PartialBackpropagation};
use crate::program::{Contents, Op};

/// State of partial backpropagation while one iteration is lowered.
pub(super) struct Partial {
    /// Number of parts of the batch that reach each layer, by layer id.
    reach: Vec<usize>,
    contributions: Contributions,
    /// The ranks with samples that contributed to the gradient of each layer's own parameters in
    /// the micro-batches so far, by layer id.
    contributors: Vec<BTreeSet<usize>>,
}

impl Partial {
    /// Creates the state for an iteration of the rotation, given by its index; `None` without
    /// partial backpropagation. `batch` is the number of samples of the global batch.
    ///
    /// # Errors
    /// [`Error::Setting`] if the roles do not fit the network.
    pub(super) fn new(
        network: &LayerGraph,
        batch: usize,
        partial: Option<&PartialBackpropagation>,
        iteration: usize,
    ) -> Result<Option<Self>, Error> {
        let of = |partial: &PartialBackpropagation| {
            Ok(Self {
                reach: partial.reach(network)?,
                contributions: Contributions::new(batch, partial, iteration),
                contributors: vec![BTreeSet::new(); network.len()],
            })
        };
        partial.map(of).transpose()
    }
}

impl Lowering<'_> {
    /// Returns the number of parts of the batch that contribute to a layer; 1 for all layers
    /// without partial backpropagation.
    pub(super) fn reach(&self, id: LayerId) -> usize {
        self.partial.as_ref().map_or(1, |partial| partial.reach[id.index()])
    }

    /// Returns the samples of a shard whose gradients reach a layer: ascending and not adjacent.
    fn contributing(&self, id: LayerId, shard: Shard) -> Vec<Range<usize>> {
        let samples = shard.first..shard.first + shard.samples;
        match &self.partial {
            None => vec![samples],
            Some(partial) => partial.contributions.within(&samples, partial.reach[id.index()]),
        }
    }

    /// Returns whether any sample of a shard contributes to a layer. Without partial
    /// backpropagation the result is true, also for an empty shard.
    pub(super) fn contributes(&self, id: LayerId, shard: Shard) -> bool {
        !self.contributing(id, shard).is_empty()
    }

    /// Returns the shards of a layer that satisfy a condition, each with the place (index among the
    /// lowered ranks) of its rank.
    pub(super) fn shards_where(&self, id: LayerId, holds: impl Fn(Shard) -> bool) -> Vec<(usize, Shard)> {
        self.layout[id.index()].shards(self.micro_batch.start).filter(|&(_, shard)| holds(shard)).collect()
    }

    /// Returns the ranks with samples of this micro-batch that contribute to the gradient of a
    /// layer's own parameters.
    pub(super) fn contributors(&self, id: LayerId) -> Vec<usize> {
        let holders = self.holders[id.index()].ranks.clone();
        if self.partial.is_none() {
            return holders;
        }
        let mut ranks = BTreeSet::new();
        for user in self.network.parameter_users(id) {
            let shards = self.layout[user.index()].layout.shards();
            let contributes = |samples: Range<usize>| {
                let shard = Shard { first: self.micro_batch.start + samples.start, samples: samples.len() };
                self.contributes(user, shard)
            };
            ranks.extend(shards.filter(|(_, samples)| contributes(samples.clone())).map(|(rank, _)| rank));
        }
        holders.into_iter().filter(|rank| ranks.contains(rank)).collect()
    }

    /// Adds the contributors of this micro-batch to those of the iteration.
    pub(super) fn record_contributors(&mut self, id: LayerId) {
        let ranks = self.contributors(id);
        if let Some(partial) = &mut self.partial {
            partial.contributors[id.index()].extend(ranks);
        }
    }

    /// Returns the ranks that contributed in any micro-batch so far. From now on their parameter
    /// gradients are the sums over all micro-batches.
    pub(super) fn all_contributors(&mut self, id: LayerId) -> Vec<usize> {
        let holders = self.holders[id.index()].ranks.clone();
        let Some(partial) = &self.partial else { return holders };
        let has_any = |rank: &usize| partial.contributors[id.index()].contains(rank);
        let ranks: Vec<usize> = holders.into_iter().filter(has_any).collect();
        for place in self.lowered.places(&ranks) {
            self.program.rank(place).use_total(id, Role::ParameterGradient);
        }
        ranks
    }

    /// Moves `source`, a term of the gradient of a layer's output, to the layout `to`, for the
    /// contributing samples only.
    ///
    /// # Errors
    /// [`Error::Collectives`] if the redistribution is invalid.
    pub(super) fn redistribute_gradient(
        &mut self,
        id: LayerId,
        source: &DistributedValue,
        to: &TensorLayout,
    ) -> Result<DistributedValue, Error> {
        if self.partial.is_none() {
            return self.redistribute(id, source, to, "gradient");
        }
        let first = self.micro_batch.start;
        let all = Shard { first, samples: self.micro_batch.len() };
        let samples: Vec<Range<usize>> =
            self.contributing(id, all).into_iter().map(|of| of.start - first..of.end - first).collect();
        let (whole, item_elements) = self.layouts.redistribution(&source.layout, to, self.view(id))?;
        let redistribution = whole.restricted_to(&samples);
        let layer = self.network.layer(id);
        let storage = Role::Output.storage(layer, self.precision);
        let mut sides: [Vec<PlacedBuffer>; 2] = [source.buffers.clone(), Vec::new()];
        let mut target = DistributedValue { layout: to.clone(), buffers: Vec::new() };
        for (side, layout) in [&source.layout, to].into_iter().enumerate() {
            for (place, shard) in layout.of.shards(first) {
                let contributes = self.contributes(id, shard);
                let elements = Role::Output.elements(layer, shard.samples);
                let program = self.program.rank(place);
                let takes_part = redistribution.ranks().contains(&program.rank());
                match side {
                    // A rank of both layouts with nothing to send, or to receive, takes part with
                    // an unused shard.
                    0 if takes_part && !contributes => {
                        sides[0].push((place, program.buffer(elements, storage, Contents::Moved(id))));
                    }
                    1 if takes_part => {
                        let buffer = program.buffer(elements, storage, Contents::Moved(id));
                        sides[1].push((place, buffer));
                        target.buffers.extend(contributes.then_some((place, buffer)));
                    }
                    _ => {}
                }
            }
        }
        if !redistribution.ranks().is_empty() {
            let [from, to] = &sides;
            self.move_items(id, (Arc::new(redistribution), item_elements), (from, to), "gradient")?;
        }
        Ok(target)
    }

    /// Adds steps that scale `part`, the gradient of a layer's output that `consumer` computed. The
    /// factor is the ratio of the numbers of parts of the batch that contribute to the consumer and
    /// to the layer. Samples that do not contribute to the layer get zero. `is_here` is whether
    /// `part` has not been moved between ranks.
    pub(super) fn scale_gradient(
        &mut self,
        id: LayerId,
        part: &DistributedValue,
        (consumer, is_here): (LayerId, bool),
        sync_batch_norm: bool,
    ) {
        if self.partial.is_none() {
            return;
        }
        let factor = self.reach(consumer) as f64 / self.reach(id) as f64;
        // Otherwise the gradient between samples would depend on which of them share a rank.
        let is_normalisation = matches!(self.network.layer(consumer).kind(), LayerKind::BatchNorm(_));
        let mixes_samples = is_normalisation && sync_batch_norm;
        let label = format!("scale gradient of {}", self.network.layer(id).name());
        let shards: Vec<(usize, Shard)> = self.shards_where(id, |shard| self.contributes(id, shard));
        for ((place, shard), &(_, buffer)) in shards.into_iter().zip(&part.buffers) {
            let contributing = self.contributing(id, shard);
            let is_whole = contributing.iter().map(Range::len).sum::<usize>() == shard.samples;
            // The same parts reach the consumer: samples that do not contribute here did not
            // contribute there.
            if factor.total_cmp(&1.0).is_eq() && (is_whole || is_here && !mixes_samples) {
                continue;
            }
            let mut factors = Vec::new();
            let mut end = shard.first;
            for range in contributing {
                factors.extend((range.start > end).then_some((range.start - end, 0.0)));
                factors.push((range.len(), factor));
                end = range.end;
            }
            let left = shard.first + shard.samples - end;
            factors.extend((left > 0).then_some((left, 0.0)));
            let sample_elements = self.network.layer(id).output_shape().elements();
            let op = Op::ScaleGradient { layer: id, sample_elements, factors };
            self.program.rank(place).step(op, label.clone(), Vec::new(), vec![buffer]);
        }
    }

    /// Adds an all-reduce of the sums of a synchronised normalisation's backward step over the
    /// contributing ranks of each part. Their means are over all samples: the sums of the other
    /// ranks are zero, and their samples are counted.
    pub(super) fn reduce_moments(&mut self, id: LayerId) {
        // With partial backpropagation no layer is split.
        if self.partial.is_none() {
            return self.reduce_operand(id, Role::GradientMoments, self.network.layer(id).name());
        }
        let first = self.micro_batch.start;
        let layout = self.layout(id);
        let contributing = layout.layout.shards().filter(|(_, samples)| {
            self.contributes(id, Shard { first: first + samples.start, samples: samples.len() })
        });
        let (ranks, samples): (Vec<usize>, Vec<usize>) =
            contributing.map(|(rank, samples)| (rank, samples.len())).unzip();
        let (layer, places) = (self.network.layer(id), self.lowered.places(&ranks));
        let mut bucket = Bucket::new((&ranks, 1), places.iter().copied());
        self.add_to_bucket(&mut bucket, id, Role::GradientMoments, layer.name());
        self.program.all_reduce(bucket);
        let (counted, all) = (samples.iter().sum::<usize>(), self.micro_batch.len());
        if counted == all {
            return;
        }
        // The number of values is the last of the moments.
        let sums = Role::GradientMoments.elements(layer, 0) - 1;
        let factors = vec![(sums, 1.0), (1, all as f64 / counted as f64)];
        let label = format!("count all samples of {}", layer.name());
        for place in places {
            let program = self.program.rank(place);
            let moments = program.operand(id, self.network, Role::GradientMoments, 0);
            let op = Op::ScaleGradient { layer: id, sample_elements: 1, factors: factors.clone() };
            program.step(op, label.clone(), Vec::new(), vec![moments]);
        }
    }

    /// Returns the given layers by the ranks that hold their parameters and are not among `ranks`.
    pub(super) fn by_receivers(
        &self,
        ranks: &[usize],
        layers: &[LayerId],
    ) -> Vec<(Vec<usize>, Vec<LayerId>)> {
        let mut by_others: Vec<(Vec<usize>, Vec<LayerId>)> = Vec::new();
        for &id in layers {
            let others = self.holders[id.index()].ranks.iter().filter(|rank| !ranks.contains(rank));
            let others: Vec<usize> = others.copied().collect();
            match by_others.iter_mut().find(|(known, _)| *known == others) {
                Some((_, layers)) => layers.push(id),
                None => by_others.push((others, vec![id])),
            }
        }
        by_others
    }

    /// Adds broadcasts of parameter gradients, which `ranks` have reduced, to other ranks.
    /// `receivers` are these ranks with the layers whose gradients they receive.
    pub(super) fn send_gradients(&mut self, ranks: &[usize], receivers: Vec<(Vec<usize>, Vec<LayerId>)>) {
        for (others, layers) in receivers.into_iter().filter(|(others, _)| !others.is_empty()) {
            let group: Vec<usize> = ranks[..1].iter().chain(&others).copied().collect();
            let mut bucket = Bucket::new((&group, 1), self.lowered.places(&group));
            for id in layers {
                let name = self.network.layer(id).name();
                self.add_to_bucket(&mut bucket, id, Role::ParameterGradient, name);
            }
            self.program.broadcast(bucket);
        }
    }
}
