//! A job as the planner sees it.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use burst_planner::{
    GradientOptions, NodeId, NodeMemory, Share, StepTimes, SynchronizedBytes, TrainingCosts, TrainingNode,
    TrainingProblem,
};
use collectives::{Partition, Redistribution, Traffic};
use layer_engine::{Pass, Role};
use layer_graph::{LayerGraph, LayerId};
use rustc_hash::FxHashMap;

use super::Job;
use super::least_load::{LeastLoad, Load};
use super::memory::LayerBytes;
use crate::Error;
use crate::costs::{Costs, micros};
use crate::program::{ELEMENT_BYTES, LowerOptions, backward_reads, checkpoints, is_read_once};

/// Elements of the metrics: the loss, and the samples that were classified right.
const METRICS: u64 = 2;

impl Job<'_> {
    /// The planning problem on up to `gpus` GPUs, where each layer may run on any of the GPU counts (those above the batch
    /// or `gpus` are left out). Nodes are the layers but the input, in topological order.
    ///
    /// # Errors
    /// When there is no GPU count left, or the profile lacks a time for one of them.
    pub fn training_problem(&self, gpus: usize, gpu_counts: &[usize]) -> Result<TrainingProblem, Error> {
        let network = self.costs.network();
        let most = gpus.min(self.micro_batch()?);
        let counts: Vec<usize> =
            gpu_counts.iter().copied().filter(|count| (1..=most).contains(count)).collect();
        if counts.is_empty() {
            return Err(Error::Setting {
                setting: "GPU counts",
                expected: "at most the number of GPUs and of samples",
                got: "none that is".into(),
            });
        }
        self.check_times(&counts)?;
        let mut problem = TrainingProblem::new(gpus);
        problem.gradients = gradient_options(&self.lowering);
        if let Some(cut) = NonZeroUsize::new(self.lowering.micro_batches).filter(|cut| cut.get() > 1) {
            problem.micro_batches = cut;
            problem.single_gpu_us = Some(self.uncut().single_gpu_us()?);
        }
        let checkpoints = checkpoints(network, &self.lowering.checkpoints)?;
        problem.checkpoints = checkpoints.into_iter().map(|id| NodeId(id.index() - 1)).collect();
        let needs_gradient = network.needs_gradient();
        for (id, _) in network.layers().skip(1) {
            problem.add_node(node(network, id, &counts, &self.lowering, &needs_gradient));
        }
        for (id, _) in network.layers().skip(1) {
            let mut consumers: Vec<LayerId> =
                network.consumers(id).into_iter().map(|(consumer, _)| consumer).collect();
            // A consumer may take the same output twice: it is moved once.
            consumers.dedup();
            for consumer in consumers {
                problem.add_edge(NodeId(id.index() - 1), NodeId(consumer.index() - 1));
            }
        }
        Ok(problem)
    }

    /// Whether there are the times of all shards on these GPU counts, and of the whole batch.
    pub(super) fn check_times(&self, counts: &[usize]) -> Result<(), Error> {
        let samples = self.micro_batch()?;
        let shards = counts.iter().flat_map(|&count| [samples.div_ceil(count), samples / count]);
        let mut sizes: Vec<usize> = shards.chain([self.batch]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for (id, _) in self.costs.network().layers().skip(1) {
            for &samples in &sizes {
                self.costs.layer_time(id, samples)?;
            }
        }
        Ok(())
    }

    /// What the planner's questions cost.
    #[must_use]
    pub fn training_costs(&self) -> JobCosts<'_> {
        let network = self.costs.network();
        let layers: Vec<LayerId> = network.layers().skip(1).map(|(id, _)| id).collect();
        let needs_gradient = network.needs_gradient();
        let bytes = layers.iter().map(|&id| LayerBytes::of(network, id, &needs_gradient)).collect();
        let batch = self.batch / self.lowering.micro_batches.max(1);
        JobCosts {
            costs: &self.costs,
            batch,
            layers,
            bytes,
            counts: None,
            replicas: (1, 0),
            traffic: RefCell::default(),
            least_loads: RefCell::default(),
            least_loads_among: RefCell::default(),
            least_reductions: RefCell::default(),
        }
    }

    /// The same, with times for these GPU counts alone, and for one GPU, which amplification needs: then a search cannot
    /// propose others.
    pub(super) fn training_costs_on(&self, counts: Vec<usize>) -> JobCosts<'_> {
        JobCosts { counts: Some(counts), ..self.training_costs() }
    }
}

