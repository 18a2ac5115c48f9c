//! From a network and a placement to the programs of all ranks.

mod backward;
mod forward;

use std::ops::Range;

use collectives::{Partition, Redistribution};
use layer_engine::{Pass, Role, Sgd, Shard, Signature};
use layer_graph::{LayerGraph, LayerId, LayerKind};

use super::builder::{Bucket, ProgramBuilder};
use super::{BufferId, CollectiveOp, Contents, Op, Placement, Program};
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
    /// Into how many micro-batches the batch is cut, from 1 to its samples. They run one after another, their gradients
    /// are added up, and the optimiser steps once, so that what is learned is the same to rounding, in steps that are
    /// that much shorter. Batch normalisation is the exception: it normalises over a micro-batch, and its running
    /// statistics move with each.
    pub micro_batches: usize,
}

impl Default for LowerOptions {
    /// SGD with momentum 0.9, overlap, buckets of 25 MiB (as PyTorch's `DistributedDataParallel`), and batch
    /// normalisation by shard; the batch is not cut.
    fn default() -> Self {
        Self {
            optimizer: Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: None },
            overlap_all_reduce: true,
            bucket_bytes: 25 << 20,
            sync_batch_norm: false,
            micro_batches: 1,
        }
    }
}

/// Lowers one training iteration: forward, loss, backward, gradient all-reduce, optimiser.
///
/// The loss is the mean over the global batch, and gradients are summed with that scale: what is computed does not
/// depend on the placement, nor on the number of micro-batches.
///
/// # Errors
/// When the network does not end in exactly one loss, the batch is empty, or it has fewer samples than micro-batches.
pub fn lower_training(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    options: &LowerOptions,
) -> Result<Program, Error> {
    let count = options.micro_batches;
    if count == 0 || count > batch.max(1) {
        let (setting, expected) = ("the number of micro-batches", "from 1 to the samples of the batch");
        return Err(Error::Setting { setting, expected, got: format!("{count} for {batch}") });
    }
    let mut lowering = Lowering::new(network, placement, batch)?;
    for index in 0..count {
        lowering.begin(placement, index * batch / count..(index + 1) * batch / count)?;
        for &id in placement.order() {
            lowering.forward(id, options.sync_batch_norm)?;
        }
        lowering.backward(options)?;
        lowering.accumulate(lowering.loss, Role::Metrics);
    }
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
    lowering.begin(placement, 0..batch)?;
    lowering.share_statistics();
    for &id in placement.order() {
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
    /// All layers but the input, in the order in which they run.
    order: Vec<LayerId>,
    /// By layer: its place in the order.
    place: Vec<usize>,
    /// The samples of the batch that are being lowered.
    micro_batch: Range<usize>,
    /// By layer, of the micro-batch.
    partitions: Vec<Partition>,
    /// By layer: the ranks that hold its own parameters.
    parameter_ranks: Vec<Vec<usize>>,
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
        let parameter_ranks: Vec<Vec<usize>> =
            network.layers().map(|(id, _)| placement.parameter_ranks(network, id)).collect();
        let order = placement.order().to_vec();
        let mut place = vec![0; network.len()];
        for (at, id) in order.iter().enumerate() {
            place[id.index()] = at;
        }
        Ok(Self {
            network,
            batch,
            loss,
            order,
            place,
            micro_batch: 0..0,
            partitions: Vec::new(),
            outputs: Vec::new(),
            gradients: Vec::new(),
            program: ProgramBuilder::new(network, placement, &parameter_ranks, batch),
            parameter_ranks,
        })
    }

    /// Goes on to a micro-batch, in the memory of the one before.
    fn begin(&mut self, placement: &Placement, micro_batch: Range<usize>) -> Result<(), Error> {
        let (network, samples) = (self.network, micro_batch.len());
        let partition = |id| {
            if id == network.input() {
                Ok(Partition::even(samples, &[0])?)
            } else {
                placement.partition(id, samples)
            }
        };
        self.partitions = network.layers().map(|(id, _)| partition(id)).collect::<Result<_, Error>>()?;
        self.outputs = vec![Vec::new(); network.len()];
        self.gradients = vec![Vec::new(); network.len()];
        self.micro_batch = micro_batch;
        self.program.reuse_buffers();
        Ok(())
    }

    /// Adds what the micro-batch gave in a role to what those before it gave, on every rank that has it.
    fn accumulate(&mut self, id: LayerId, role: Role) {
        let ranks = match role {
            Role::ParameterGradient => &self.parameter_ranks[id.index()],
            _ => self.partitions[id.index()].ranks(),
        };
        for &rank in ranks {
            self.program.rank(rank).accumulate(id, self.network.layer(id), role);
        }
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
        let targets: Vec<BufferId> = shards(to, self.micro_batch.start)
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
        let shards = shards(&self.partitions[id.index()], self.micro_batch.start);
        for (rank, shard) in shards {
            let program = self.program.rank(rank);
            let mut operands = |roles: &[Role]| -> Vec<BufferId> {
                roles.iter().map(|&role| program.operand(id, layer, role, shard.samples)).collect()
            };
            let (reads, writes) = (operands(&signature.reads), operands(&signature.writes));
            program.step(op(pass, id, shard), format!("{} {}", verb(pass), layer.name()), reads, writes);
        }
    }

    /// The buffers that play a role for a layer on its ranks.
    fn operand_value(&mut self, id: LayerId, role: Role) -> Value {
        let layer = self.network.layer(id);
        let partition = self.partitions[id.index()].clone();
        let buffers = shards(&partition, self.micro_batch.start)
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

    /// Adds a buffer whose length does not depend on the number of samples.
    fn add_to_bucket(&mut self, bucket: &mut Bucket, id: LayerId, role: Role, label: String) {
        let layer = self.network.layer(id);
        for (buffers, &rank) in bucket.buffers.iter_mut().zip(&bucket.ranks) {
            buffers.push(self.program.rank(rank).operand(id, layer, role, 0));
        }
        bucket.elements += role.elements(layer, 0);
        bucket.labels.push(label);
    }

    fn reduce_metrics(&mut self) {
        let mut bucket = Bucket::new(self.partitions[self.loss.index()].ranks());
        self.add_to_bucket(&mut bucket, self.loss, Role::Metrics, "metrics".into());
        self.program.all_reduce(bucket);
    }
}

/// The ranks of a partition of a micro-batch, which begins at sample `first`, with their shards.
fn shards(partition: &Partition, first: usize) -> impl Iterator<Item = (usize, Shard)> {
    let shard = move |samples: Range<usize>| Shard { first: first + samples.start, samples: samples.len() };
    partition.shards().map(move |(rank, samples)| (rank, shard(samples)))
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
