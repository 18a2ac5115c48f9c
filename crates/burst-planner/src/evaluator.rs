//! Evaluation of arrangements: the time of their training program.
//!
//! A *group* is a list of ranks that has an id, a *slot* the index of a group among those of an
//! arrangement. A *class* is a set of ranks that do identical work; one of them is simulated for
//! all.

mod slots;

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::activity::Activity;
use crate::cost_cache::CostCache;
use crate::costs::{CostModel, NodeMemory, ShardSize, StepTimes};
use crate::groups::{Classes, GroupId};
use crate::iteration::{Lanes, Program, Recorder, later};
use crate::memory_model::MemoryModel;
use crate::node_order::NodeOrder;
use crate::problem::ProblemGraph;
use crate::recompute::Recomputation;
use crate::splits::Layout;
use crate::steady_state::{IterationEnds, STEADY_TOLERANCE};
use crate::{Arrangement, Error, NodeId, PlanProblem, Result, Stop};
use slots::Slots;

/// Predicted time of a training iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PlanTime {
    /// Time from one iteration to the next in the steady state, in which all ranks take the same
    /// time for an iteration, microseconds. If none is reached within a dozen iterations, the mean
    /// of the later ones.
    pub iteration_us: f64,
    /// Active time of all ranks in an iteration (see [`Activity`]), GPU-microseconds.
    pub gpu_time_us: f64,
}

/// An arrangement and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The time of an iteration.
    pub time: PlanTime,
    /// The ranks of each node, and the order of the nodes.
    pub arrangement: Arrangement,
}

/// Computes the time of arrangements of one problem.
///
/// Costs are cached, so evaluating many arrangements of a problem with one evaluator is fast. An
/// evaluation takes O((nodes + edges) x classes), where a class is a set of ranks that do identical
/// work. There are a handful of classes, whatever the number of GPUs.
pub struct Evaluator<'p> {
    problem: &'p PlanProblem,
    structure: ProblemGraph,
    cache: CostCache<'p>,
    /// Classes by set of groups, ascending.
    classes: FxHashMap<Box<[GroupId]>, Rc<Classes>>,
    /// Slots of the arrangement that was evaluated last.
    slots: Slots,
    ordered: NodeOrder,
    recomputation: Recomputation,
    /// The problem's topological order.
    own_order: Rc<[u32]>,
    lanes: Lanes,
    ends: IterationEnds,
    /// Number of evaluations that have been started.
    pub(crate) evaluations: u64,
    /// Ends the search that uses this evaluator.
    stop: Stop,
}

/// An arrangement whose lists of ranks are replaced by their group ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NumberedArrangement {
    /// By index of the node: the id of its list of ranks, in the parts of its split.
    pub(crate) groups: Vec<GroupId>,
    /// By index of the node: 1 + the index of its split, or 0. `None` if no node is split.
    pub(crate) splits: Option<Rc<[u32]>>,
    /// Indices of all nodes in the order of the forward pass, as in [`Arrangement::order`].
    pub(crate) order: Rc<[u32]>,
}

impl NumberedArrangement {
    /// Returns the index of the split of a node.
    pub(crate) fn split(&self, node: usize) -> Option<usize> {
        (self.splits.as_ref()?[node] as usize).checked_sub(1)
    }
}

impl<'p> Evaluator<'p> {
    /// Creates an evaluator of arrangements of `problem` with the costs of `costs`.
    ///
    /// # Errors
    /// Those of [`PlanProblem::validate`].
    pub fn new(problem: &'p PlanProblem, costs: impl CostModel + 'p) -> Result<Self> {
        problem.validate()?;
        let structure = ProblemGraph::new(problem)?;
        let own_order: Rc<[u32]> = structure.order.iter().map(|&node| node as u32).collect();
        Ok(Self {
            problem,
            cache: CostCache::new(costs, problem.nodes.len()),
            classes: FxHashMap::default(),
            slots: Slots::default(),
            ordered: NodeOrder::new(&structure, &own_order),
            own_order,
            recomputation: Recomputation::default(),
            structure,
            lanes: Lanes::default(),
            ends: IterationEnds::default(),
            evaluations: 0,
            stop: Stop::default(),
        })
    }

