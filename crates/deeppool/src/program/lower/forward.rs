//! Lowering of the forward pass: the layers on their ranks, and the movement of their inputs.

use std::ops::Range;

use layer_engine::{Pass, Role, Storage};
use layer_graph::{LayerId, Split};

use super::layout::{TensorLayout, by_part};
use super::{DistributedValue, Lowering};
use crate::Error;
use crate::program::builder::Operands;
use crate::program::{BatchPart, CollectiveOp, Contents, Op, forward_passes};

impl Lowering<'_> {
    /// Adds the forward steps of a layer for training: its inputs are moved to its ranks, its
    /// passes run, and, if several layers read its output, that is moved to the ranks of all of
    /// them. `sync_batch_norm` is whether batch normalisation uses the statistics of the whole
    /// micro-batch instead of those of each shard.
    ///
    /// # Errors
    /// [`Error::Collectives`] if a redistribution is invalid.
    pub(super) fn forward(&mut self, id: LayerId, sync_batch_norm: bool) -> Result<(), Error> {
        self.place_inputs(id)?;
        for &pass in forward_passes(self.network, id) {
            self.passes(id, pass, |pass, layer, shard| Op::Forward { layer, pass, shard });
            if sync_batch_norm && pass == Pass::ForwardMoments {
                self.reduce_operand(id, Role::Moments, self.network.layer(id).name());
            }
        }
        self.record_output(id);
        self.send_to_branches(id)
    }

    /// Adds the forward steps of a layer for evaluation, without dropout and with running
    /// statistics.
    ///
    /// # Errors
    /// [`Error::Collectives`] if a redistribution is invalid.
    pub(super) fn infer(&mut self, id: LayerId) -> Result<(), Error> {
        self.place_inputs(id)?;
        self.passes(id, Pass::Infer, |pass, layer, shard| Op::Forward { layer, pass, shard });
        self.record_output(id);
        self.send_to_branches(id)
    }

    /// Sends the output of a layer with several consumers to all of them at once, first to the one
    /// that runs first. A rank performs its transfers in one order, so a later branch would
    /// otherwise wait for the transfers of an earlier one.
    fn send_to_branches(&mut self, id: LayerId) -> Result<(), Error> {
        let consumers = self.consumers(id);
        if consumers.len() > 1 {
            for consumer in consumers {
                self.output_in(id, (consumer, &self.input_layout(consumer)))?;
            }
        }
        Ok(())
    }

    /// Returns the layers that read a layer's output, each once, in the order in which layers run.
    pub(super) fn consumers(&self, id: LayerId) -> Vec<LayerId> {
        let consumers = self.network.consumers(id).into_iter();
        let mut consumers: Vec<LayerId> = consumers.map(|(consumer, _)| consumer).collect();
        consumers.sort_by_key(|consumer| self.place_in_order[consumer.index()]);
        consumers.dedup();
        consumers
    }

    /// Moves a layer's inputs (and labels) to its ranks.
    fn place_inputs(&mut self, id: LayerId) -> Result<(), Error> {
        let layout = self.input_layout(id);
        let producers = self.network.producers(id);
        let mut in_order = producers.clone();
        in_order.sort_by_key(|producer| self.place_in_order[producer.index()]);
        for producer in in_order {
            self.output_in(producer, (id, &layout))?;
        }
        for (slot, producer) in producers.into_iter().enumerate() {
            for (place, buffer) in self.output_in(producer, (id, &layout))?.buffers {
                self.program.rank(place).set_operand(id, Role::Input(slot), buffer);
            }
        }
        if self.is_loss(id) {
            let of_loss = self.network.loss_labels(id);
            for (place, shard) in layout.of.shards(self.micro_batch.start) {
                let elements = self.loaded_elements(id, place, of_loss.len());
                let elements = of_loss.start + elements.start..of_loss.start + elements.end;
                let program = self.program.rank(place);
                let labels = program.operand(id, self.network, Role::Labels, shard.samples);
                let load = Op::LoadBatch { part: BatchPart::Labels, shard, elements };
                program.step(load, "load labels".into(), Vec::new(), vec![labels]);
            }
        }
        Ok(())
    }

    /// Returns a layer's output in the layout in which a consumer reads it: the existing value,
    /// loaded (for an input layer), or redistributed.
    fn output_in(
        &mut self,
        producer: LayerId,
        (consumer, layout): (LayerId, &TensorLayout),
    ) -> Result<DistributedValue, Error> {
        let known = self.outputs[producer.index()].iter().find(|value| value.layout == *layout);
        if let Some(value) = known {
            return Ok(value.clone());
        }
        if self.network.is_input(producer) {
            let value = self.load_features((consumer, layout), producer);
            self.outputs[producer.index()].push(value.clone());
            return Ok(value);
        }
        let source = self.outputs[producer.index()][0].clone();
        let value = self.redistribute(producer, &source, layout, "activations")?;
        let outputs = &mut self.outputs[producer.index()];
        if value.buffers == source.buffers {
            // The addends are no longer there.
            outputs[0] = value.clone();
        } else {
            outputs.push(value.clone());
        }
        Ok(value)
    }

    /// Returns the elements of a sample, of `count` elements, that a rank loads for a layer: its
    /// positions, if the layer is split by positions.
    fn loaded_elements(&mut self, id: LayerId, place: usize, count: usize) -> Range<usize> {
        match (&self.splits, self.program.rank(place).part(id)) {
            (Some(splits), Some(part)) if part.division.split == Split::Positions => {
                let of_position = count / splits.max_parts(id, Split::Positions);
                part.units.start * of_position..part.units.end * of_position
            }
            _ => 0..count,
        }
    }

    fn load_features(
        &mut self,
        (consumer, layout): (LayerId, &TensorLayout),
        input: LayerId,
    ) -> DistributedValue {
        let storage = self.storage_of_input(input);
        let of_input = self.network.input_elements(input);
        let shards: Vec<_> = layout.of.shards(self.micro_batch.start).collect();
        let buffers = shards.into_iter().map(|(place, shard)| {
            let range = self.loaded_elements(consumer, place, of_input.len());
            let elements = shard.samples * range.len();
            let program = self.program.rank(place);
            let contents = Contents::Operand(input, Role::Output);
            let buffer = program.buffer(elements, storage, contents);
            let range = of_input.start + range.start..of_input.start + range.end;
            let load = Op::LoadBatch { part: BatchPart::Features, shard, elements: range };
            program.step(load, "load samples".into(), Vec::new(), vec![buffer]);
            (place, buffer)
        });
        DistributedValue { buffers: buffers.collect(), layout: layout.clone() }
    }

    /// Returns the number format of an input of the network: that of the layers that read it.
    fn storage_of_input(&self, input: LayerId) -> Storage {
        let reader = self.network.consumers(input).into_iter().next();
        let (id, role) = reader.map_or((input, Role::Output), |(reader, slot)| (reader, Role::Input(slot)));
        role.storage(self.network.layer(id), self.precision)
    }

    fn record_output(&mut self, id: LayerId) {
        let (buffers, layout) = (self.operand_buffers(id, Role::Output), self.output_layout(id));
        let value = DistributedValue { layout, buffers };
        self.outputs[id.index()].insert(0, value);
    }

    /// Adds broadcasts of the running statistics of each layer, or each of its parts, from its
    /// first rank to its others. Batch normalisation by shard computes other statistics on each
    /// rank.
    pub(super) fn share_statistics(&mut self) {
        for (id, layer) in self.network.layers().filter(|(_, layer)| !layer.statistics().is_empty()) {
            let (layout, buffers) = (self.layout(id), self.operand_buffers(id, Role::Statistics));
            let ranks = by_part(layout.layout.ranks(), layout.parts);
            if ranks.len() > layout.parts {
                let op = CollectiveOp::Broadcast { elements: Role::Statistics.elements(layer, 0) };
                let label = format!("broadcast statistics of {}", layer.name());
                let operands = buffers
                    .into_iter()
                    .map(|(place, buffer)| (place, Operands { reads: Vec::new(), writes: vec![buffer] }));
                self.program.collective(op, (&ranks, layout.parts), label, operands);
            }
        }
    }
}
