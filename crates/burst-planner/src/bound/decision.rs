//! Decision whether an arrangement within an iteration time can exist: dynamic programming over the
//! runs of a path, from its last block to its first one.
//!
//! A *run* is a sequence of consecutive nodes of the path on the same list of ranks, a *place* the
//! index of a block of the path. A *case* is the range of the first node's GPU count. *Labels* have
//! lower bounds for the blocks from a place on.

use super::labels::{Label, STEP_WEIGHTS, thin};
use super::path::PathOption;
use super::run_sums::{RunSums, RunTimes};
use super::tables::{Move, Prefixes, Tables};
use crate::proof::{ProofEnd, Work};

/// Relative tolerance of comparisons with limits, for rounding.
const ROUNDING: f64 = 1e-9;
/// Weights of GPU time in the load, and whether it is counted with waiting ranks instead of the
/// nodes beside the path, which can run meanwhile. The other part of the load is the GPU time with
/// all-reduces.
const LOADS: [(f64, bool); 5] = [(1.0, true), (1.0, false), (0.0, true), (0.5, true), (0.5, false)];
/// Number of labels at the start of a run that are thinned early, as a multiple of the maximum.
const EARLY_THINNING: usize = 8;

/// Limits that arrangements have to keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Iteration time, microseconds.
    pub(super) iteration_us: f64,
    /// GPU time, GPU-microseconds.
    pub(super) gpu_us: f64,
    /// Maximum number of labels by place and range of GPU counts.
    pub(super) labels: usize,
}

/// Answer to a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// No arrangement keeps the limits.
    Impossible,
    /// The bound does not exclude such arrangements, whatever the number of labels.
    Possible,
    /// The bound may exclude them with more labels.
    Unknown,
}

/// The problem of a decision.
pub(super) struct Decision<'t> {
    /// Costs of the path.
    pub(super) tables: &'t Tables<'t>,
    /// Number of GPUs.
    pub(super) gpus: f64,
    /// Whether gradients are reduced during the backward pass.
    pub(super) overlaps: bool,
    /// By case: lower bounds for the first blocks.
    pub(super) prefixes: &'t [Prefixes],
}

impl Decision<'_> {
    /// Decides whether an arrangement may keep `limits`. Fails if the budget of `work` is spent.
    /// O(blocks^2 x ranges x labels + blocks x ranges^2 x labels) for each case and weight.
    pub(super) fn decide(&self, limits: Limits, work: &mut Work<'_>) -> Result<Answer, ProofEnd> {
        // The first node is often on most GPUs.
        for case in (0..self.tables.ranges.len()).rev() {
            let mut answer = Answer::Possible;
            for (gpu_weight, counts_waiting) in LOADS {
                if !counts_waiting && self.tables.path.others_us <= 0.0 {
                    continue;
                }
                let of_weight =
                    match CaseDecision::new(self, case, (gpu_weight, counts_waiting), limits, work)? {
                        Some(mut decision) => decision.decide(work)?,
                        None => Answer::Impossible,
                    };
                match of_weight {
                    Answer::Impossible => {
                        answer = Answer::Impossible;
                        break;
                    }
                    Answer::Unknown => answer = Answer::Unknown,
                    Answer::Possible => {}
                }
            }
            if answer != Answer::Impossible {
                return Ok(answer);
            }
        }
        Ok(Answer::Impossible)
    }
}

/// Weights of the load of a label: it is at most 1 within the limits.
#[derive(Debug, Clone, Copy)]
struct LoadWeights {
    /// Weight of GPU time, per GPU-microsecond.
    gpu: f64,
    /// Weight of GPU time with all-reduces, per GPU-microsecond.
    busy: f64,
    /// Whether GPU time has that of waiting ranks instead of that of nodes beside the path.
    counts_waiting: bool,
}

impl LoadWeights {
    /// Returns the minimum load of a block on `gpus` ranks.
    fn of_block(&self, gpus: f64, option: &PathOption) -> f64 {
        self.gpu * (option.computing_us + option.updating_us)
            + self.busy * (option.forwarding_us + gpus * option.reduce_us)
    }