    /// Returns this evaluator, whose evaluations fail with [`Error::Stopped`] once `stop` is set.
    pub(crate) fn stopped_by(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// Returns the time of an iteration.
    ///
    /// # Errors
    /// [`Error::BadArrangement`] if the arrangement does not fit the problem, [`Error::NoTimes`] or
    /// [`Error::NoSplitTimes`] if the cost model has no times for the GPU count of a node, and
    /// [`Error::TooManyClasses`] if the ranks form more than 65,535 classes.
    pub fn evaluate(&mut self, arrangement: &Arrangement) -> Result<PlanTime> {
        let numbered = self.numbered(arrangement)?;
        self.time(&numbered).map(|(time, _)| time)
    }

    /// Returns the time of an iteration with every node on the first `gpus` ranks, in the problem's
    /// topological order, and the memory of the fullest rank, bytes. Any count for which the cost
    /// model has times will do. Faster than [`evaluate`](Self::evaluate) and
    /// [`memory`](Self::memory) of [`Arrangement::data_parallel`].
    ///
    /// # Errors
    /// Those of [`evaluate`](Self::evaluate).
    pub fn data_parallel(&mut self, gpus: usize) -> Result<(PlanTime, u64)> {
        if !(1..=self.problem.gpus).contains(&gpus) {
            let message = format!("it is on {gpus} ranks, and there are {} GPUs", self.problem.gpus);
            return Err(Error::BadArrangement { message });
        }
        let group = self.range(0, gpus);
        if let Some(node) = (0..self.problem.nodes.len()).find(|&node| !self.has_times(node, group)) {
            return Err(Error::NoTimes { node: self.problem.nodes[node].name.clone(), gpus });
        }
        let numbered = self.all_on(group);
        let (time, classes) = self.time(&numbered)?;
        Ok((time, self.held(&classes, &numbered.order).into_iter().max().unwrap_or(0)))
    }

    /// Returns the arrangement of all nodes on a group, in the problem's topological order.
    pub(crate) fn all_on(&self, group: GroupId) -> NumberedArrangement {
        let groups = vec![group; self.problem.nodes.len()];
        NumberedArrangement { groups, splits: None, order: Rc::clone(&self.own_order) }
    }

    /// Returns the activity of each rank in an iteration of the steady state, by rank. Ranks
    /// without nodes are idle.
    ///
    /// # Errors
    /// Those of [`evaluate`](Self::evaluate).
    pub fn activity(&mut self, arrangement: &Arrangement) -> Result<Vec<Activity>> {
        let numbered = self.numbered(arrangement)?;
        let (time, classes) = self.time(&numbered)?;
        let idle = Activity { idle_us: time.iteration_us, ..Activity::default() };
        let mut by_rank = vec![idle; self.problem.gpus];
        for (class, ranks) in classes.ranks.iter().enumerate() {
            let activity = self.activity_of(class, time.iteration_us);
            for rank in ranks.iter().cloned().flatten() {
                by_rank[rank] = activity;
            }
        }
        Ok(by_rank)
    }

    /// Returns the time of an iteration on one GPU, microseconds. GPU time divided by it is
    /// amplification. It is the problem's [`single_gpu_us`](PlanProblem::single_gpu_us), or the sum
    /// of all steps on one GPU.
    ///
    /// # Errors
    /// [`Error::NoTimes`] if a node has no times for one GPU, [`Error::ZeroSingleGpuTime`] if the
    /// sum is 0.
    pub fn single_gpu_us(&self) -> Result<f64> {
        if let Some(given_us) = self.problem.single_gpu_us {
            return if given_us > 0.0 { Ok(given_us) } else { Err(Error::ZeroSingleGpuTime) };
        }
        let mut total = 0.0;
        for (index, node) in self.problem.nodes.iter().enumerate() {
            let steps = self.cache.costs.compute(NodeId(index), 1, ShardSize::Larger);
            let steps = steps.ok_or_else(|| Error::NoTimes { node: node.name.clone(), gpus: 1 })?;
            let update_us = if self.structure.users[index].is_empty() { 0.0 } else { steps.update_us };
            let backward_us = if self.structure.needs_gradient[index] { steps.backward_us } else { 0.0 };
            total += steps.forward_us + backward_us + update_us;
        }
        if total > 0.0 { Ok(total) } else { Err(Error::ZeroSingleGpuTime) }
    }

    /// Returns the problem whose arrangements are evaluated.
    pub(crate) fn problem(&self) -> &'p PlanProblem {
        self.problem
    }

    /// Returns the graph of the problem.
    pub(crate) fn structure(&self) -> &ProblemGraph {
        &self.structure
    }

    /// Returns the indices of all nodes in the problem's topological order.
    pub(crate) fn own_order(&self) -> &Rc<[u32]> {
        &self.own_order
    }

    /// Returns the cost model, without the cache.
    pub(crate) fn costs(&self) -> &dyn CostModel {
        &*self.cache.costs
    }

    /// Returns the id of a list of ranks, and queries the cost model for its size if it is new.
    pub(crate) fn group(&mut self, ranks: &[usize]) -> GroupId {
        self.cache.group(self.problem, ranks)
    }

    /// As [`group`](Self::group), for `count` consecutive ranks from `start` on.
    pub(crate) fn range(&mut self, start: usize, count: usize) -> GroupId {
        self.cache.range(self.problem, start, count)
    }

