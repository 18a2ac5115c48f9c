//! What layers and collectives cost, and the planning problem that follows from it.

mod kernels;

use std::time::Duration;

use burst_planner::{NodeOption, PlanProblem};
use collectives::{LinkModel, Partition, Redistribution};
use layer_engine::Pass;
use layer_graph::{Layer, LayerGraph, LayerId};
use layer_profile::{DataSheet, LayerTime, ProfileTable};

use crate::Error;
use crate::program::{CollectiveOp, ELEMENT_BYTES, LowerOptions, Op};
use kernels::Footprint;

pub use kernels::KernelCost;
pub(crate) use kernels::LayerKernels;

/// The costs of a network's layers on one device, and of the links between devices.
///
/// What is not charged, neither by the planner nor by the simulator: loading samples, adding gradients at forks, and
/// the gradient norm.
#[derive(Debug, Clone)]
pub struct Costs<'a> {
    network: &'a LayerGraph,
    profile: &'a ProfileTable,
    link: &'a LinkModel,
    /// Of the profile's device, where it is a known GPU.
    sheet: Option<DataSheet>,
    /// By layer.
    needs_gradient: Vec<bool>,
}

impl<'a> Costs<'a> {
    /// The costs of a network by this profile and these links.
    #[must_use]
    pub fn new(network: &'a LayerGraph, profile: &'a ProfileTable, link: &'a LinkModel) -> Self {
        let sheet = DataSheet::of_device(profile.device());
        Self { network, profile, link, sheet, needs_gradient: network.needs_gradient() }
    }

    /// The planning problem of training with a global batch on up to `gpus` GPUs, where each layer may run on any of
    /// the GPU counts (those above the batch or `gpus` are left out).
    ///
    /// Nodes are the layers but the input, in topological order. A layer on k GPUs takes as long as its largest shard,
    /// `ceil(batch / k)` samples: forward, backward and optimiser step. Its gradient all-reduce is charged by its share
    /// of a full bucket ([`LowerOptions::bucket_bytes`]), since small gradients travel together; layers that use the same
    /// parameters are charged an equal part of theirs each.
    /// An edge is charged one redistribution of the producer's activations forward and one of their gradients backward,
    /// with another figure for the case that both ends share no rank, as branches that run at once do with their fork and
    /// join.
    ///
    /// # Errors
    /// When the profile has no time that is needed, or there is no GPU count left. Without 1 among the counts it needs the
    /// times of the whole batch all the same, for the time on one GPU.
    pub fn problem(&self, batch: usize, gpus: usize, gpu_counts: &[usize]) -> Result<PlanProblem, Error> {
        if batch == 0 {
            return Err(Error::EmptyBatch);
        }
        let counts: Vec<usize> =
            gpu_counts.iter().copied().filter(|&count| count >= 1 && count <= gpus.min(batch)).collect();
        if counts.is_empty() {
            return Err(Error::Setting {
                setting: "GPU counts",
                expected: "at most the number of GPUs and of samples",
                got: "none that is".into(),
            });
        }
        let partitions: Result<Vec<Partition>, _> =
            counts.iter().map(|&count| Partition::even(batch, &(0..count).collect::<Vec<_>>())).collect();
        let partitions = partitions?;
        let mut problem = PlanProblem::new(gpus);
        for (id, layer) in self.network.layers().skip(1) {
            let options: Result<Vec<NodeOption>, Error> =
                counts.iter().map(|&count| self.option(id, batch, count)).collect();
            problem.add_node(layer.name(), options?);
        }
        if !counts.contains(&1) {
            let layers = self.network.layers().skip(1);
            let times = layers.map(|(id, _)| Ok(self.option(id, batch, 1)?.time_us));
            problem.single_gpu_us = Some(times.sum::<Result<f64, Error>>()?);
        }
        let beyond: Result<Vec<Partition>, _> = counts
            .iter()
            .map(|&count| Partition::even(batch, &(gpus..gpus + count).collect::<Vec<_>>()))
            .collect();
        let beyond = beyond?;
        for (id, layer) in self.network.layers().skip(1) {
            let transfers = self.transfers_us(layer, &partitions, &partitions)?;
            // A consumer may take the same output twice: it is moved once.
            let mut consumers: Vec<LayerId> =
                self.network.consumers(id).into_iter().map(|(consumer, _)| consumer).collect();
            consumers.dedup();
            for &consumer in &consumers {
                let edge = problem.add_edge(id.index() - 1, consumer.index() - 1, transfers.clone());
                // Only at a fork or a join can the two ends of an edge share no rank.
                if consumers.len() > 1 || self.network.producers(consumer).len() > 1 {
                    edge.transfer_disjoint_us = Some(self.transfers_us(layer, &partitions, &beyond)?);
                }
            }
        }
        Ok(problem)
    }

