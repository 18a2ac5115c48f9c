//! Lowering of the backward pass: gradients, their all-reduce, and the optimiser.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use collectives::Bucketing;
use layer_engine::{Pass, Role, Sgd, Shard, Signature, Storage};
use layer_graph::{LayerId, Values};

use super::layout::TensorLayout;
use super::{DistributedValue, Holders, LowerOptions, Lowering};
use crate::Error;
use crate::program::builder::Bucket;
use crate::program::{BufferId, Contents, ELEMENT_BYTES, Op, backward_passes};

impl Lowering<'_> {
    /// Adds the steps of the backward pass of a micro-batch. After the last micro-batch, it also
    /// adds the all-reduces of the summed gradients and the optimiser steps.
    ///
    /// # Errors
    /// [`Error::Collectives`] if a redistribution is invalid.
    pub(super) fn backward(&mut self, options: &LowerOptions) -> Result<(), Error> {
        let is_last = self.micro_batch.end == self.batch;
        let needs_gradient = self.network.needs_gradient();
        let bucket_bytes = if options.overlap_all_reduce { options.bucket_bytes } else { u64::MAX };
        let mut buckets = Bucketing::new(bucket_bytes);
        let mut with_parameters = Vec::new();
        let consumers = self.network.layers().map(|(id, _)| self.consumers(id).len());
        let mut missing: Vec<usize> = consumers.collect();
        for &id in self.placement.order().iter().rev() {
            for again in self.recomputation.before_backward(id, self.placement.order()) {
                // Contributions are per sample, on any rank, and the last layer of a segment has
                // the most.
                let shards = self.shards_where(again, |shard| self.contributes(id, shard));
                self.recompute(again, &shards);
            }
            if !needs_gradient[id.index()] {
                continue;
            }
            if self.is_loss(id) {
                self.gather_output_gradient(id, options)?;
            }
            let mut producers = self.network.producers(id);
            producers.retain(|producer| needs_gradient[producer.index()]);
            self.backward_passes(id, &producers, options);
            // A gradient moves as soon as its last part is computed: first all branches of a join,
            // and of these the one that runs first.
            producers.sort_by_key(|producer| Reverse(self.place_in_order[producer.index()]));
            producers.dedup();
            for producer in producers {
                self.add_part_of_gradient(producer, id);
                missing[producer.index()] -= 1;
                if missing[producer.index()] == 0 {
                    self.gather_output_gradient(producer, options)?;
                }
            }
            if self.network.own_parameter_count(id) > 0 {
                self.record_contributors(id);
                self.share_gradient(id);
                self.accumulate(id, Role::ParameterGradient);
                if !is_last {
                    continue;
                }
                let ranks = self.all_contributors(id);
                if ranks.is_empty() {
                    continue;
                }
                with_parameters.push(id);
                let bytes = self.largest_part(id, Role::ParameterGradient) as u64 * ELEMENT_BYTES;
                let groups = self.holders[id.index()].groups;
                if let Some(full) = buckets.add((ranks.clone(), groups), id, bytes) {
                    self.reduce_gradients(&full.group, &full.gradients);
                }
            }
        }
        if !is_last {
            return Ok(());
        }
        if !options.overlap_all_reduce {
            self.program.collectives_wait();
        }
        for bucket in buckets.finish() {
            self.reduce_gradients(&bucket.group, &bucket.gradients);
        }
        self.optimizer_steps(&with_parameters, options.optimizer);
        Ok(())
    }

    /// Adds the recomputation of a layer's forward pass on some of its ranks, given by place and
    /// shard, into other buffers than those of the forward pass, so that the two need not have the
    /// same place in the arena.
    fn recompute(&mut self, id: LayerId, shards: &[(usize, Shard)]) {
        let (network, layer) = (self.network, self.network.layer(id));
        let writes = Signature::of(layer, Pass::Recompute).map_or(Vec::new(), |signature| signature.writes);
        for &(place, _) in shards {
            for &role in &writes {
                self.program.rank(place).forget_operand(id, role);
            }
        }
        let op = |pass, layer, shard| Op::Forward { layer, pass, shard };
        self.passes_on(id, shards, Pass::Recompute, op);
        for &(place, shard) in shards {
            let program = self.program.rank(place);
            let output = program.operand(id, network, Role::Output, shard.samples);
            for (consumer, slot) in network.consumers(id) {
                program.set_operand(consumer, Role::Input(slot), output);
            }
        }
    }

    /// Adds the backward passes of a layer on each rank with contributing samples. `producers` are
    /// the inputs whose gradient is needed.
    fn backward_passes(&mut self, id: LayerId, producers: &[LayerId], options: &LowerOptions) {
        let op = |pass, layer, shard| Op::Backward { layer, pass, shard };
        let with_input_gradient = |lowering: &Self, shard: Shard| {
            producers.iter().any(|&producer| lowering.contributes(producer, shard))
        };
        let shards = self.shards_where(id, |shard| self.contributes(id, shard));
        let (with, without): (Vec<_>, Vec<_>) =
            shards.into_iter().partition(|&(_, shard)| with_input_gradient(self, shard));
        for &pass in backward_passes(self.network, id, false) {
            self.passes_on(id, &without, pass, op);
        }
        for &pass in backward_passes(self.network, id, true) {
            self.passes_on(id, &with, pass, op);
            if pass == Pass::BackwardInPlace {
                for &(place, shard) in &with {
                    let program = self.program.rank(place);
                    let gradient = program.operand(id, self.network, Role::Input(0), shard.samples);
                    program.set_operand(id, Role::InputGradient(0), gradient);
                }
            }
            // Without the gradient of the input nothing depends on the sums of other ranks.
            if options.sync_batch_norm && pass == Pass::BackwardMoments && !with.is_empty() {
                self.reduce_moments(id);
            }
        }
    }

    /// Records a consumer's part of the gradient of a layer's output. If the consumer reads the
    /// output more than once, its parts are summed at once, so that later steps of its ranks do not
    /// delay the gradient.
    fn add_part_of_gradient(&mut self, id: LayerId, consumer: LayerId) {
        let inputs = self.network.producers(consumer);
        let slots = (0..inputs.len()).filter(|&slot| inputs[slot] == id);
        let shards = self.shards_where(consumer, |shard| self.contributes(id, shard));
        let layout = TensorLayout::new(self.layout(consumer), self.values(consumer).input_gradient);
        let part = |slot| {
            let operand = |&(place, shard): &(usize, Shard)| {
                let program = self.program.rank(place);
                (place, program.operand(consumer, self.network, Role::InputGradient(slot), shard.samples))
            };
            DistributedValue { layout: layout.clone(), buffers: shards.iter().map(operand).collect() }
        };
        let parts = slots.map(part).collect();
        let part = self.sum(id, parts);
        self.gradients[id.index()].push((consumer, part));
    }

    /// Moves the gradient of a layer's output to its ranks. The parts of consumers with the same
    /// layout and the same weight are summed first, so that each layout sends one part.
    fn gather_output_gradient(&mut self, id: LayerId, options: &LowerOptions) -> Result<(), Error> {
        // A layer needs the sum of addends.
        let own = TensorLayout::new(self.layout(id), self.values(id).output.summed());
        if self.is_loss(id) {
            let scale = Contents::Constant(self.network.layer(id).loss_weight() / self.batch as f64);
            for (place, shard) in own.of.shards(self.micro_batch.start) {
                let program = self.program.rank(place);
                let constant = program.buffer(shard.samples, Storage::Scalar, scale);
                program.set_operand(id, Role::OutputGradient, constant);
            }
            return Ok(());
        }
        let mut groups: Vec<(LayerId, Vec<DistributedValue>)> = Vec::new();
        for (consumer, part) in std::mem::take(&mut self.gradients[id.index()]) {
            let goes_with = |(other, parts): &&mut (LayerId, Vec<DistributedValue>)| {
                parts[0].layout == part.layout && self.reach(*other) == self.reach(consumer)
            };
            match groups.iter_mut().find(goes_with) {
                Some((_, parts)) => parts.push(part),
                None => groups.push((consumer, vec![part])),
            }
        }
        let mut parts = Vec::new();
        for (consumer, group) in groups {
            let sum = self.sum(id, group);
            let is_here = sum.layout == own;
            let moved = if is_here { sum } else { self.redistribute_gradient(id, &sum, &own)? };
            self.scale_gradient(id, &moved, (consumer, is_here), options.sync_batch_norm);
            parts.push(moved);
        }
        let gradient = self.sum(id, parts);
        for (place, buffer) in gradient.buffers {
            self.program.rank(place).set_operand(id, Role::OutputGradient, buffer);
        }
        Ok(())
    }

    /// Returns the sum of parts of a layer's gradient in the same layout.
    fn sum(&mut self, id: LayerId, mut parts: Vec<DistributedValue>) -> DistributedValue {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let layer = self.network.layer(id);
        let storage = Role::OutputGradient.storage(layer, self.precision);
        let label = format!("sum gradients of {}", layer.name());
        let layout = parts[0].layout.clone();
        let held: HashMap<usize, usize> = layout.elements(self.view(id)).collect();
        // All parts have buffers on the same ranks: those with contributing samples.
        let places = parts[0].buffers.iter().map(|&(place, _)| place).enumerate();
        let buffers = places
            .map(|(position, place)| {
                let program = self.program.rank(place);
                let sum = program.buffer(held[&place], storage, Contents::Operand(id, Role::OutputGradient));
                let terms = parts.iter().map(|part| part.buffers[position].1).collect();
                program.step(Op::SumGradients, label.clone(), terms, vec![sum]);
                (place, sum)
            })
            .collect();
        DistributedValue { layout, buffers }
    }

    /// Sums the gradients of shared parameters over the layers that use them, on each of their
    /// ranks. The owner is the first of these layers in the network, so the backward steps of the
    /// others are already lowered.
    fn share_gradient(&mut self, id: LayerId) {
        let users = self.network.parameter_users(id);
        if users.len() < 2 {
            return;
        }
        let (network, role) = (self.network, Role::ParameterGradient);
        let runs: Vec<HashSet<usize>> = users
            .iter()
            .map(|&user| {
                let shards = self.shards_where(user, |shard| self.contributes(user, shard));
                shards.into_iter().map(|(place, _)| place).collect()
            })
            .collect();
        for place in self.lowered.places(&self.contributors(id)) {
            let here = users.iter().zip(&runs).filter(|(_, on)| on.contains(&place)).map(|(user, _)| user);
            let program = self.program.rank(place);
            let terms: Vec<BufferId> =
                here.map(|&user| program.operand(user, self.network, role, 0)).collect();
            let gradient = if let [gradient] = terms[..] {
                gradient
            } else {
                let parameters = program.layer(network, id).parameter_count();
                let sum = program.buffer(parameters, Storage::Scalar, Contents::Operand(id, role));
                let label = format!("sum parameter gradients of {}", network.layer(id).name());
                program.step(Op::SumGradients, label, terms, vec![sum]);
                sum
            };
            program.set_operand(id, role, gradient);
        }
    }

    /// Sums the parameter gradients of layers over their ranks, or over the ranks of each part, in
    /// one collective. `ranks` are those of each group, one group after another. Ranks that hold
    /// the parameters, and are not among these, receive the sums by broadcasts. Layers of one
    /// broadcast are consecutive in the sum.
    fn reduce_gradients(&mut self, (ranks, groups): &(Vec<usize>, usize), layers: &[LayerId]) {
        let receivers = self.by_receivers(ranks, layers);
        let mut bucket = Bucket::new((ranks, *groups), self.lowered.places(ranks));
        for &id in receivers.iter().flat_map(|(_, layers)| layers) {
            self.add_to_bucket(&mut bucket, id, Role::ParameterGradient, self.network.layer(id).name());
        }
        self.program.all_reduce(bucket);
        self.send_gradients(ranks, receivers);
    }

    fn optimizer_steps(&mut self, layers: &[LayerId], rule: Sgd) {
        let norms = rule.clip_norm.map(|_| self.squared_norm(layers));
        for &id in layers {
            let layer = self.network.layer(id);
            let label = format!("update {}", layer.name());
            for &place in &self.holders[id.index()].places {
                let program = self.program.rank(place);
                let Some(writes) = program.optimized(id).map(<[_]>::to_vec) else { continue };
                let mut reads = vec![program.operand(id, self.network, Role::ParameterGradient, 0)];
                reads.extend(norms.as_ref().and_then(|norms| norms.get(&place)));
                let op = Op::OptimizerStep { layer: id, rule };
                program.step(op, label.clone(), reads, writes);
            }
        }
    }

    /// Computes the squared norm of all gradients on every rank that has any, by place. Each layer,
    /// or each of its parts, is counted on its first rank.
    fn squared_norm(&mut self, layers: &[LayerId]) -> HashMap<usize, BufferId> {
        let mut ranks: Vec<usize> =
            layers.iter().flat_map(|id| &self.holders[id.index()].ranks).copied().collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut bucket = Bucket::new((&ranks, 1), self.lowered.places(&ranks));
        bucket.labels.push("squared gradient norm".into());
        bucket.elements = 1;
        let mut by_place = HashMap::new();
        let is_copied = |id: &LayerId| self.values(*id).parameter_gradient == Values::Copies;
        let copied: HashSet<LayerId> = layers.iter().copied().filter(is_copied).collect();
        for (place, buffers) in &mut bucket.buffers {
            let program = self.program.rank(*place);
            let rank = program.rank();
            let own = layers.iter().filter(|id| {
                let Holders { ranks, groups, .. } = &self.holders[id.index()];
                let counted = if copied.contains(id) { 1 } else { *groups };
                ranks.iter().step_by(ranks.len() / groups).take(counted).any(|first| *first == rank)
            });
            let gradients: Vec<BufferId> =
                own.map(|&id| program.operand(id, self.network, Role::ParameterGradient, 0)).collect();
            let norm = program.buffer(1, Storage::Scalar, Contents::SquaredNorm);
            program.step(Op::SquaredNorm, "squared gradient norm".into(), gradients, vec![norm]);
            buffers.push(norm);
            by_place.insert(*place, norm);
        }
        self.program.all_reduce(bucket);
        by_place
    }
}
