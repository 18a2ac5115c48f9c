//! From a network and a placement to the programs of all ranks.

use std::collections::HashMap;

use collectives::{Partition, Redistribution};
use layer_engine::{Pass, Role, Sgd, Shard, Signature};
use layer_graph::{Layer, LayerGraph, LayerId, LayerKind};

use super::builder::{Bucket, ProgramBuilder};
use super::{BatchPart, BufferId, CollectiveOp, Contents, Op, Placement, Program};
use crate::Error;

/// How a training iteration is lowered.
#[derive(Debug, Clone, PartialEq)]
pub struct LowerOptions {
    /// The optimiser.
    pub optimizer: Sgd,
    /// Whether gradients are all-reduced while the backward pass goes on, or after it.
    pub overlap_all_reduce: bool,
    /// Gradients of layers with the same ranks travel together until they are this many bytes.
    pub bucket_bytes: u64,
    /// Whether batch normalisation normalises over the global batch instead of each rank's shard.
    pub sync_batch_norm: bool,
}

impl Default for LowerOptions {
    /// SGD with momentum 0.9, overlap, buckets of 25 MiB (as PyTorch's `DistributedDataParallel`), and batch
    /// normalisation by shard.
    fn default() -> Self {
        Self {
            optimizer: Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: None },
            overlap_all_reduce: true,
            bucket_bytes: 25 << 20,
            sync_batch_norm: false,
        }
    }
}

/// Lowers one training iteration: forward, loss, backward, gradient all-reduce, optimiser.
///
/// The loss is the mean over the global batch, and gradients are summed with that scale: what is computed does not
/// depend on the placement.
///
/// # Errors
/// When the network does not end in exactly one loss, or the batch is empty.
pub fn lower_training(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    options: &LowerOptions,
) -> Result<Program, Error> {
    let mut lowering = Lowering::new(network, placement, batch)?;
    for id in lowering.layers() {
        lowering.forward(id, options.sync_batch_norm)?;
    }
    lowering.backward(options)?;
    lowering.reduce_metrics();
    Ok(lowering.program.finish())
}

/// Lowers the evaluation of a batch with the same state: no dropout, running statistics, and the metrics of the whole
/// batch at the end.
///
/// # Errors
/// As [`lower_training`].
pub fn lower_evaluation(network: &LayerGraph, placement: &Placement, batch: usize) -> Result<Program, Error> {
    let mut lowering = Lowering::new(network, placement, batch)?;
    lowering.share_statistics();
    for id in lowering.layers() {
        lowering.infer(id)?;
    }
    lowering.reduce_metrics();
    Ok(lowering.program.finish())
}

/// A value that lies on ranks as a partition says.
#[derive(Clone)]
struct Value {
    partition: Partition,
    /// The buffer of the rank at each position of the partition's ranks.
    buffers: Vec<BufferId>,
}

struct Lowering<'a> {
    network: &'a LayerGraph,
    batch: usize,
    loss: LayerId,
    /// By layer.
    partitions: Vec<Partition>,
    /// By layer: its output, in its own partition first, then wherever consumers needed it.
    outputs: Vec<Vec<Value>>,
    /// By layer: the parts of its output's gradient that its consumers have computed.
    gradients: Vec<Vec<Value>>,
    program: ProgramBuilder,
}

impl<'a> Lowering<'a> {
    fn new(network: &'a LayerGraph, placement: &Placement, batch: usize) -> Result<Self, Error> {
        if batch == 0 {
            return Err(Error::EmptyBatch);
        }
        let loss = loss_layer(network)?;
        let partitions: Result<Vec<Partition>, Error> = network
            .layers()
            .map(|(id, _)| {
                if id == network.input() {
                    Ok(Partition::even(batch, &[0])?)
                } else {
                    placement.partition(id, batch)
                }
            })
            .collect();
        Ok(Self {
            network,
            batch,
            loss,
            partitions: partitions?,
            outputs: vec![Vec::new(); network.len()],
            gradients: vec![Vec::new(); network.len()],
            program: ProgramBuilder::new(network, placement, batch),
        })
    }

    /// All layers but the input, in topological order.
    fn layers(&self) -> Vec<LayerId> {
        self.network.layers().skip(1).map(|(id, _)| id).collect()
    }