    /// By the producer's and the consumer's partition.
    fn transfers_us(
        &self,
        producer: &Layer,
        from: &[Partition],
        to: &[Partition],
    ) -> Result<Vec<Vec<f64>>, Error> {
        from.iter().map(|from| to.iter().map(|to| self.transfer_us(producer, from, to)).collect()).collect()
    }

    fn option(&self, layer: LayerId, batch: usize, count: usize) -> Result<NodeOption, Error> {
        let time = self.layer_time(layer, batch.div_ceil(count))?;
        let all_reduce = self.gradient_all_reduce(layer, count);
        Ok(NodeOption::new(count, micros(time.total()))
            .with_all_reduce_us(micros(all_reduce))
            .with_backward_us(micros(time.backward)))
    }

    /// The times of a layer. The optimiser's step over parameters that several layers use is their owner's alone.
    ///
    /// # Errors
    /// When the profile has no such time.
    pub(crate) fn layer_time(&self, layer: LayerId, samples: usize) -> Result<LayerTime, Error> {
        let time = self.profile.time(self.network.layer(layer).name(), samples)?;
        let updates = self.network.own_parameter_count(layer) > 0;
        Ok(if updates { time } else { LayerTime { update: Duration::ZERO, ..time } })
    }

    /// A layer's share of the all-reduce of a full bucket, or of one of its own when it is larger. Layers that use the same
    /// parameters share theirs.
    fn gradient_all_reduce(&self, layer: LayerId, ranks: usize) -> Duration {
        let users = self.network.parameter_users(self.network.parameter_owner(layer)).len();
        let bytes = self.network.layer(layer).parameter_bytes();
        let bucket = LowerOptions::default().bucket_bytes;
        let whole = if bytes >= bucket {
            self.link.all_reduce(ranks, bytes)
        } else {
            self.link.all_reduce(ranks, bucket).mul_f64(bytes as f64 / bucket as f64)
        };
        whole.div_f64(users.max(1) as f64)
    }

    fn transfer_us(&self, producer: &Layer, from: &Partition, to: &Partition) -> Result<f64, Error> {
        let forward = Redistribution::new(from, to)?;
        let both_ways = self.link.redistribution(&forward, producer.output_bytes())
            + self.link.redistribution(&forward.reversed(), producer.output_bytes());
        Ok(micros(both_ways))
    }

    /// How long a step of the compute lane takes.
    ///
    /// A profile times a layer's forward (or backward) step as a whole: the last of its passes is charged with it.
    ///
    /// # Errors
    /// When the profile has no such time.
    pub fn compute(&self, op: &Op) -> Result<Duration, Error> {
        let time = |layer: LayerId, samples| self.layer_time(layer, samples);
        Ok(match op {
            Op::Forward { layer, pass: Pass::Forward | Pass::Infer, shard } => {
                time(*layer, shard.samples)?.forward
            }
            Op::Backward { layer, pass, shard } => {
                let first = *pass == Pass::BackwardMoments && self.has_input_gradient(*layer);
                if first { Duration::ZERO } else { time(*layer, shard.samples)?.backward }
            }
            // The same whatever the number of samples.
            Op::OptimizerStep { layer, .. } => time(*layer, 0)?.update,
            Op::Forward { .. }
            | Op::LoadBatch { .. }
            | Op::AccumulateGradient
            | Op::SquaredNorm
            | Op::Collective(_) => Duration::ZERO,
        })
    }