    /// Returns the GPU time of a change of the list of ranks, GPU-microseconds.
    fn gpu_us(&self, change: &Move) -> f64 {
        if self.counts_waiting { change.gpu_us } else { change.computing_us }
    }

    /// Returns the GPU time of branches beside a run. Without waiting ranks, that of all nodes
    /// beside the path is counted at once, GPU-microseconds.
    fn branches_us(&self, sums: &RunSums) -> f64 {
        if self.counts_waiting { sums.branches_us } else { 0.0 }
    }

    /// Returns the load of a change of the list of ranks.
    fn of_move(&self, change: &Move) -> f64 {
        self.gpu * self.gpu_us(change) + self.busy * change.forwarding_us
    }
}

/// The decision for one case and one weight of GPU time.
struct CaseDecision<'d> {
    decision: &'d Decision<'d>,
    case: usize,
    prefixes: &'d Prefixes,
    max_us: f64,
    max_gpu_us: f64,
    max_labels: usize,
    weights: LoadWeights,
    /// Minimum load of the blocks before a place, by place and range of the block there.
    min_load: Vec<f64>,
    /// For each of the [`STEP_WEIGHTS`]: minimum of the weighted sum of steps and load of the
    /// blocks before a place, and of those up to it.
    min_sums: [(Vec<f64>, Vec<f64>); STEP_WEIGHTS.len()],
    /// By place and range: labels of the runs that begin there.
    begun: Vec<Vec<Label>>,
    is_merged: bool,
}

impl<'d> CaseDecision<'d> {
    /// Computes lower bounds for the first blocks. Returns `None` if these exceed the limits.
    fn new(
        decision: &'d Decision<'d>,
        case: usize,
        (gpu_weight, counts_waiting): (f64, bool),
        limits: Limits,
        work: &mut Work<'_>,
    ) -> Result<Option<Self>, ProofEnd> {
        let (tables, prefixes) = (decision.tables, &decision.prefixes[case]);
        let count = tables.ranges.len();
        let max_us = limits.iteration_us * (1.0 + ROUNDING);
        let max_gpu_us = limits.gpu_us * (1.0 + ROUNDING);
        if prefixes.min_us(tables) > max_us {
            return Ok(None);
        }
        work.spend((4 * tables.blocks() * count * count) as u64)?;
        let weights = LoadWeights {
            gpu: gpu_weight / max_gpu_us,
            busy: (1.0 - gpu_weight) / max_gpu_us,
            counts_waiting,
        };
        let load = |range: usize, option: &PathOption| weights.of_block(tables.ranges[range].gpus, option);
        let load_of = |index: usize| weights.of_move(&tables.moves[index]);
        let (min_load, _) = tables.minimum_before(case, &load, &load, &load_of);
        let min_sums = std::array::from_fn(|index| {
            let weight = STEP_WEIGHTS[index];
            let own = |range: usize, option: &PathOption| {
                weight * tables.cycle_us(case, range, option) / max_us + (1.0 - weight) * load(range, option)
            };
            let moving = |index: usize| {
                weight * tables.moves[index].steps_us() / max_us + (1.0 - weight) * load_of(index)
            };
            tables.minimum_before(case, &own, &own, &moving)
        });
        Ok(Some(Self {
            decision,
            case,
            prefixes,
            max_us,
            max_gpu_us,
            max_labels: limits.labels,
            weights,
            min_load,
            min_sums,
            begun: vec![Vec::new(); tables.blocks() * count],
            is_merged: false,
        }))
    }