    fn forward(&mut self, id: LayerId, sync_batch_norm: bool) -> Result<(), Error> {
        self.place_inputs(id)?;
        for &pass in Pass::forward(self.network.layer(id)) {
            self.passes(id, pass, |pass, layer, shard| Op::Forward { layer, pass, shard });
            if sync_batch_norm && pass == Pass::ForwardMoments {
                self.reduce_operand(id, Role::Moments);
            }
        }
        self.record_output(id);
        Ok(())
    }

    fn infer(&mut self, id: LayerId) -> Result<(), Error> {
        self.place_inputs(id)?;
        self.passes(id, Pass::Infer, |pass, layer, shard| Op::Forward { layer, pass, shard });
        self.record_output(id);
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
            for (rank, shard) in shards(&partition) {
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
        let buffers = shards(partition).map(|(rank, shard)| {
            let elements = Role::Output.elements(input, shard.samples);
            let program = self.program.rank(rank);
            let buffer = program.buffer(elements, Contents::Operand(self.network.input(), Role::Output));
            let load = Op::LoadBatch { part: BatchPart::Features, shard };
            program.step(load, "load samples".into(), Vec::new(), vec![buffer]);
            buffer
        });
        Value { partition: partition.clone(), buffers: buffers.collect() }
    }

    /// Moves a layer's output, or its gradient, to another partition.
    fn redistribute(
        &mut self,
        id: LayerId,
        source: &Value,
        to: &Partition,
        what: &str,
    ) -> Result<Value, Error> {
        let layer = self.network.layer(id);
        let redistribution = Redistribution::new(&source.partition, to)?;
        let targets: Vec<BufferId> = shards(to)
            .map(|(rank, shard)| {
                let elements = Role::Output.elements(layer, shard.samples);
                self.program.rank(rank).buffer(elements, Contents::Moved(id))
            })
            .collect();
        let ranks = redistribution.ranks().to_vec();
        let label = format!("redistribute {what} of {}", layer.name());
        let sample_elements = layer.output_shape().elements();
        let held = |partition: &Partition, buffers: &[BufferId], rank: usize| {
            let position = partition.ranks().iter().position(|&r| r == rank);
            position.map(|position| buffers[position]).into_iter().collect()
        };
        let op = CollectiveOp::Redistribute { redistribution, sample_elements };
        self.program.collective(op, &ranks, label, |position| {
            let rank = ranks[position];
            (held(&source.partition, &source.buffers, rank), held(to, &targets, rank))
        });
        Ok(Value { partition: to.clone(), buffers: targets })
    }

    /// Adds a pass of a layer on all its ranks.
    fn passes(&mut self, id: LayerId, pass: Pass, op: impl Fn(Pass, LayerId, Shard) -> Op) {
        let layer = self.network.layer(id);
        let Some(signature) = Signature::of(layer, pass) else { return };
        let partition = &self.partitions[id.index()];
        for (rank, shard) in shards(partition) {
            let program = self.program.rank(rank);
            let mut operands = |roles: &[Role]| -> Vec<BufferId> {
                roles.iter().map(|&role| program.operand(id, layer, role, shard.samples)).collect()
            };
            let (reads, writes) = (operands(&signature.reads), operands(&signature.writes));
            program.step(op(pass, id, shard), format!("{} {}", verb(pass), layer.name()), reads, writes);
        }
    }

    fn record_output(&mut self, id: LayerId) {
        let value = self.operand_value(id, Role::Output);
        self.outputs[id.index()].insert(0, value);
    }

    /// The buffers that play a role for a layer on its ranks.
    fn operand_value(&mut self, id: LayerId, role: Role) -> Value {
        let layer = self.network.layer(id);
        let partition = self.partitions[id.index()].clone();
        let buffers = shards(&partition)
            .map(|(rank, shard)| self.program.rank(rank).operand(id, layer, role, shard.samples))
            .collect();
        Value { partition, buffers }
    }

    /// Sums a role's buffers over the layer's ranks.
    fn reduce_operand(&mut self, id: LayerId, role: Role) {
        let mut bucket = Bucket::new(self.partitions[id.index()].ranks());
        self.add_to_bucket(&mut bucket, id, role, self.network.layer(id).name().to_owned());
        self.program.all_reduce(bucket);
    }

    fn add_to_bucket(&mut self, bucket: &mut Bucket, id: LayerId, role: Role, label: String) {
        let value = self.operand_value(id, role);
        for (buffers, buffer) in bucket.buffers.iter_mut().zip(value.buffers) {
            buffers.push(buffer);
        }
        bucket.elements += role.elements(self.network.layer(id), 0);
        bucket.labels.push(label);
    }

    fn reduce_metrics(&mut self) {
        let mut bucket = Bucket::new(self.partitions[self.loss.index()].ranks());
        self.add_to_bucket(&mut bucket, self.loss, Role::Metrics, "metrics".into());
        self.program.all_reduce(bucket);
    }

    /// Batch normalisation by shard keeps the running statistics of the layer's first rank.
    fn share_statistics(&mut self) {
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

    fn backward(&mut self, options: &LowerOptions) -> Result<(), Error> {
        let needs_gradient = needs_gradient(self.network);
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut with_parameters = Vec::new();
        for id in self.layers().into_iter().rev() {
            let layer = self.network.layer(id);
            if !needs_gradient[id.index()] {
                continue;
            }
            self.gather_output_gradient(id)?;
            let producers = self.network.producers(id);
            let input_gradient = producers.iter().any(|producer| needs_gradient[producer.index()]);
            for &pass in Pass::backward(layer, input_gradient) {
                self.passes(id, pass, |pass, layer, shard| Op::Backward { layer, pass, shard });
                if options.sync_batch_norm && pass == Pass::BackwardMoments {
                    self.reduce_operand(id, Role::GradientMoments);
                }
            }
            for (slot, producer) in producers.into_iter().enumerate() {
                if needs_gradient[producer.index()] {
                    let value = self.operand_value(id, Role::InputGradient(slot));
                    self.gradients[producer.index()].push(value);
                }
            }
            if layer.parameter_count() > 0 {
                with_parameters.push(id);
                self.add_gradient(&mut buckets, id, options);
            }
        }
        if !options.overlap_all_reduce {
            self.program.collectives_wait();
        }
        for bucket in buckets {
            self.program.all_reduce(bucket);
        }
        self.optimizer_steps(&with_parameters, options.optimizer);
        Ok(())
    }

    /// Brings the gradient of a layer's output to its ranks: the parts of the consumers that share a partition are
    /// summed where they are, so that each partition sends one part.
    fn gather_output_gradient(&mut self, id: LayerId) -> Result<(), Error> {
        let own = self.partitions[id.index()].clone();
        if id == self.loss {
            let scale = Contents::Constant(1.0 / self.batch as f64);
            for (rank, shard) in shards(&own) {
                let program = self.program.rank(rank);
                let constant = program.buffer(shard.samples, scale);
                program.set_operand(id, Role::OutputGradient, constant);
            }
            return Ok(());
        }
        let mut by_partition: Vec<Vec<Value>> = Vec::new();
        for part in std::mem::take(&mut self.gradients[id.index()]) {
            match by_partition.iter_mut().find(|parts| parts[0].partition == part.partition) {
                Some(parts) => parts.push(part),
                None => by_partition.push(vec![part]),
            }
        }
        let mut parts = Vec::new();
        for group in by_partition {
            let sum = self.sum(id, group);
            let moved =
                if sum.partition == own { sum } else { self.redistribute(id, &sum, &own, "gradient")? };
            parts.push(moved);
        }
        let gradient = self.sum(id, parts);
        for (&rank, buffer) in own.ranks().iter().zip(gradient.buffers) {
            self.program.rank(rank).set_operand(id, Role::OutputGradient, buffer);
        }
        Ok(())
    }

    /// The sum of parts of a layer's gradient that lie in the same partition.
    fn sum(&mut self, id: LayerId, mut parts: Vec<Value>) -> Value {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let layer = self.network.layer(id);
        let partition = parts[0].partition.clone();
        let buffers = shards(&partition)
            .enumerate()
            .map(|(position, (rank, shard))| {
                let program = self.program.rank(rank);
                let elements = Role::Output.elements(layer, shard.samples);
                let sum = program.buffer(elements, Contents::Operand(id, Role::OutputGradient));
                let terms = parts.iter().map(|part| part.buffers[position]).collect();
                let label = format!("sum gradients of {}", layer.name());
                program.step(Op::AccumulateGradient, label, terms, vec![sum]);
                sum
            })
            .collect();
        Value { partition, buffers }
    }

    /// Puts a layer's parameter gradient into the bucket of its ranks; a full bucket is reduced at once.
    fn add_gradient(&mut self, buckets: &mut Vec<Bucket>, id: LayerId, options: &LowerOptions) {
        let ranks = self.partitions[id.index()].ranks().to_vec();
        let index = buckets.iter().position(|bucket| bucket.ranks == ranks).unwrap_or_else(|| {
            buckets.push(Bucket::new(&ranks));
            buckets.len() - 1
        });
        let label = self.network.layer(id).name().to_owned();
        self.add_to_bucket(&mut buckets[index], id, Role::ParameterGradient, label);
        if options.overlap_all_reduce && buckets[index].bytes() >= options.bucket_bytes {
            let full = buckets.remove(index);
            self.program.all_reduce(full);
        }
    }

    fn optimizer_steps(&mut self, layers: &[LayerId], rule: Sgd) {
        let norms = rule.clip_norm.map(|_| self.squared_norm(layers));
        for &id in layers {
            let layer = self.network.layer(id);
            for &rank in self.partitions[id.index()].ranks() {
                let program = self.program.rank(rank);
                let Some(velocity) = program.velocity(id) else { continue };
                let mut reads = vec![program.operand(id, layer, Role::ParameterGradient, 0)];
                reads.extend(norms.as_ref().and_then(|norms| norms.get(&rank)));
                let writes = vec![program.operand(id, layer, Role::Parameters, 0), velocity];
                let op = Op::OptimizerStep { layer: id, rule };
                program.step(op, format!("update {}", layer.name()), reads, writes);
            }
        }
    }

    /// The squared norm of all gradients on every rank that has any: each layer counts on its first rank.
    fn squared_norm(&mut self, layers: &[LayerId]) -> HashMap<usize, BufferId> {
        let mut ranks: Vec<usize> =
            layers.iter().flat_map(|id| self.partitions[id.index()].ranks()).copied().collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut bucket = Bucket::new(&ranks);
        bucket.labels.push("squared gradient norm".into());
        bucket.elements = 1;
        let mut by_rank = HashMap::new();
        for (position, &rank) in ranks.iter().enumerate() {
            let own = layers.iter().filter(|id| self.partitions[id.index()].ranks()[0] == rank);
            let program = self.program.rank(rank);
            let gradients: Vec<BufferId> = own
                .map(|&id| program.operand(id, self.network.layer(id), Role::ParameterGradient, 0))
                .collect();
            let norm = program.buffer(1, Contents::SquaredNorm);
            program.step(Op::SquaredNorm, "squared gradient norm".into(), gradients, vec![norm]);
            bucket.buffers[position].push(norm);
            by_rank.insert(rank, norm);
        }
        self.program.all_reduce(bucket);
        by_rank
    }
}

/// The ranks of a partition with their shards.
fn shards(partition: &Partition) -> impl Iterator<Item = (usize, Shard)> {
    partition.shards().map(|(rank, samples)| (rank, Shard { first: samples.start, samples: samples.len() }))
}

fn verb(pass: Pass) -> &'static str {
    match pass {
        Pass::ForwardMoments => "forward moments",
        Pass::Forward => "forward",
        Pass::Infer => "infer",
        Pass::BackwardMoments => "backward moments",
        Pass::Backward | Pass::BackwardParameters => "backward",
    }
}

/// The network's one loss layer, which has to be its only output.
fn loss_layer(network: &LayerGraph) -> Result<LayerId, Error> {
    let mut loss = None;
    for (id, layer) in network.layers().filter(|(id, _)| network.consumers(*id).is_empty()) {
        if *layer.kind() != LayerKind::SoftmaxCrossEntropy || loss.is_some() {
            return Err(Error::NotOneLoss { network: network.name().into(), layer: layer.name().into() });
        }
        loss = Some(id);
    }
    loss.ok_or_else(|| Error::NotOneLoss { network: network.name().into(), layer: "input".into() })
}

/// By layer: whether anything learns from the gradient of its output.
pub(crate) fn needs_gradient(network: &LayerGraph) -> Vec<bool> {
    let mut needs = vec![false; network.len()];
    for (id, layer) in network.layers() {
        needs[id.index()] = layer.parameter_count() > 0
            || network.producers(id).iter().any(|producer| needs[producer.index()]);
    }
    needs
}
