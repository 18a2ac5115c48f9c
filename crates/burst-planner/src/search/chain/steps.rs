//! Costs of nodes of a chain. A *place* is the index of a node in topological order. The *larger*
//! shard of a batch that does not divide evenly has one sample more than the *smaller* one.

use std::ops::Range;

use crate::NodeId;
use crate::costs::{ShardSize, StepTimes};
use crate::evaluator::{Evaluator, PlanTime};

/// Cost of consecutive nodes on the same ranks.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct StepCost {
    /// Duration of the forward and backward steps on a rank with the larger shard, microseconds.
    pub(super) time_us: f64,
    /// Time by which the forward and backward steps are shorter on a rank with the smaller shard,
    /// microseconds.
    pub(super) less_us: f64,
    /// Duration of the backward steps on a rank with the larger shard, microseconds.
    pub(super) backward_us: f64,
    /// Duration of the optimizer steps on a rank with the larger shard, microseconds.
    pub(super) update_us: f64,
    /// Time of all steps including updates, summed over all ranks, GPU-microseconds.
    pub(super) gpu_us: f64,
}

impl StepCost {
    const NOTHING: Self = Self { time_us: 0.0, less_us: 0.0, backward_us: 0.0, update_us: 0.0, gpu_us: 0.0 };

    fn combined(&self, other: &Self, operation: fn(f64, f64) -> f64) -> Self {
        Self {
            time_us: operation(self.time_us, other.time_us),
            less_us: operation(self.less_us, other.less_us),
            backward_us: operation(self.backward_us, other.backward_us),
            update_us: operation(self.update_us, other.update_us),
            gpu_us: operation(self.gpu_us, other.gpu_us),
        }
    }
}

/// Minimum cost of the nodes from some place on, over all GPU counts.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct MinRemaining {
    /// Sum over the nodes of the minimum duration of forward and backward steps, microseconds.
    pub(super) time_us: f64,
    /// Sum over the nodes of the minimum GPU time, GPU-microseconds.
    pub(super) gpu_us: f64,
    /// Maximum over the nodes of the minimum duration of the update, microseconds.
    pub(super) update_us: f64,
    /// For each of the [`PRICES`]: the sum of their duration and their GPU time at that price.
    priced_us: [f64; PRICES.len()],
}

/// Prices of GPU time.
const PRICES: [f64; 8] = [0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.5, 0.9];

impl MinRemaining {
    /// Returns whether every arrangement of the chain whose first nodes have the times `cost` and
    /// whose remaining nodes have at least this cost is dominated by one of `times`, which are in
    /// ascending order of iteration time and descending order of GPU time.
    pub(super) fn is_dominated(&self, cost: PlanTime, times: &[PlanTime]) -> bool {
        let PlanTime { iteration_us: time_us, gpu_time_us: gpu_us } = cost;
        let (min_us, min_gpu_us) = (time_us + self.time_us, gpu_us + self.gpu_us);
        let slower = times.partition_point(|time| time.iteration_us <= min_us);
        let Some(faster) = slower.checked_sub(1) else { return false };
        // Between two entries: more GPU time than the first one, and slower than the second one.
        for pair in times[faster..].windows(2) {
            let (corner_us, corner_gpu_us) = (pair[1].iteration_us, pair[0].gpu_time_us);
            if corner_gpu_us <= min_gpu_us {
                return true;
            }
            let is_possible = PRICES.iter().zip(&self.priced_us).all(|(price, priced_us)| {
                time_us + price * gpu_us + priced_us < corner_us + price * corner_gpu_us
            });
            if is_possible {
                return false;
            }
        }
        times.last().is_some_and(|last| last.gpu_time_us <= min_gpu_us)
    }
}

/// Sums over the nodes with one GPU count.
struct PrefixSums {
    /// By place: the sum of all nodes before.
    before: Vec<StepCost>,
    /// By place: the number of consecutive nodes from it on that can run on that count.
    usable: Vec<usize>,
}

/// Costs of the nodes of a chain for each of some GPU counts, which are given by their indices.
pub(super) struct ChainSteps {
    /// By count and place; `None` if a node cannot run on that count.
    nodes: Vec<Vec<Option<StepCost>>>,
    by_count: Vec<PrefixSums>,
    /// By place; the last entry is for the end.
    minimum: Vec<MinRemaining>,
    /// By place: bytes of all gradients before.
    bytes_before: Vec<u64>,
    /// By place: the start of a bucket that is full with the gradients before it.
    bucket_begins: Vec<Option<usize>>,
}