    fn decide(&mut self, work: &mut Work<'_>) -> Result<Answer, ProofEnd> {
        let (blocks, count) = (self.decision.tables.blocks(), self.decision.tables.ranges.len());
        for end in (0..blocks).rev() {
            if end + 1 < blocks {
                for labels in &mut self.begun[(end + 1) * count..(end + 2) * count] {
                    self.is_merged |= thin(labels, self.max_labels);
                }
            }
            for range in 0..count {
                let after = self.after(end, range);
                work.spend(after.len() as u64)?;
                if self.extend(&after, end, range, work)? {
                    return Ok(if self.is_merged { Answer::Unknown } else { Answer::Possible });
                }
            }
        }
        Ok(Answer::Impossible)
    }

    /// Returns the labels of the blocks after a run that ends with the block `end` on `range`.
    fn after(&mut self, end: usize, range: usize) -> Vec<Label> {
        let tables = self.decision.tables;
        let count = tables.ranges.len();
        let row = end * count + range;
        if end + 1 == tables.blocks() {
            let others_us = if self.weights.counts_waiting { 0.0 } else { tables.path.others_us };
            let mut label = Label { gpu_us: others_us, ..Label::default() };
            label.add(0.0, self.weights.gpu * others_us);
            return vec![label];
        }
        let mut after = Vec::new();
        for to in 0..count {
            let change = tables.moving(end + 1, range, to);
            let load = self.weights.of_move(change);
            for label in &self.begun[(end + 1) * count + to] {
                let mut next = Label {
                    cycle_us: label.cycle_us + change.steps_us(),
                    steps_us: label.steps_us + change.steps_us(),
                    busy_us: (label.busy_us - change.behind_us).max(0.0),
                    gpu_us: label.gpu_us + self.weights.gpu_us(change),
                    computing_us: label.computing_us + change.computing_us,
                    path_us: label.path_us + change.gpu_us,
                    busy_gpu_us: label.busy_gpu_us + change.forwarding_us,
                    ..*label
                };
                next.add(change.steps_us() / self.max_us, load);
                let is_possible = self.prefixes.with_block_us[row] + next.cycle_us <= self.max_us;
                if is_possible && self.are_sums_possible(&next, |(_, with)| with[row]) {
                    after.push(next);
                }
            }
        }
        self.is_merged |= thin(&mut after, self.max_labels);
        after
    }

    /// Returns whether the weighted sums of a label are within the limits, with the minimum of the
    /// blocks before, which `before` returns.
    fn are_sums_possible(&self, label: &Label, before: impl Fn(&(Vec<f64>, Vec<f64>)) -> f64) -> bool {
        label.sums.iter().zip(&self.min_sums).all(|(sum, sums)| sum + before(sums) <= 1.0)
    }

    /// Extends labels by all runs that end with the block `end` on `range`. Returns whether one of
    /// them keeps the limits with the first block.
    fn extend(
        &mut self,
        after: &[Label],
        end: usize,
        range: usize,
        work: &mut Work<'_>,
    ) -> Result<bool, ProofEnd> {
        let (tables, overlaps) = (self.decision.tables, self.decision.overlaps);
        let gpus = tables.ranges[range].gpus;
        let (mut alive, mut sums, mut load) = (after.len(), RunSums::default(), 0.0);
        for start in (0..=end).rev() {
            if alive == 0 || sums.add(tables, (start, end), range, overlaps).is_none() {
                break;
            }
            work.spend(alive as u64 / 4 + 1)?;
            let row = start * tables.ranges.len() + range;
            load += tables.option(start, range).map_or(0.0, |option| self.weights.of_block(gpus, option));
            let times = sums.times(tables, (start, range), overlaps);
            // Labels with longer steps exceed the limit, also in longer runs.
            let growing_us = sums.growing_us();
            while alive > 0 && after[alive - 1].steps_us + growing_us > self.max_us {
                alive -= 1;
            }
            if start == 0 && range != self.case {
                continue;
            }
            let longest_us = times.cycle_us.max(self.shared_cycle_us(start, range, &sums, &times));
            let shared_us = tables.shared_part(self.case, range) * sums.update_us;
            let before_us = self.prefixes.cycle_us[row] + times.steps_us + shared_us;
            let run_load = load + self.weights.gpu * self.weights.branches_us(&sums);
            for label in &after[..alive] {
                if label.cycle_us + before_us > self.max_us {
                    break;
                }
                if label.steps_us + longest_us > self.max_us {
                    continue;
                }
                let Some(next) = self.extended(label, (&sums, &times, shared_us), range, run_load) else {
                    continue;
                };
                if next.load + self.min_load[row] > 1.0
                    || !self.are_sums_possible(&next, |(without, _)| without[row])
                {
                    continue;
                }
                if start > 0 {
                    self.begun[row].push(next);
                } else if self
                    .is_whole_possible(&next, gpus * (sums.reduced_us + sums.startup_us - sums.backward_us))
                {
                    return Ok(true);
                }
            }
            if self.begun[row].len() > EARLY_THINNING * self.max_labels {
                self.is_merged |= thin(&mut self.begun[row], 2 * self.max_labels);
            }
        }
        Ok(false)
    }

