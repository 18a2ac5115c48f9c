//! The planner's cost model of a job. A *node* of the planner is a layer, as [`PlannerNodes`] maps
//! them. Ranks are `0..gpus`.

use std::cell::RefCell;

use burst_planner::{
    CostBounds, CostModel, NodeId, NodeMemory, ShardSize, SplitCosts, StepTimes, TensorLayout, Values,
};
use collectives::{CollectiveKind, Traffic};
use layer_engine::{Precision, Role};
use layer_graph::LayerId;
use layer_profile::{ContendedTimes, LayerTime};
use rustc_hash::FxHashMap;

use super::layer_memory::LayerBytes;
use super::rank_lists::RankListIndices;
use super::splits::{SplitPart, Splits, layer_values};
use super::transfer_bounds::Load;
use super::{Job, PlannerNodes};
use crate::costs::{Costs, micros};
use crate::program::ELEMENT_BYTES;

/// Cache of the traffic of redistributions.
#[derive(Default)]
struct TrafficCache {
    lists: RankListIndices,
    /// Traffic by the indices of both lists, the smaller one first: it is the same in both
    /// directions.
    traffic: FxHashMap<(u32, u32), Traffic>,
}

/// Times of the steps of all nodes, by node; `None` if the profile has no time.
type NodeTimes = Vec<Option<StepTimes>>;

/// The planner's cost model of a job: the times of the steps of a micro-batch and of collectives.
/// The simulator uses the same times.
pub struct JobCosts<'a> {
    costs: &'a Costs<'a>,
    /// Number of samples of a micro-batch.
    batch: usize,
    precision: Precision,
    nodes: PlannerNodes<'a>,
    /// By node: size of the output for a sample, bytes.
    sample_bytes: Vec<u64>,
    /// Memory of each node, by node.
    bytes: Vec<LayerBytes>,
    /// Parts of split layers; `None` if no layer may be split.
    splits: Option<Splits>,
    /// GPU counts with times, besides one; `None` is all counts.
    counts: Option<Vec<usize>>,
    /// Number of replicas whose gradients are reduced together, and the distance in ranks from one
    /// replica to the next.
    replicas: (usize, usize),
    /// Cache of the times of steps, by number of samples and of ranks that compute at once.
    times: RefCell<FxHashMap<(usize, usize), NodeTimes>>,
    /// Cache of the traffic of redistributions.
    traffic: RefCell<TrafficCache>,
    /// Cache of lower bounds on the load of a redistribution, by the two numbers of ranks.
    min_loads: RefCell<FxHashMap<(usize, usize), Load>>,
    /// Cache of lower bounds on the time of an all-reduce of 1 TiB in microseconds, by the number
    /// of ranks.
    min_reductions_us: RefCell<FxHashMap<usize, f64>>,
}

impl<'a> JobCosts<'a> {
    /// Creates the cost model of a job, for all GPU counts.
    #[must_use]
    pub fn new(job: &'a Job<'_>) -> Self {
        let (network, nodes) = (job.costs.network(), job.nodes());
        let needs_gradient = network.needs_gradient();
        let precision = job.lowering().precision;
        let sample_bytes = |&id: &LayerId| {
            let layer = network.layer(id);
            let scalars = Role::Output.storage(layer, precision).scalars(layer.output_shape().elements());
            scalars as u64 * ELEMENT_BYTES
        };
        let sample_bytes = nodes.layers().iter().map(sample_bytes).collect();
        let bytes =
            |&id: &LayerId| LayerBytes::of(network, (id, network.layer(id)), &needs_gradient, precision);
        let bytes = nodes.layers().iter().map(bytes).collect();
        Self {
            costs: &job.costs,
            batch: job.batch / job.lowering.micro_batches.max(1),
            splits: Splits::new(&nodes, &needs_gradient, precision, job.costs.profile().parts().len() == 0),
            precision,
            nodes,
            sample_bytes,
            bytes,
            counts: None,
            replicas: (1, 0),
            times: RefCell::default(),
            traffic: RefCell::default(),
            min_loads: RefCell::default(),
            min_reductions_us: RefCell::default(),
        }
    }

