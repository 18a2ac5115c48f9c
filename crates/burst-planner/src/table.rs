//! Cost model from tables by GPU count.

use std::collections::{BTreeMap, HashSet};

use crate::costs::{CostBounds, CostModel, NodeMemory, ShardSize, StepTimes};
use crate::error::check_time;
use crate::{Error, Node, NodeId, PlanProblem, Result};

/// Maximum number of GPUs of a problem with cost tables.
const MAX_GPUS: usize = 65_536;

/// Durations of moving a node's output, or its gradient, in one direction, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransferTimes {
    /// Duration if one of the two sets of ranks contains the other.
    pub nested_us: f64,
    /// Duration if neither contains the other.
    pub disjoint_us: f64,
}

/// Duration of an all-reduce: `startup_us + us_per_byte * bytes`, where each rank has `bytes`
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllReduceTime {
    /// Duration of an all-reduce without its bytes, microseconds.
    pub startup_us: f64,
    /// Additional duration per byte on each rank, microseconds.
    pub us_per_byte: f64,
}

/// A [`CostModel`] from tables: costs depend on the number of ranks, not on which ranks. All ranks
/// of a node have equal shards, and all links are alike. [`PlanProblem::from_json`] reads a problem
/// file into such tables.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TableCosts {
    /// By node and GPU count.
    steps: Vec<BTreeMap<usize, StepTimes>>,
    /// By producer, and by the GPU counts of both ends.
    transfers: Vec<BTreeMap<(usize, usize), TransferTimes>>,
    /// By GPU count.
    all_reduce: BTreeMap<usize, AllReduceTime>,
    /// By node and GPU count: [`NodeMemory::held_bytes`].
    held_bytes: Vec<BTreeMap<usize, u64>>,
    /// By node and GPU count: [`NodeMemory::saved_bytes`].
    saved_bytes: Vec<BTreeMap<usize, u64>>,
    /// By node: the size of the whole output.
    output_bytes: Vec<u64>,
}

impl TableCosts {
    /// Creates empty tables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the durations of a node's steps on each of `gpus` GPUs. Returns the previous value.
    pub fn set_steps(&mut self, node: NodeId, gpus: usize, times: StepTimes) -> Option<StepTimes> {
        entry(&mut self.steps, node).insert(gpus, times)
    }

    /// Sets the duration of moving the output of `producer`, or its gradient, from `from` to `to`
    /// GPUs. Returns the previous value.
    pub fn set_transfer(
        &mut self,
        producer: NodeId,
        from: usize,
        to: usize,
        times: TransferTimes,
    ) -> Option<TransferTimes> {
        entry(&mut self.transfers, producer).insert((from, to), times)
    }

    /// Sets the duration of an all-reduce between `gpus` GPUs. A count without a value uses the
    /// next larger one, or the largest. Returns the previous value.
    pub fn set_all_reduce(&mut self, gpus: usize, time: AllReduceTime) -> Option<AllReduceTime> {
        self.all_reduce.insert(gpus, time)
    }

    /// Sets a node's [`NodeMemory::held_bytes`] on each of `gpus` GPUs; 0 by default. Returns the
    /// previous value.
    pub fn set_memory(&mut self, node: NodeId, gpus: usize, bytes: u64) -> Option<u64> {
        entry(&mut self.held_bytes, node).insert(gpus, bytes)
    }

    /// Sets a node's [`NodeMemory::saved_bytes`] on each of `gpus` GPUs; 0 by default. Returns the
    /// previous value.
    pub fn set_saved(&mut self, node: NodeId, gpus: usize, bytes: u64) -> Option<u64> {
        entry(&mut self.saved_bytes, node).insert(gpus, bytes)
    }

    /// Sets the size of a node's whole output, bytes, which is divided evenly among its ranks; 0 by
    /// default.
    pub fn set_output_bytes(&mut self, node: NodeId, bytes: u64) {
        *entry(&mut self.output_bytes, node) = bytes;
    }

    /// Returns the durations of moving the output of `producer` from `from` to `to` GPUs, or `None`
    /// if they are not set.
    #[must_use]
    pub fn transfer_times(&self, producer: NodeId, from: usize, to: usize) -> Option<TransferTimes> {
        self.transfers.get(producer.0)?.get(&(from, to)).copied()
    }