    /// Returns the cycle of a rank that necessarily runs both a run and the first node, without the
    /// nodes after the run, microseconds.
    fn shared_cycle_us(&self, start: usize, range: usize, sums: &RunSums, times: &RunTimes) -> f64 {
        let (tables, all) = (self.decision.tables, self.decision.gpus);
        let (row, first) = (start * tables.ranges.len() + range, tables.ranges[self.case]);
        let gpus = tables.ranges[range].gpus;
        let before_us = match start {
            0 => return f64::NEG_INFINITY,
            _ if gpus + first.larger > all => self.prefixes.steps_us[row],
            _ if gpus + first.gpus > all => self.prefixes.smaller_us[row],
            _ => return f64::NEG_INFINITY,
        };
        let first_update_us = tables.option(0, self.case).map_or(0.0, |option| option.update_us);
        before_us + times.steps_us + sums.update_us + first_update_us
    }

    /// Returns the label with a run before it, or `None` if all-reduces on all GPUs exceed the
    /// limit: these are before those of the run on its communication lanes.
    fn extended(
        &self,
        label: &Label,
        (sums, times, shared_us): (&RunSums, &RunTimes, f64),
        range: usize,
        load: f64,
    ) -> Option<Label> {
        let behind_us = label.busy_us + sums.reduces_us;
        if label.steps_us + times.forward_us + behind_us + times.after_reduce_us > self.max_us {
            return None;
        }
        let is_everywhere = self.decision.tables.ranges[range].gpus >= self.decision.gpus;
        let busy_us =
            if is_everywhere { behind_us.max(sums.reduced_us) + sums.startup_us } else { label.busy_us };
        let branches_us = self.weights.branches_us(sums);
        let mut next = Label {
            cycle_us: label.cycle_us + times.steps_us + shared_us,
            steps_us: label.steps_us + times.steps_us,
            busy_us: (busy_us - (times.steps_us - sums.forward_us)).max(0.0),
            gpu_us: label.gpu_us + sums.computing_us + branches_us,
            computing_us: label.computing_us + sums.computing_us,
            path_us: label.path_us + sums.computing_us - sums.updating_us,
            busy_gpu_us: (label.busy_gpu_us + sums.communicating_us).max(label.path_us + sums.busy_gpu_us),
            ..*label
        };
        next.add((times.steps_us + shared_us) / self.max_us, load);
        let load = self.weights.gpu * next.gpu_us + self.weights.busy * next.busy_gpu_us;
        next.raise(next.cycle_us / self.max_us, load);
        Some(next)
    }

    /// Returns whether a label of all blocks keeps the limit of GPU time. `exposed_us` is the GPU
    /// time of all-reduces of the first run after its backward steps.
    fn is_whole_possible(&self, label: &Label, exposed_us: f64) -> bool {
        let gpu_us = label
            .gpu_us
            .max(label.path_us + exposed_us)
            .max(label.busy_gpu_us)
            .max(label.computing_us + self.decision.tables.path.others_us);
        gpu_us <= self.max_gpu_us && label.load + self.weights.gpu * (gpu_us - label.gpu_us) <= 1.0
    }
}