    /// Restricts the layer times to these GPU counts and one GPU, which amplification needs. A
    /// search cannot propose other counts.
    pub(crate) fn on_counts(self, counts: Vec<usize>) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// Returns the costs of one of `replicas` replicas of the network on `gpus` GPUs each.
    /// Gradients are reduced over all replicas.
    pub(crate) fn replicated(self, gpus: usize, replicas: usize) -> Self {
        Self { replicas: (replicas, gpus), ..self }
    }

    fn samples(&self, ranks: usize, share: ShardSize) -> usize {
        match share {
            ShardSize::Larger => self.batch.div_ceil(ranks),
            ShardSize::Smaller => self.batch / ranks,
        }
    }

    /// Returns the number of ranks that compute at once while a layer runs on `ranks` ranks, up to
    /// the number for which the profile has times.
    fn computing(&self, ranks: usize) -> usize {
        let max = self.costs.profile().contended().map_or(1, ContendedTimes::ranks);
        (ranks * self.replicas.0).min(max)
    }

    /// Returns the times of the steps of a node that is not split.
    fn layer_time(&self, node: NodeId, samples: usize, computing: usize) -> Option<LayerTime> {
        self.costs.layer_time_among(self.nodes.layer(node), samples, computing as f64).ok()
    }
}

/// Returns the times of the steps of a layer or a part in microseconds.
fn step_times(time: &LayerTime) -> StepTimes {
    StepTimes {
        forward_us: micros(time.forward),
        backward_us: micros(time.backward),
        update_us: micros(time.update),
    }
}

impl CostModel for JobCosts<'_> {
    fn ranks_with_larger_shard(&self, ranks: usize) -> usize {
        match self.batch % ranks {
            0 => ranks,
            larger => larger,
        }
    }

    fn replicas(&self) -> usize {
        self.replicas.0
    }

    fn compute(&self, node: NodeId, ranks: usize, share: ShardSize) -> Option<StepTimes> {
        let is_known = |counts: &Vec<usize>| ranks == 1 || counts.contains(&ranks);
        if ranks > self.batch || !self.counts.as_ref().is_none_or(is_known) {
            return None;
        }
        let (samples, computing) = (self.samples(ranks, share), self.computing(ranks));
        let mut times = self.times.borrow_mut();
        let of_nodes = times.entry((samples, computing)).or_insert_with(|| {
            let nodes = (0..self.sample_bytes.len()).map(NodeId);
            nodes.map(|node| Some(step_times(&self.layer_time(node, samples, computing)?))).collect()
        });
        of_nodes[node.0]
    }

    fn memory(&self, node: NodeId, ranks: usize, share: ShardSize) -> NodeMemory {
        self.bytes[node.0].on(self.samples(ranks, share))
    }

    fn round_trip(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        // The traffic is the same in both directions.
        2.0 * CostModel::transfer(self, producer, from, to)
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        let sample_bytes = self.sample_bytes[producer.0];
        let time_us = |traffic: &Traffic| micros(self.costs.link().traffic_time(traffic, sample_bytes));
        let cache = &mut *self.traffic.borrow_mut();
        let (here, there) = (cache.lists.index(from), cache.lists.index(to));
        let lists = (here.min(there), here.max(there));
        if let Some(traffic) = cache.traffic.get(&lists) {
            return time_us(traffic);
        }
        let traffic = self.costs.link().even_traffic(self.batch, from, to);
        let took_us = time_us(&traffic);
        cache.traffic.insert(lists, traffic);
        took_us
    }

    fn transfer_key(&self, producer: NodeId) -> u64 {
        let bytes = self.sample_bytes[producer.0];
        // Parts of tensors of the same size may have other units.
        let view = self.splits.as_ref().map_or(0, |splits| splits.view_index(producer));
        bytes.wrapping_mul(1 << 16).wrapping_add(view as u64)
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.grouped_all_reduce(bytes, ranks, 1)
    }

    fn grouped_all_reduce(&self, bytes: u64, ranks: &[usize], groups: usize) -> f64 {
        let (replicas, distance) = self.replicas;
        let time_us = |ranks: &[usize]| {
            micros(self.costs.link().cost_in_groups(CollectiveKind::AllReduce, ranks, groups, bytes))
        };
        if replicas == 1 {
            return time_us(ranks);
        }
        let group_len = (ranks.len() / groups.max(1)).max(1);
        let of_replicas = |group: &[usize]| -> Vec<usize> {
            (0..replicas)
                .flat_map(|replica| group.iter().map(move |rank| rank + replica * distance))
                .collect()
        };
        time_us(&ranks.chunks(group_len).flat_map(of_replicas).collect::<Vec<_>>())
    }

    fn splits(&self) -> Option<&dyn SplitCosts> {
        self.splits.is_some().then_some(self)
    }

    fn bounds(&self) -> Option<&dyn CostBounds> {
        Some(self)
    }
}