fn gradient_options(lowering: &LowerOptions) -> GradientOptions {
    GradientOptions {
        bucket_bytes: lowering.bucket_bytes,
        overlap: lowering.overlap_all_reduce,
        clip_norm: lowering.optimizer.clip_norm.is_some(),
        metrics_bytes: METRICS * ELEMENT_BYTES,
    }
}

fn node(
    network: &LayerGraph,
    id: LayerId,
    counts: &[usize],
    lowering: &LowerOptions,
    needs_gradient: &[bool],
) -> TrainingNode {
    let layer = network.layer(id);
    let owner = network.parameter_owner(id);
    let bytes = |role: Role| role.elements(layer, 0) as u64 * ELEMENT_BYTES;
    let input_gradient = network.producers(id).iter().any(|producer| needs_gradient[producer.index()]);
    let forward = Pass::forward(layer).contains(&Pass::ForwardMoments);
    let backward = input_gradient && Pass::backward(layer, true).contains(&Pass::BackwardMoments);
    let synchronized = SynchronizedBytes {
        forward: if forward { bytes(Role::Moments) } else { 0 },
        backward: if backward { bytes(Role::GradientMoments) } else { 0 },
    };
    let gradient_bytes = network.own_parameter_count(id) as u64 * ELEMENT_BYTES;
    let mut node = TrainingNode::new(layer.name(), counts.iter().copied());
    node.gradient_bytes = gradient_bytes;
    // Parameters and velocities.
    node.state_bytes = 2 * gradient_bytes;
    node.parameters_of = (owner != id).then(|| NodeId(owner.index() - 1));
    node.synchronized = (lowering.sync_batch_norm && forward).then_some(synchronized);
    node.backward_reads = backward_reads(network, id, needs_gradient);
    node.is_kept = !is_read_once(network, id);
    node
}

/// By the ranks that have samples, and the ranks that they go to.
type KnownTraffic = FxHashMap<Vec<usize>, FxHashMap<Vec<usize>, Traffic>>;

/// The costs of a job's steps and collectives, for the planner: those that the simulator takes.
pub struct JobCosts<'a> {
    costs: &'a Costs<'a>,
    /// Samples of a micro-batch.
    batch: usize,
    layers: Vec<LayerId>,
    /// By layer.
    bytes: Vec<LayerBytes>,
    /// Which GPU counts there are times for, beside one; `None` is all.
    counts: Option<Vec<usize>>,
    /// How many replicas of its ranks reduce gradients together, and how far the ranks of one are from those of the next.
    replicas: (usize, usize),
    /// What moves from some ranks to others.
    traffic: RefCell<KnownTraffic>,
    /// By numbers of ranks: what moving samples from the one to the other loads on some rank at least.
    least_loads: RefCell<FxHashMap<(usize, usize), LeastLoad>>,
    /// By numbers of ranks, of which the shorter list's are among the longer one's, and how many of these have the larger share there.
    least_loads_among: RefCell<FxHashMap<(usize, usize, usize), Load>>,
    /// By the number of ranks: what an all-reduce of very many bytes takes at least, microseconds.
    least_reductions: RefCell<FxHashMap<usize, f64>>,
}