    /// As [`group`](Self::group), with several ranks for each range of samples. The number of ranks
    /// is a multiple of `parts`.
    pub(crate) fn group_in_parts(&mut self, ranks: &[usize], parts: usize) -> GroupId {
        self.cache.group_in_parts(self.problem, ranks, parts)
    }

    /// Returns the durations of the steps of a node with a split on a number of ranks, on a rank
    /// with the larger shard; `None` if the cost model has none.
    pub(crate) fn split_steps(&mut self, node: usize, split: usize, ranks: usize) -> Option<StepTimes> {
        let index = self.cache.split_index(node, split, ranks)?;
        Some(self.cache.split_steps(index))
    }

    /// Returns the duration of moving the output of a node from one layout to another, or its
    /// gradient, microseconds.
    pub(crate) fn transfer_us(&mut self, producer: usize, from: Layout, to: Layout) -> f64 {
        self.cache.transfer_us(producer as u32, from, to)
    }

    /// Returns the duration of an all-reduce of `bytes` bytes over a group, microseconds.
    pub(crate) fn reduce_us(&mut self, bytes: u64, group: GroupId) -> f64 {
        self.cache.reduce_us(bytes, group)
    }

    /// Returns whether a node can run on a group: the group's size is one of its GPU counts, and
    /// there are times for it.
    pub(crate) fn is_option(&self, node: usize, group: GroupId) -> bool {
        let counts = &self.problem.nodes[node].gpu_counts;
        counts.binary_search(&self.ranks(group).len()).is_ok() && self.has_times(node, group)
    }

    /// Returns the ranks of a group, in the order of their samples.
    pub(crate) fn ranks(&self, group: GroupId) -> &Rc<[usize]> {
        self.cache.groups.ranks(group)
    }

    /// Returns whether the cost model has step durations of a node on the number of ranks of a
    /// group.
    pub(crate) fn has_times(&self, node: usize, group: GroupId) -> bool {
        self.cache.has_times(node, group)
    }

    /// Returns the durations of the steps of a node on a group, on a rank with the larger shard.
    pub(crate) fn steps(&self, node: usize, group: GroupId) -> StepTimes {
        self.cache.steps_on(node, group)[0]
    }

    /// Checks an arrangement and replaces its lists of ranks by group ids. Fails with
    /// [`Error::BadArrangement`], or with [`Error::NoTimes`] or [`Error::NoSplitTimes`] if the cost
    /// model has no times for a node.
    pub(crate) fn numbered(&mut self, arrangement: &Arrangement) -> Result<NumberedArrangement> {
        arrangement.check(self.problem, &self.structure)?;
        let mut groups: Vec<GroupId> = Vec::with_capacity(arrangement.ranks.len());
        for (node, (ranks, &split)) in arrangement.ranks.iter().zip(&arrangement.splits).enumerate() {
            let (group, has_times) = match split {
                None => {
                    let group = self.group(ranks);
                    (group, self.cache.has_times(node, group))
                }
                Some(split) => {
                    let parts = self.problem.nodes[node].splits[split].parts;
                    let group = self.cache.group_in_parts(self.problem, ranks, parts);
                    (group, self.cache.split_index(node, split, ranks.len()).is_some())
                }
            };
            if !has_times {
                let (node, gpus) = (self.problem.nodes[node].name.clone(), ranks.len());
                return Err(match split {
                    None => Error::NoTimes { node, gpus },
                    Some(split) => Error::NoSplitTimes { node, split, gpus },
                });
            }
            groups.push(group);
        }
        let index = |split: &Option<usize>| split.map_or(0, |split| split as u32 + 1);
        let splits = arrangement.is_split().then(|| arrangement.splits.iter().map(index).collect());
        let order = arrangement.order.iter().map(|&node| node as u32).collect();
        Ok(NumberedArrangement { groups, splits, order })
    }

    /// Returns the arrangement with lists of ranks instead of group ids.
    pub(crate) fn arrangement(&self, numbered: &NumberedArrangement) -> Arrangement {
        let ranks = numbered.groups.iter().map(|&group| self.ranks(group).to_vec()).collect();
        let order = numbered.order.iter().map(|&node| node as usize).collect();
        let splits = (0..numbered.groups.len()).map(|node| numbered.split(node)).collect();
        Arrangement { ranks, splits, order }
    }

    /// Returns the time in the steady state, and the classes of ranks. Afterwards the evaluator's
    /// lanes are in the state after the last simulated iteration. Fails with [`Error::Stopped`] or
    /// [`Error::TooManyClasses`].
    pub(crate) fn time(&mut self, numbered: &NumberedArrangement) -> Result<(PlanTime, Rc<Classes>)> {
        self.run(numbered, &mut (), |_| false)
    }