impl SplitCosts for JobCosts<'_> {
    fn compute(&self, node: NodeId, split: usize, ranks: usize, share: ShardSize) -> Option<StepTimes> {
        let splits = self.splits.as_ref()?;
        let ranges = ranks / splits.part(node, split)?.parts;
        if ranges == 0 || ranges > self.batch {
            return None;
        }
        let samples = self.samples(ranges, share);
        let ratios = splits.ratios((node, split), samples, |part| {
            self.costs.part_ratios((self.nodes.layer(node), part), samples).ok()
        })?;
        Some(step_times(&ratios.of(&self.layer_time(node, samples, self.computing(ranks))?)))
    }

    fn memory(&self, node: NodeId, split: usize, ranks: usize, share: ShardSize) -> NodeMemory {
        let part = self.splits.as_ref().and_then(|splits| splits.part(node, split));
        let memory = |part: &SplitPart| part.bytes.on(self.samples((ranks / part.parts).max(1), share));
        part.map(memory).unwrap_or_default()
    }

    fn transfer(&self, producer: NodeId, from: TensorLayout<'_>, to: TensorLayout<'_>) -> f64 {
        let Some(splits) = &self.splits else { return 0.0 };
        let view = splits.view(producer);
        if self.reduces_addends_in_place() && from.is_all_reduced_to(&to) {
            let groups = from.ranks.len() / from.parts;
            let elements = self.samples(groups, ShardSize::Larger) * view.elements();
            return self.grouped_all_reduce(elements as u64 * ELEMENT_BYTES, from.ranks, groups);
        }
        splits.transfer(self.batch, view, [from, to], self.costs.link())
    }

    /// Collectives reduce scalars only.
    fn reduces_addends_in_place(&self) -> bool {
        self.precision != Precision::Bf16
    }

    fn output_bytes(
        &self,
        producer: NodeId,
        ranks: usize,
        parts: usize,
        values: Values,
        share: ShardSize,
    ) -> u64 {
        let Some(splits) = &self.splits else { return 0 };
        let view = splits.view(producer);
        let elements = view.part_elements(layer_values(values), parts, 0) as u64;
        let sample_bytes = self.sample_bytes[producer.0] * elements / view.elements().max(1) as u64;
        sample_bytes * self.samples((ranks / parts).max(1), share) as u64
    }
}

impl CostBounds for JobCosts<'_> {
    fn min_transfer(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        let (narrow, wide) = (from.min(to), from.max(to));
        if wide > self.batch {
            // Only parts of samples are on that many ranks.
            return 0.0;
        }
        let mut cache = self.min_loads.borrow_mut();
        let load = *cache.entry((narrow, wide)).or_insert_with(|| Load::minimum(self.batch, narrow, wide));
        let bytes = self.sample_bytes[producer.0] * load.samples as u64;
        micros(self.costs.link().send_lower_bound(bytes, load.messages))
    }

    fn min_marginal_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        const REFERENCE_BYTES: u64 = 1 << 40;
        let mut cache = self.min_reductions_us.borrow_mut();
        let reference_us = *cache
            .entry(ranks)
            .or_insert_with(|| micros(self.costs.link().all_reduce_lower_bound(ranks, REFERENCE_BYTES)));
        reference_us * (bytes as f64 / REFERENCE_BYTES as f64)
    }

    fn min_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        // With one switch, the time does not depend on which ranks they are.
        let first: Vec<usize> = (0..ranks).collect();
        if self.costs.link().ranks_by_level().len() == 1 {
            self.all_reduce(bytes, &first)
        } else {
            self.min_marginal_all_reduce(bytes, ranks)
        }
    }
}
