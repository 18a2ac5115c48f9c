//! The forward half: every layer on its ranks, its inputs brought to it.

use collectives::Partition;
use layer_engine::{Pass, Role};
use layer_graph::{Layer, LayerId};

use super::{Lowering, Value, shards};
use crate::Error;
use crate::program::{BatchPart, CollectiveOp, Contents, Op};

impl Lowering<'_> {
    pub(super) fn forward(&mut self, id: LayerId, sync_batch_norm: bool) -> Result<(), Error> {
        self.place_inputs(id)?;
        for &pass in Pass::forward(self.network.layer(id)) {
            self.passes(id, pass, |pass, layer, shard| Op::Forward { layer, pass, shard });
            if sync_batch_norm && pass == Pass::ForwardMoments {
                self.reduce_operand(id, Role::Moments);
            }
        }
        self.record_output(id);
        self.spread(id)
    }

    pub(super) fn infer(&mut self, id: LayerId) -> Result<(), Error> {
        self.place_inputs(id)?;
        self.passes(id, Pass::Infer, |pass, layer, shard| Op::Forward { layer, pass, shard });
        self.record_output(id);
        self.spread(id)
    }

    /// Sends a fork's output to all branches at once, to the one that runs first before the others. Ranks keep one
    /// order of communication, so the branch that comes later would otherwise wait for what the earlier one sends.
    fn spread(&mut self, id: LayerId) -> Result<(), Error> {
        let mut consumers = self.network.consumers(id);
        if consumers.len() > 1 {
            consumers.sort_by_key(|(consumer, _)| self.place[consumer.index()]);
            for (consumer, _) in consumers {
                let partition = self.partitions[consumer.index()].clone();
                self.output_in(id, &partition)?;
            }
        }
        Ok(())
    }

    /// Brings a layer's inputs (and labels) to its ranks.
    fn place_inputs(&mut self, id: LayerId) -> Result<(), Error> {
        let partition = self.partitions[id.index()].clone();
        for (slot, producer) in self.network.producers(id).into_iter().enumerate() {
            let value = self.output_in(producer, &partition)?;
            for (&rank, buffer) in partition.ranks().iter().zip(value.buffers) {
                self.program.rank(rank).set_operand(id, Role::Input(slot), buffer);
            }
        }
        if id == self.loss {
            for (rank, shard) in shards(&partition, self.micro_batch.start) {
                let layer = self.network.layer(id);
                let program = self.program.rank(rank);
                let labels = program.operand(id, layer, Role::Labels, shard.samples);
                let load = Op::LoadBatch { part: BatchPart::Labels, shard };
                program.step(load, "load labels".into(), Vec::new(), vec![labels]);
            }
        }
        Ok(())
    }

    /// A layer's output as a partition needs it: as it is, loaded (the input layer), or redistributed.
    fn output_in(&mut self, producer: LayerId, partition: &Partition) -> Result<Value, Error> {
        let known = self.outputs[producer.index()].iter().find(|value| value.partition == *partition);
        if let Some(value) = known {
            return Ok(value.clone());
        }
        let layer = self.network.layer(producer);
        let value = if producer == self.network.input() {
            self.load_features(partition, layer)
        } else {
            let source = self.outputs[producer.index()][0].clone();
            self.redistribute(producer, &source, partition, "activations")?
        };
        self.outputs[producer.index()].push(value.clone());
        Ok(value)
    }

    fn load_features(&mut self, partition: &Partition, input: &Layer) -> Value {
        let buffers = shards(partition, self.micro_batch.start).map(|(rank, shard)| {
            let elements = Role::Output.elements(input, shard.samples);
            let program = self.program.rank(rank);
            let buffer = program.buffer(elements, Contents::Operand(self.network.input(), Role::Output));
            let load = Op::LoadBatch { part: BatchPart::Features, shard };
            program.step(load, "load samples".into(), Vec::new(), vec![buffer]);
            buffer
        });
        Value { partition: partition.clone(), buffers: buffers.collect() }
    }

    fn record_output(&mut self, id: LayerId) {
        let value = self.operand_value(id, Role::Output);
        self.outputs[id.index()].insert(0, value);
    }

    /// Batch normalisation by shard keeps the running statistics of the layer's first rank.
    pub(super) fn share_statistics(&mut self) {
        for (id, layer) in self.network.layers().filter(|(_, layer)| !layer.statistics().is_empty()) {
            let value = self.operand_value(id, Role::Statistics);
            let ranks = value.partition.ranks();
            if ranks.len() > 1 {
                let op = CollectiveOp::Broadcast { elements: Role::Statistics.elements(layer, 0) };
                let label = format!("broadcast statistics of {}", layer.name());
                self.program
                    .collective(op, ranks, label, |position| (Vec::new(), vec![value.buffers[position]]));
            }
        }
    }
}