    /// Returns the duration of an all-reduce between `gpus` GPUs, if any is set.
    fn all_reduce_time(&self, gpus: usize) -> Option<&AllReduceTime> {
        self.all_reduce.range(gpus..).next().or(self.all_reduce.last_key_value()).map(|(_, time)| time)
    }

    /// Returns the tables with the durations of all transfers and all-reduces multiplied by
    /// `factor`.
    #[must_use]
    pub fn with_communication_scaled(mut self, factor: f64) -> Self {
        for times in self.transfers.iter_mut().flat_map(BTreeMap::values_mut) {
            times.nested_us *= factor;
            times.disjoint_us *= factor;
        }
        for time in self.all_reduce.values_mut() {
            time.startup_us *= factor;
            time.us_per_byte *= factor;
        }
        self
    }

    /// Checks that the tables have every time that an arrangement of the problem can need, and that
    /// no sum of times overflows. Linear in the size of the tables.
    ///
    /// # Errors
    /// Those of [`PlanProblem::validate`]; [`Error::TooManyGpus`] above 65,536 GPUs;
    /// [`Error::OptionGpus`] if a GPU count exceeds the number of GPUs; [`Error::BadTime`] if a
    /// time is negative or not finite; [`Error::NoTimes`], [`Error::NoTransfer`] and
    /// [`Error::NoAllReduce`] if a step, a transfer or an all-reduce has no time;
    /// [`Error::TimesOverflow`] if the sum is infinite.
    pub fn validate(&self, problem: &PlanProblem) -> Result<()> {
        problem.validate()?;
        if problem.gpus > MAX_GPUS {
            return Err(Error::TooManyGpus { gpus: problem.gpus, max: MAX_GPUS });
        }
        for (index, node) in problem.nodes.iter().enumerate() {
            self.check_steps(index, node, problem.gpus)?;
        }
        let mut pairs = HashSet::new();
        for &(NodeId(from), NodeId(to)) in &problem.edges {
            let (producer, consumer) = (&problem.nodes[from], &problem.nodes[to]);
            for &own in &producer.gpu_counts {
                for &other in &consumer.gpu_counts {
                    // Two lists of all GPUs are the same set.
                    if own < problem.gpus || other < problem.gpus {
                        pairs.extend([(NodeId(from), own, other), (NodeId(from), other, own)]);
                    }
                }
            }
        }
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_unstable();
        for (node, from, to) in pairs {
            if self.transfer_times(node, from, to).is_none() {
                let node = problem.nodes[node.0].name.clone();
                return Err(Error::NoTransfer { node, from, to });
            }
        }
        self.check_communication(problem)?;
        self.check_sums(problem)
    }

    fn check_steps(&self, index: usize, node: &Node, available: usize) -> Result<()> {
        for (option, &gpus) in node.gpu_counts.iter().enumerate() {
            let name = || node.name.clone();
            if gpus > available {
                return Err(Error::OptionGpus { node: name(), option, gpus, available });
            }
            let times = self.steps.get(index).and_then(|by_count| by_count.get(&gpus));
            let times = times.ok_or_else(|| Error::NoTimes { node: name(), gpus })?;
            let place = || format!("node `{}` on {gpus} GPUs", node.name);
            check_time(times.forward_us, "forward_us", place)?;
            check_time(times.backward_us, "backward_us", place)?;
            check_time(times.update_us, "update_us", place)?;
        }
        Ok(())
    }

    fn check_communication(&self, problem: &PlanProblem) -> Result<()> {
        for (node, table) in problem.nodes.iter().zip(&self.transfers) {
            for (&(from, to), times) in table {
                let place = || format!("node `{}`, its output from {from} to {to} GPUs", node.name);
                check_time(times.nested_us, "transfer_us", place)?;
                check_time(times.disjoint_us, "transfer_disjoint_us", place)?;
            }
        }
        for (gpus, time) in &self.all_reduce {
            let place = || format!("the all-reduce between {gpus} GPUs");
            check_time(time.startup_us, "startup_us", place)?;
            check_time(time.us_per_byte, "us_per_byte", place)?;
        }
        let counts = problem.nodes.iter().flat_map(|node| &node.gpu_counts);
        let maximum = counts.copied().max().unwrap_or(1);
        // Shared parameters and the norm are reduced between the ranks of several nodes.
        let joins =
            problem.gradients.clip_norm || problem.nodes.iter().any(|node| node.parameters_of.is_some());
        let maximum = if joins { problem.gpus } else { maximum };
        let largest = self.all_reduce.last_key_value().map_or(1, |(&gpus, _)| gpus);
        if largest < maximum { Err(Error::NoAllReduce { gpus: maximum }) } else { Ok(()) }
    }

