//! Labels: lower bounds for the last blocks of a path, and their pruning.

/// Weights of the steps in sums with the load.
pub(super) const STEP_WEIGHTS: [f64; 8] = [0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8];
/// Number of labels that a label is compared with.
const COMPARED: usize = 24;

/// Lower bounds for the blocks of a path from some place on, microseconds and GPU-microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Label {
    /// Mean time of the first node's ranks with the larger shard: the forward and backward steps,
    /// the transfers between them, and the updates of these ranks.
    pub(super) cycle_us: f64,
    /// The same without updates.
    pub(super) steps_us: f64,
    /// Weighted sum of the GPU time and of [`busy_gpu_us`](Self::busy_gpu_us), relative to the
    /// limit.
    pub(super) load: f64,
    /// For each of the [`STEP_WEIGHTS`]: weighted sum of the steps relative to their limit and of
    /// the load. After labels were merged it can exceed the sum of these two.
    pub(super) sums: [f64; STEP_WEIGHTS.len()],
    /// GPU time: computing, updates, and ranks that wait for transfers.
    pub(super) gpu_us: f64,
    /// GPU time of computing and updates only.
    pub(super) computing_us: f64,
    /// Time by which all-reduces on all GPUs end after the backward step of the first of these
    /// nodes.
    pub(super) busy_us: f64,
    /// GPU time of the path without updates: steps, and ranks that wait for transfers.
    pub(super) path_us: f64,
    /// The same with the all-reduces that do not overlap with it: those of some node and the nodes
    /// before it in the path, instead of the backward steps of the nodes before.
    pub(super) busy_gpu_us: f64,
}

impl Label {
    /// Adds a part of the cycle and load. `cycle` is relative to its limit.
    pub(super) fn add(&mut self, cycle: f64, load: f64) {
        self.load += load;
        self.sums
            .iter_mut()
            .zip(STEP_WEIGHTS)
            .for_each(|(sum, weight)| *sum += weight * cycle + (1.0 - weight) * load);
    }

    /// Raises the load to at least `load`. `cycle` is the whole cycle, relative to its limit.
    pub(super) fn raise(&mut self, cycle: f64, load: f64) {
        self.load = self.load.max(load);
        for (sum, weight) in self.sums.iter_mut().zip(STEP_WEIGHTS) {
            *sum = sum.max(weight * cycle + (1.0 - weight) * self.load);
        }
    }

    /// Lowers this label to at most the other one.
    fn merge(&mut self, other: &Self) {
        self.cycle_us = self.cycle_us.min(other.cycle_us);
        self.load = self.load.min(other.load);
        self.busy_us = self.busy_us.min(other.busy_us);
        self.merge_others(other);
    }

    /// Lowers times that are not compared to at most those of the other one.
    fn merge_others(&mut self, other: &Self) {
        self.steps_us = self.steps_us.min(other.steps_us);
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, other)| *sum = sum.min(other));
        self.gpu_us = self.gpu_us.min(other.gpu_us);
        self.computing_us = self.computing_us.min(other.computing_us);
        self.path_us = self.path_us.min(other.path_us);
        self.busy_gpu_us = self.busy_gpu_us.min(other.busy_gpu_us);
    }
}

/// Sorts labels by cycle, removes those that another one dominates, and merges neighbours until at
/// most `maximum` are left. Returns whether neighbours were merged.
pub(super) fn thin(labels: &mut Vec<Label>, maximum: usize) -> bool {
    labels.sort_unstable_by(|a, b| {
        a.cycle_us
            .total_cmp(&b.cycle_us)
            .then(a.load.total_cmp(&b.load))
            .then(a.busy_us.total_cmp(&b.busy_us))
    });
    let mut kept = 0;
    for place in 0..labels.len() {
        let label = labels[place];
        let from = usize::saturating_sub(kept, COMPARED);
        let better = labels[from..kept]
            .iter()
            .rposition(|other| other.load <= label.load && other.busy_us <= label.busy_us);
        if let Some(better) = better {
            labels[from + better].merge_others(&label);
        } else {
            labels[kept] = label;
            kept += 1;
        }
    }
    labels.truncate(kept);
    let at_once = labels.len().div_ceil(maximum.max(1));
    if at_once < 2 {
        return false;
    }
    let mut kept = 0;
    for start in (0..labels.len()).step_by(at_once) {
        let mut merged = labels[start];
        labels[start + 1..labels.len().min(start + at_once)].iter().for_each(|label| merged.merge(label));
        labels[kept] = merged;
        kept += 1;
    }
    labels.truncate(kept);
    true
}