    /// As [`time`](Self::time), but stops after the first iteration if `is_enough` returns true for
    /// the lower bounds of both times that follow from it, and returns these bounds.
    pub(crate) fn time_with_cutoff(
        &mut self,
        numbered: &NumberedArrangement,
        is_enough: impl Fn(PlanTime) -> bool,
    ) -> Result<(PlanTime, Rc<Classes>)> {
        self.run(numbered, &mut (), is_enough)
    }

    /// As [`time_with_cutoff`](Self::time_with_cutoff). `recorder` receives all steps and
    /// collectives of all simulated iterations.
    pub(crate) fn run<R: Recorder>(
        &mut self,
        numbered: &NumberedArrangement,
        recorder: &mut R,
        is_enough: impl Fn(PlanTime) -> bool,
    ) -> Result<(PlanTime, Rc<Classes>)> {
        self.stop.check()?;
        self.evaluations += 1;
        self.stop.count_evaluation();
        let classes = self.classes_of(numbered)?;
        self.ordered.set(&self.structure, &numbered.order);
        let program = Program {
            gradients: &self.problem.gradients,
            micro_batches: self.problem.micro_batches.get(),
            structure: &self.structure,
            ordered: &self.ordered,
            recomputation: &self.recomputation,
            groups: &self.slots.nodes,
            sum_groups: &self.slots.sums,
            parameter_groups: &self.slots.parameters,
            tensors: self.slots.tensors(&self.structure),
            classes: &classes,
            all_parameters: self.slots.all_parameters,
        };
        self.lanes.reset(&program);
        self.ends.reset(classes.len());
        let iteration_us = loop {
            self.lanes.run(&program, &mut self.cache, recorder);
            self.ends.push(self.lanes.compute[..classes.len()].iter().map(|lane| lane.free_us));
            if let Some(iteration_us) = self.ends.period() {
                break iteration_us;
            }
            let minimum = self.min_time(&classes);
            if is_enough(minimum) {
                return Ok((minimum, classes));
            }
        };
        let active = |class: usize| self.activity_of(class, iteration_us).active_us();
        let of_ranks = (0..classes.len()).map(|class| classes.size(class) as f64 * active(class));
        let gpu_time_us = of_ranks.sum();
        Ok((PlanTime { iteration_us, gpu_time_us }, classes))
    }

    /// Returns the rank classes of an arrangement, and makes it the current one, to whose groups
    /// slots refer. Fails with [`Error::TooManyClasses`].
    pub(crate) fn classes_of(&mut self, numbered: &NumberedArrangement) -> Result<Rc<Classes>> {
        self.number_groups(numbered);
        let tensors = self.slots.tensors(&self.structure);
        self.recomputation.set(self.problem, &self.structure, tensors, &numbered.order);
        self.classes()
    }

    /// Returns the memory model of the current arrangement, that of the last call of
    /// [`classes_of`](Self::classes_of). `classes` and `order` are those of this arrangement.
    pub(crate) fn memory_model<'a>(&'a self, classes: &'a Classes, order: &'a [u32]) -> MemoryModel<'a> {
        MemoryModel {
            problem: self.problem,
            structure: &self.structure,
            cache: &self.cache,
            classes,
            groups: &self.slots.nodes,
            parameter_groups: &self.slots.parameters,
            tensors: self.slots.tensors(&self.structure),
            all_parameters: self.slots.all_parameters,
            recomputation: &self.recomputation,
            order,
        }
    }

    /// Returns by node the maximum of each of its memory sizes on a rank, over all groups that have
    /// been added.
    pub(crate) fn max_memory(&self) -> &[NodeMemory] {
        self.cache.max_memory()
    }

    /// Returns lower bounds of both times after one iteration: no lane takes less than the sum of
    /// its work.
    fn min_time(&self, classes: &Classes) -> PlanTime {
        let (mut iteration_us, mut gpu_time_us) = (self.ends.min_period(), 0.0);
        for class in 0..classes.len() {
            let busy_us =
                later(self.lanes.compute[class].busy.total(), self.lanes.communication[class].busy.total());
            iteration_us = later(iteration_us, busy_us);
            gpu_time_us += classes.size(class) as f64 * busy_us;
        }
        // Rounding must not lift the bound above the time.
        let rounded = 1.0 - STEADY_TOLERANCE;
        PlanTime { iteration_us: rounded * iteration_us, gpu_time_us: rounded * gpu_time_us }
    }

    fn activity_of(&self, class: usize, iteration_us: f64) -> Activity {
        let (computed, transferred) =
            (&self.lanes.compute[class].busy, &self.lanes.communication[class].busy);
        let computing_us = computed.total();
        let communicating_us = (transferred.total() - computed.overlap(transferred)).max(0.0);
        let idle_us = (iteration_us - computing_us - communicating_us).max(0.0);
        Activity { computing_us, communicating_us, idle_us }
    }
}