impl ChainSteps {
    /// Computes the costs of all nodes for each of `counts`. [`use_first`](Self::use_first)
    /// computes the minima.
    pub(super) fn new(evaluator: &Evaluator<'_>, counts: &[usize]) -> Self {
        let order = evaluator.own_order();
        let nodes: Vec<Vec<Option<StepCost>>> = counts
            .iter()
            .map(|&count| order.iter().map(|&node| step(evaluator, node as usize, count)).collect())
            .collect();
        let mut bytes_before = vec![0_u64];
        for &node in &**order {
            let bytes = evaluator.problem().nodes[node as usize].gradient_bytes;
            bytes_before.push(bytes_before[bytes_before.len() - 1].saturating_add(bytes));
        }
        let gradients = &evaluator.problem().gradients;
        let full_bytes = if gradients.overlap { gradients.bucket_bytes.max(1) } else { u64::MAX };
        let bucket_begins = bytes_before.iter().map(|&end| {
            let begins = bytes_before.partition_point(|&begin| begin.saturating_add(full_bytes) <= end);
            begins.checked_sub(1)
        });
        let bucket_begins = bucket_begins.collect();
        Self {
            by_count: nodes.iter().map(|steps| PrefixSums::of(steps)).collect(),
            nodes,
            minimum: Vec::new(),
            bytes_before,
            bucket_begins,
        }
    }

    /// Computes the minima of [`min_after`](Self::min_after) over the first `counts` GPU counts.
    pub(super) fn use_first(&mut self, counts: usize) {
        let min_over = |place: usize, figure: &dyn Fn(&StepCost) -> f64| {
            let steps = self.nodes[..counts].iter().filter_map(|steps| steps[place].as_ref());
            steps.map(figure).fold(f64::INFINITY, f64::min)
        };
        let mut minimum = vec![MinRemaining::default()];
        for place in (0..self.bytes_before.len() - 1).rev() {
            let after: MinRemaining = minimum[minimum.len() - 1];
            minimum.push(MinRemaining {
                time_us: after.time_us + min_over(place, &|step| step.time_us),
                gpu_us: after.gpu_us + min_over(place, &|step| step.gpu_us),
                update_us: after.update_us.max(min_over(place, &|step| step.update_us)),
                priced_us: std::array::from_fn(|index| {
                    let priced_us = |step: &StepCost| step.time_us + PRICES[index] * step.gpu_us;
                    after.priced_us[index] + min_over(place, &priced_us)
                }),
            });
        }
        minimum.reverse();
        self.minimum = minimum;
    }

    /// Returns the summed cost of the nodes at `places` on the GPU count with index `count`, or
    /// `None` if one of them cannot run on it.
    pub(super) fn cost_on(&self, count: usize, places: &Range<usize>) -> Option<StepCost> {
        let PrefixSums { before, usable } = &self.by_count[count];
        let is_usable = usable[places.start] >= places.len();
        is_usable.then(|| before[places.end].combined(&before[places.start], |to, from| to - from))
    }

    /// Returns the buckets of the nodes at `places`, which are on the same ranks, last nodes first:
    /// the places of its nodes, the number of bytes, and whether the bucket has reached the bucket
    /// size. Ends at the first bucket without gradients.
    pub(super) fn buckets(&self, places: &Range<usize>) -> impl Iterator<Item = (Range<usize>, u64, bool)> {
        let Range { start, mut end } = *places;
        std::iter::from_fn(move || {
            let full = self.bucket_begins[end].filter(|&begins| begins >= start);
            let nodes = full.unwrap_or(start)..end;
            end = nodes.start;
            let bytes = self.bytes_before[nodes.end] - self.bytes_before[nodes.start];
            (bytes > 0).then_some((nodes, bytes, full.is_some()))
        })
    }

    /// Returns the minimum cost of the nodes from `place` on. `place` can be the number of nodes.
    pub(super) fn min_after(&self, place: usize) -> MinRemaining {
        self.minimum[place]
    }
}

impl PrefixSums {
    fn of(steps: &[Option<StepCost>]) -> Self {
        let mut before = vec![StepCost::NOTHING];
        for step in steps {
            let sum =
                before[before.len() - 1].combined(step.as_ref().unwrap_or(&StepCost::NOTHING), |a, b| a + b);
            before.push(sum);
        }
        let mut usable = vec![0];
        for step in steps.iter().rev() {
            usable.push(step.map_or(0, |_| usable[usable.len() - 1] + 1));
        }
        usable.reverse();
        Self { before, usable }
    }
}

fn step(evaluator: &Evaluator<'_>, node: usize, count: usize) -> Option<StepCost> {
    evaluator.problem().nodes[node].gpu_counts.binary_search(&count).ok()?;
    let costs = evaluator.costs();
    let larger = costs.compute(NodeId(node), count, ShardSize::Larger)?;
    let smaller = costs.compute(NodeId(node), count, ShardSize::Smaller)?;
    let many = costs.ranks_with_larger_shard(count).min(count);
    let learns = if evaluator.structure().needs_gradient[node] { 1.0 } else { 0.0 };
    let time_us = |steps: StepTimes| steps.forward_us + learns * steps.backward_us;
    let gpu_us = |steps: StepTimes| time_us(steps) + steps.update_us;
    Some(StepCost {
        time_us: time_us(larger),
        less_us: time_us(larger) - time_us(smaller),
        backward_us: learns * larger.backward_us,
        update_us: larger.update_us,
        gpu_us: many as f64 * gpu_us(larger) + (count - many) as f64 * gpu_us(smaller),
    })
}