impl JobCosts<'_> {
    /// The same for one of so many replicas on so many GPUs each, whose gradients are reduced over all of them.
    pub(super) fn replicated(self, gpus: usize, replicas: usize) -> Self {
        Self { replicas: (replicas, gpus), ..self }
    }

    fn samples(&self, ranks: usize, share: Share) -> usize {
        match share {
            Share::Larger => self.batch.div_ceil(ranks),
            Share::Smaller => self.batch / ranks,
        }
    }

    fn least_load(&self, from: usize, to: usize) -> LeastLoad {
        let (narrow, wide) = (from.min(to), from.max(to));
        let mut known = self.least_loads.borrow_mut();
        *known.entry((narrow, wide)).or_insert_with(|| LeastLoad::new(self.batch, narrow, wide))
    }

    fn least_send_us(&self, producer: NodeId, load: Load) -> f64 {
        let sample_bytes = self.costs.network().layer(self.layers[producer.0]).output_bytes();
        micros(self.costs.link().least_send(sample_bytes * load.samples as u64, load.messages))
    }

    fn traffic(&self, from: &[usize], to: &[usize]) -> Option<Traffic> {
        let partition = |ranks: &[usize]| Partition::even(self.batch, ranks).ok();
        let redistribution = Redistribution::new(&partition(from)?, &partition(to)?).ok()?;
        Some(self.costs.link().traffic(&redistribution))
    }
}

impl TrainingCosts for JobCosts<'_> {
    fn larger_shares(&self, ranks: usize) -> usize {
        match self.batch % ranks {
            0 => ranks,
            larger => larger,
        }
    }

    fn replicas(&self) -> usize {
        self.replicas.0
    }

    fn compute(&self, node: NodeId, ranks: usize, share: Share) -> Option<StepTimes> {
        let is_known = |counts: &Vec<usize>| ranks == 1 || counts.contains(&ranks);
        if ranks > self.batch || !self.counts.as_ref().is_none_or(is_known) {
            return None;
        }
        let samples = self.samples(ranks, share);
        let time = self.costs.layer_time(self.layers[node.0], samples).ok()?;
        Some(StepTimes {
            forward_us: micros(time.forward),
            backward_us: micros(time.backward),
            update_us: micros(time.update),
        })
    }

    fn memory(&self, node: NodeId, ranks: usize, share: Share) -> NodeMemory {
        self.bytes[node.0].on(self.samples(ranks, share))
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        let sample_bytes = self.costs.network().layer(self.layers[producer.0]).output_bytes();
        let time_us = |traffic: &Traffic| micros(self.costs.link().traffic_time(traffic, sample_bytes));
        let mut known = self.traffic.borrow_mut();
        if let Some(traffic) = known.get(from).and_then(|known| known.get(to)) {
            return time_us(traffic);
        }
        // Lists of different ranks are never refused.
        let Some(traffic) = self.traffic(from, to) else { return f64::INFINITY };
        let took_us = time_us(&traffic);
        known.entry(from.to_vec()).or_default().insert(to.to_vec(), traffic);
        took_us
    }

    fn reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        let (replicas, apart) = self.replicas;
        if replicas == 1 {
            return micros(self.costs.link().all_reduce_among(ranks, bytes));
        }
        let of_replica = |replica: usize| ranks.iter().map(move |rank| rank + replica * apart);
        let all: Vec<usize> = (0..replicas).flat_map(of_replica).collect();
        micros(self.costs.link().all_reduce_among(&all, bytes))
    }

    fn least_transfer(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        self.least_send_us(producer, self.least_load(from, to).any)
    }

    fn least_transfer_apart(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        self.least_send_us(producer, self.least_load(from, to).apart)
    }

    fn least_transfer_among(&self, producer: NodeId, wide: usize, narrow: usize, larger: usize) -> f64 {
        let mut known = self.least_loads_among.borrow_mut();
        let of = |load: LeastLoad| load.among(self.batch, (narrow, wide), larger);
        let load = *known.entry((narrow, wide, larger)).or_insert_with(|| of(self.least_load(wide, narrow)));
        self.least_send_us(producer, load)
    }

    fn least_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        const MANY: u64 = 1 << 40;
        let mut known = self.least_reductions.borrow_mut();
        let of_many_us =
            *known.entry(ranks).or_insert_with(|| micros(self.costs.link().least_all_reduce(ranks, MANY)));
        of_many_us * (bytes as f64 / MANY as f64)
    }

    fn least_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        // On one switch it does not matter which ranks these are.
        let first: Vec<usize> = (0..ranks).collect();
        if self.costs.link().ranks_by_level().len() == 1 {
            self.reduce(bytes, &first)
        } else {
            self.least_reduce(bytes, ranks)
        }
    }
}