    /// Checks that an upper bound of all sums of times is finite.
    fn check_sums(&self, problem: &PlanProblem) -> Result<()> {
        /// More than the number of simulated iterations.
        const ITERATIONS: f64 = 1000.0;
        let steps: f64 = self.steps.iter().flat_map(BTreeMap::values).map(StepTimes::total_us).sum();
        let consumers = problem.edges.len() as f64;
        let transfers = self.transfers.iter().flat_map(BTreeMap::values);
        let transfers =
            2.0 * consumers * transfers.map(|times| times.nested_us + times.disjoint_us).sum::<f64>();
        let synchronized = problem.nodes.iter().filter_map(|node| node.synchronized);
        let synchronized = synchronized.map(|bytes| bytes.forward as f64 + bytes.backward as f64);
        let gradients = problem.nodes.iter().map(|node| node.gradient_bytes as f64);
        let metrics = (problem.gradients.metrics_bytes as f64) * problem.nodes.len() as f64;
        let bytes = synchronized.chain(gradients).sum::<f64>() + metrics + 4.0;
        let collectives = 4.0 * problem.nodes.len() as f64 + 2.0;
        let all_reduces = self.all_reduce.values();
        let all_reduces = all_reduces.map(|time| time.startup_us * collectives + time.us_per_byte * bytes);
        let total = ITERATIONS * problem.gpus as f64 * (steps + transfers + all_reduces.sum::<f64>());
        if total.is_finite() { Ok(()) } else { Err(Error::TimesOverflow) }
    }
}

impl CostModel for TableCosts {
    fn compute(&self, node: NodeId, ranks: usize, _share: ShardSize) -> Option<StepTimes> {
        self.steps.get(node.0)?.get(&ranks).copied()
    }

    fn memory(&self, node: NodeId, ranks: usize, _share: ShardSize) -> NodeMemory {
        let of_count = |table: &[BTreeMap<usize, u64>]| table.get(node.0)?.get(&ranks).copied();
        let (held, saved) = (of_count(&self.held_bytes), of_count(&self.saved_bytes));
        let output = self.output_bytes.get(node.0).copied().unwrap_or(0);
        NodeMemory {
            held_bytes: held.unwrap_or(0),
            samples_bytes: 0,
            saved_bytes: saved.unwrap_or(0),
            step_bytes: 0,
            output_bytes: output.div_ceil(ranks.max(1) as u64),
        }
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        let Some(table) = self.transfers.get(producer.0) else { return 0.0 };
        let Some(times) = table.get(&(from.len(), to.len())) else {
            // A search can ask for counts that the node cannot run on. They must not look better
            // than possible ones.
            return table.values().map(|times| times.nested_us.max(times.disjoint_us)).fold(0.0, f64::max);
        };
        if are_nested(from, to) { times.nested_us } else { times.disjoint_us }
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.all_reduce_time(ranks.len())
            .map_or(0.0, |time| time.startup_us + time.us_per_byte * bytes as f64)
    }

    fn bounds(&self) -> Option<&dyn CostBounds> {
        Some(self)
    }
}

impl CostBounds for TableCosts {
    fn min_transfer(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        self.transfer_times(producer, from, to).map_or(0.0, |times| times.nested_us.min(times.disjoint_us))
    }

    fn min_marginal_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        self.all_reduce_time(ranks).map_or(0.0, |time| time.us_per_byte * bytes as f64)
    }

    fn min_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        self.all_reduce_time(ranks).map_or(0.0, |time| time.startup_us + time.us_per_byte * bytes as f64)
    }
}

/// Returns whether one list contains the other. O(from + to).
fn are_nested(from: &[usize], to: &[usize]) -> bool {
    let (few, many) = if from.len() < to.len() { (from, to) } else { (to, from) };
    if many.starts_with(few) {
        return true;
    }
    let many: HashSet<_> = many.iter().collect();
    few.iter().all(|rank| many.contains(rank))
}

fn entry<T: Default>(by_node: &mut Vec<T>, NodeId(node): NodeId) -> &mut T {
    if by_node.len() <= node {
        by_node.resize_with(node + 1, T::default);
    }
    &mut by_node[node]
}