    /// The kernels of a step of the compute lane, which together take the time that [`compute`](Self::compute) says;
    /// none for a step that takes no time.
    ///
    /// A forward step is one kernel, a backward step one or two (the gradients of the input and of the parameters, half of the
    /// time each), an optimiser's step one. What they occupy is modelled: thread blocks of 128 x 128 values (matrix
    /// products, convolutions, attention) or of 1,024 elements (everything else) over the device's
    /// multiprocessors, and each tensor moved once over time and memory bandwidth. On a device without a
    /// [data sheet](DataSheet), such as a processor's core, a kernel fills the device.
    ///
    /// # Errors
    /// When the profile has no such time.
    pub fn kernels(&self, op: &Op) -> Result<Vec<KernelCost>, Error> {
        let takes = self.compute(op)?;
        let footprints = match op {
            Op::Forward { layer, shard, .. } => {
                Footprint::of_forward(self.network.layer(*layer), shard.samples)
            }
            Op::Backward { layer, shard, .. } => self.backward_footprints(*layer, shard.samples),
            Op::OptimizerStep { layer, .. } => Footprint::of_update(self.network.own_parameter_count(*layer)),
            Op::LoadBatch { .. } | Op::AccumulateGradient | Op::SquaredNorm | Op::Collective(_) => Vec::new(),
        };
        Ok(Footprint::kernels(&footprints, takes, self.sheet.as_ref()))
    }

    /// The kernels of all steps of a layer for this many samples.
    ///
    /// # Errors
    /// When the profile has no such time.
    pub(crate) fn layer_kernels(&self, layer: LayerId, samples: usize) -> Result<LayerKernels, Error> {
        let LayerTime { forward, backward, update } = self.layer_time(layer, samples)?;
        let sheet = self.sheet.as_ref();
        let of_forward = Footprint::of_forward(self.network.layer(layer), samples);
        let of_update = Footprint::of_update(self.network.own_parameter_count(layer));
        Ok(LayerKernels {
            forward: Footprint::kernels(&of_forward, forward, sheet),
            backward: Footprint::kernels(&self.backward_footprints(layer, samples), backward, sheet),
            update: Footprint::kernels(&of_update, update, sheet),
        })
    }

    fn backward_footprints(&self, layer: LayerId, samples: usize) -> Vec<Footprint> {
        Footprint::of_backward(self.network.layer(layer), samples, self.has_input_gradient(layer))
    }

    /// Whether a batch normalisation has a second backward pass.
    fn has_input_gradient(&self, layer: LayerId) -> bool {
        self.network.producers(layer).iter().any(|producer| self.needs_gradient[producer.index()])
    }

    /// How long a collective takes once all its ranks have come.
    #[must_use]
    pub fn collective(&self, op: &CollectiveOp, ranks: usize) -> Duration {
        match op {
            CollectiveOp::AllReduce { elements } => {
                self.link.all_reduce(ranks, *elements as u64 * ELEMENT_BYTES)
            }
            CollectiveOp::Broadcast { elements } => {
                self.link.broadcast(ranks, *elements as u64 * ELEMENT_BYTES)
            }
            CollectiveOp::Redistribute { redistribution, sample_elements } => {
                self.link.redistribution(redistribution, *sample_elements as u64 * ELEMENT_BYTES)
            }
        }
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &'a LayerGraph {
        self.network
    }

    /// The layers' times.
    #[must_use]
    pub fn profile(&self) -> &'a ProfileTable {
        self.profile
    }

    /// The links.
    #[must_use]
    pub fn link(&self) -> &'a LinkModel {
        self.link
    }
}

/// The batches that a profile needs for every GPU count up to `gpus`: the sizes of the shards, ascending.
#[must_use]
pub fn shard_sizes(batch: usize, gpus: usize) -> Vec<usize> {
    let of_count = |count: usize| [batch.div_ceil(count), batch / count];
    let mut sizes: Vec<usize> = (1..=gpus.min(batch)).flat_map(of_count).chain([1]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
