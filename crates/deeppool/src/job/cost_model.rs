//! The planner's cost model of a job.

use std::cell::RefCell;

use burst_planner::{CostBounds, CostModel, NodeId, NodeMemory, ShardSize, StepTimes};
use collectives::{Partition, Redistribution, Traffic};
use rustc_hash::FxHashMap;

use super::layer_memory::LayerBytes;
use super::transfer_bounds::{LeastLoad, Load};
use super::{Job, PlannerNodes};
use crate::costs::{Costs, micros};

/// By the ranks that have samples, and the ranks that they go to.
type KnownTraffic = FxHashMap<Vec<usize>, FxHashMap<Vec<usize>, Traffic>>;

/// The costs of a job's steps and collectives, for the planner: those that the simulator takes.
pub struct JobCosts<'a> {
    costs: &'a Costs<'a>,
    /// Samples of a micro-batch.
    batch: usize,
    nodes: PlannerNodes<'a>,
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

impl<'a> JobCosts<'a> {
    /// Returns the costs of a job, with times for all GPU counts.
    #[must_use]
    pub fn new(job: &'a Job<'_>) -> Self {
        let network = job.costs.network();
        let nodes = PlannerNodes::new(network);
        let needs_gradient = network.needs_gradient();
        let bytes = nodes.layers().iter().map(|&id| LayerBytes::of(network, id, &needs_gradient)).collect();
        Self {
            costs: &job.costs,
            batch: job.batch / job.lowering.micro_batches.max(1),
            nodes,
            bytes,
            counts: None,
            replicas: (1, 0),
            traffic: RefCell::default(),
            least_loads: RefCell::default(),
            least_loads_among: RefCell::default(),
            least_reductions: RefCell::default(),
        }
    }

    /// Restricts the times to these GPU counts, and one GPU, which amplification needs: a search cannot propose others.
    pub(crate) fn on_counts(self, counts: Vec<usize>) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// The same for one of so many replicas on so many GPUs each, whose gradients are reduced over all of them.
    pub(crate) fn replicated(self, gpus: usize, replicas: usize) -> Self {
        Self { replicas: (replicas, gpus), ..self }
    }

    fn samples(&self, ranks: usize, share: ShardSize) -> usize {
        match share {
            ShardSize::Larger => self.batch.div_ceil(ranks),
            ShardSize::Smaller => self.batch / ranks,
        }
    }

    fn least_load(&self, from: usize, to: usize) -> LeastLoad {
        let (narrow, wide) = (from.min(to), from.max(to));
        let mut known = self.least_loads.borrow_mut();
        *known.entry((narrow, wide)).or_insert_with(|| LeastLoad::new(self.batch, narrow, wide))
    }

    fn least_send_us(&self, producer: NodeId, load: Load) -> f64 {
        let sample_bytes = self.costs.network().layer(self.nodes.layer(producer)).output_bytes();
        micros(self.costs.link().send_lower_bound(sample_bytes * load.samples as u64, load.messages))
    }

    fn traffic(&self, from: &[usize], to: &[usize]) -> Option<Traffic> {
        let partition = |ranks: &[usize]| Partition::even(self.batch, ranks).ok();
        let redistribution = Redistribution::new(&partition(from)?, &partition(to)?).ok()?;
        Some(self.costs.link().traffic(&redistribution))
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
        let samples = self.samples(ranks, share);
        let time = self.costs.layer_time(self.nodes.layer(node), samples).ok()?;
        Some(StepTimes {
            forward_us: micros(time.forward),
            backward_us: micros(time.backward),
            update_us: micros(time.update),
        })
    }

    fn memory(&self, node: NodeId, ranks: usize, share: ShardSize) -> NodeMemory {
        self.bytes[node.0].on(self.samples(ranks, share))
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        let sample_bytes = self.costs.network().layer(self.nodes.layer(producer)).output_bytes();
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

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        let (replicas, apart) = self.replicas;
        if replicas == 1 {
            return micros(self.costs.link().all_reduce_among(ranks, bytes));
        }
        let of_replica = |replica: usize| ranks.iter().map(move |rank| rank + replica * apart);
        let all: Vec<usize> = (0..replicas).flat_map(of_replica).collect();
        micros(self.costs.link().all_reduce_among(&all, bytes))
    }

    fn bounds(&self) -> Option<&dyn CostBounds> {
        Some(self)
    }
}

impl CostBounds for JobCosts<'_> {
    fn min_transfer(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        self.least_send_us(producer, self.least_load(from, to).any)
    }

    fn min_transfer_unnested(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        self.least_send_us(producer, self.least_load(from, to).apart)
    }

    fn min_transfer_to_subset(&self, producer: NodeId, wide: usize, narrow: usize, larger: usize) -> f64 {
        let mut known = self.least_loads_among.borrow_mut();
        let of = |load: LeastLoad| load.among(self.batch, (narrow, wide), larger);
        let load = *known.entry((narrow, wide, larger)).or_insert_with(|| of(self.least_load(wide, narrow)));
        self.least_send_us(producer, load)
    }

    fn min_marginal_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        const MANY: u64 = 1 << 40;
        let mut known = self.least_reductions.borrow_mut();
        let of_many_us = *known
            .entry(ranks)
            .or_insert_with(|| micros(self.costs.link().all_reduce_lower_bound(ranks, MANY)));
        of_many_us * (bytes as f64 / MANY as f64)
    }

    fn min_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        // On one switch it does not matter which ranks these are.
        let first: Vec<usize> = (0..ranks).collect();
        if self.costs.link().ranks_by_level().len() == 1 {
            self.all_reduce(bytes, &first)
        } else {
            self.min_marginal_all_reduce(bytes, ranks)
        }
    }
}
