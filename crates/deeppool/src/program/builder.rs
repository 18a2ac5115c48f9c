//! Builders of programs: they allocate buffers, derive the dependencies of steps, and number
//! collectives.
//!
//! Ranks that run the same steps for the same numbers of samples are a *class*, and one program is
//! built for each class. A *place* is the index of a class, and stands for the first rank of the
//! class. An *operand* is a buffer that passes of a layer read or write, given by the layer and the
//! [`Role`] of the buffer, such as output or parameter gradient. *State* is the buffers that
//! outlive an iteration: parameters, velocities (momentum of the optimiser) and running statistics.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use layer_engine::{Precision, Role, Storage};
use layer_graph::{Layer, LayerGraph, LayerId, LayerPart};

use super::arena::{IterationSteps, Packings};
use super::{
    BufferId, BufferSpec, Collective, CollectiveId, CollectiveOp, Contents, Lane, Op, Placement, Program,
    RankProgram, Step, StepId,
};

/// Buffers that the ranks of a group reduce or broadcast in one collective.
pub(super) struct Bucket {
    /// The ranks of all groups, one group after another.
    pub(super) ranks: Vec<usize>,
    /// Number of groups.
    pub(super) groups: usize,
    /// Labels of the buffers of one rank. The label of the collective joins them.
    pub(super) labels: Vec<String>,
    /// Places of the group, each with its buffers in the order of `labels`.
    pub(super) buffers: Vec<(usize, Vec<BufferId>)>,
    /// Number of elements of all buffers of one rank.
    pub(super) elements: usize,
}

impl Bucket {
    /// Creates an empty bucket for equally large groups of ranks, which are one after another in
    /// `ranks`. `places` are the places of these ranks.
    pub(super) fn new((ranks, groups): (&[usize], usize), places: impl IntoIterator<Item = usize>) -> Self {
        let buffers = places.into_iter().map(|place| (place, Vec::new())).collect();
        Self { ranks: ranks.to_vec(), groups, labels: Vec::new(), buffers, elements: 0 }
    }
}

/// Builder of the programs of all ranks, one per class, for one or more iterations.
pub(super) struct ProgramBuilder {
    batch: usize,
    precision: Precision,
    ranks: Vec<RankBuilder>,
    collectives: Vec<Collective>,
    /// Completed iterations with separate programs: the steps by rank, and the collectives.
    ended: Vec<(Vec<Vec<Step>>, Vec<Collective>)>,
    /// Number of iterations in the current program.
    iterations: usize,
}

/// Form of the programs of a rotation. A *rotation* is the consecutive iterations after which the
/// roles of partial backpropagation repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RotationForm {
    /// One program per iteration.
    Separate,
    /// One program for all iterations. Each rank ends an iteration before it begins the next one.
    Single,
}

impl ProgramBuilder {
    /// Creates empty programs, one per class of ranks, for batches of `batch` samples with layers
    /// of a precision. A class is the list of its ranks. Its program has the number of its first
    /// rank.
    pub(super) fn new(batch: usize, precision: Precision, classes: Vec<Vec<usize>>) -> Self {
        let ranks = classes.into_iter().map(|class| RankBuilder::new(class, precision)).collect();
        Self { batch, precision, ranks, collectives: Vec::new(), ended: Vec::new(), iterations: 1 }
    }

    /// Adds the parts of split layers that the lowered ranks run. `place_of` returns the place of a
    /// rank, if it is lowered.
    pub(super) fn add_parts(
        &mut self,
        placement: &Placement,
        parts: &BTreeMap<LayerId, Vec<Arc<LayerPart>>>,
        place_of: impl Fn(usize) -> Option<usize>,
    ) {
        for (&id, parts) in parts {
            for (&rank, part) in placement.ranks(id).iter().zip(parts.iter().cycle()) {
                if let Some(place) = place_of(rank) {
                    self.ranks[place].program.parts.insert(id, Arc::clone(part));
                }
            }
        }
    }

    /// Adds the state buffers of each rank: the parameters, master parameters, velocities and
    /// statistics of its layers, in topological order. All programs of a network and placement
    /// begin with the same buffers. Shared parameters are one buffer of their owner, on the ranks
    /// of all layers that use them. `holders` returns the places that hold a layer's parameters,
    /// and `runners` the places that run the layer.
    pub(super) fn add_state(
        &mut self,
        network: &LayerGraph,
        holders: impl Fn(LayerId) -> Vec<usize>,
        runners: impl Fn(LayerId) -> Vec<usize>,
    ) {
        for (id, layer) in network.layers() {
            let users = network.parameter_users(id);
            for place in holders(id) {
                let rank = &mut self.ranks[place];
                let parameters = rank.operand(id, network, Role::Parameters, 0);
                let count = rank.program.layer(network, id).parameter_count();
                for &user in &users {
                    rank.set_operand(user, Role::Parameters, parameters);
                }
                let mut own = |contents| rank.buffer(count, Storage::Scalar, contents);
                let mut buffers = vec![parameters];
                if Role::Parameters.storage(layer, self.precision) == Storage::Bf16 {
                    buffers.push(own(Contents::Master(id)));
                }
                buffers.push(own(Contents::Velocity(id)));
                rank.optimized.insert(id, buffers);
            }
            if !layer.statistics().is_empty() {
                for place in runners(id) {
                    self.ranks[place].operand(id, network, Role::Statistics, 0);
                }
            }
        }
        for rank in &mut self.ranks {
            rank.program.state_buffers = rank.program.buffers.len();
        }
    }

    /// Returns the builder of the program at a place.
    pub(super) fn rank(&mut self, place: usize) -> &mut RankBuilder {
        &mut self.ranks[place]
    }

    /// Adds a collective of equally large groups of ranks, which are one after another in `ranks`,
    /// to their programs. `operands` are places of these ranks with the buffers that the collective
    /// reads and writes there.
    pub(super) fn collective(
        &mut self,
        op: CollectiveOp,
        (ranks, groups): (&[usize], usize),
        label: String,
        operands: impl IntoIterator<Item = (usize, Operands)>,
    ) {
        let id = CollectiveId(self.collectives.len());
        for (place, Operands { reads, writes }) in operands {
            self.ranks[place].collective(id, label.clone(), reads, writes);
        }
        self.collectives.push(Collective { op, ranks: ranks.to_vec(), groups, label });
    }

    /// Adds an all-reduce of a bucket: each buffer is summed over the ranks of each group. Adds
    /// nothing for groups of one rank.
    pub(super) fn all_reduce(&mut self, bucket: Bucket) {
        if bucket.ranks.len() > bucket.groups {
            let op = CollectiveOp::AllReduce { elements: bucket.elements };
            self.bucket(op, "all-reduce", bucket);
        }
    }

    /// Adds a broadcast of a bucket from the first rank of each group to the others.
    pub(super) fn broadcast(&mut self, bucket: Bucket) {
        self.bucket(CollectiveOp::Broadcast { elements: bucket.elements }, "broadcast", bucket);
    }

    fn bucket(&mut self, op: CollectiveOp, verb: &str, bucket: Bucket) {
        let label = format!("{verb} {}", bucket.labels.join("+"));
        let buffers = bucket.buffers.into_iter();
        let operands = buffers.map(|(place, writes)| (place, Operands { reads: Vec::new(), writes }));
        self.collective(op, (&bucket.ranks, bucket.groups), label, operands);
    }

    /// Ends the current iteration and begins another one: in the same program for
    /// [`RotationForm::Single`], and in a separate one for [`RotationForm::Separate`].
    pub(super) fn end_iteration(&mut self, next: RotationForm) {
        match next {
            RotationForm::Separate => {
                let steps = self.ranks.iter_mut().map(RankBuilder::take_steps).collect();
                self.ended.push((steps, std::mem::take(&mut self.collectives)));
            }
            RotationForm::Single => {
                self.ranks.iter_mut().for_each(RankBuilder::end_iteration);
                self.iterations += 1;
            }
        }
    }

    /// Begins the next micro-batch: see [`RankBuilder::reuse_buffers`].
    pub(super) fn reuse_buffers(&mut self) {
        self.ranks.iter_mut().for_each(RankBuilder::reuse_buffers);
    }

    /// Makes each collective that is added from now on wait for all compute steps so far of its
    /// ranks.
    pub(super) fn collectives_wait(&mut self) {
        for rank in &mut self.ranks {
            let is_compute = |step: &Step| step.lane() == Lane::Compute;
            rank.collectives_wait_for = rank.program.steps.iter().rposition(is_compute).map(StepId);
        }
    }

    /// Returns the programs of the iterations, in order. All have the same buffers.
    pub(super) fn finish(self) -> Vec<Program> {
        let (batch, precision) = (self.batch, self.precision);
        let ended = &self.ended;
        let mut packings = Packings::default();
        let finish = |(place, rank): (usize, RankBuilder)| {
            rank.finish(ended.iter().map(|(steps, _)| &steps[place][..]), &mut packings)
        };
        let last: Vec<RankProgram> = self.ranks.into_iter().enumerate().map(finish).collect();
        let of_steps = |(steps, collectives): (Vec<Vec<Step>>, Vec<Collective>)| {
            let ranks = last.iter().zip(steps).map(|(program, steps)| RankProgram {
                rank: program.rank,
                represented_ranks: program.represented_ranks.clone(),
                buffers: program.buffers.clone(),
                parts: program.parts.clone(),
                state_buffers: program.state_buffers,
                arena_elements: program.arena_elements,
                steps,
                later_iterations: Vec::new(),
            });
            Program { batch, precision, iterations: 1, ranks: ranks.collect(), collectives }
        };
        let mut programs: Vec<Program> = self.ended.into_iter().map(of_steps).collect();
        programs.push(Program {
            batch,
            precision,
            iterations: self.iterations,
            ranks: last,
            collectives: self.collectives,
        });
        programs
    }
}

/// Buffers that a step reads and writes.
#[derive(Default)]
pub(super) struct Operands {
    /// Buffers that are read, in the order that the operation defines.
    pub(super) reads: Vec<BufferId>,
    /// Buffers that are written, in the order that the operation defines.
    pub(super) writes: Vec<BufferId>,
}

/// Builder of the program of one place.
pub(super) struct RankBuilder {
    program: RankProgram,
    precision: Precision,
    /// The pending uses of each buffer: the steps that must finish before it is read or written.
    uses: Vec<PendingUses>,
    operands: HashMap<(LayerId, Role), BufferId>,
    /// The buffers that an optimiser step of each layer updates: see [`Op::OptimizerStep`].
    optimized: HashMap<LayerId, Vec<BufferId>>,
    /// Sums over the previous micro-batches, by operand.
    totals: HashMap<(LayerId, Role), BufferId>,
    /// Free buffers of previous micro-batches.
    free: Vec<BufferId>,
    /// Buffers of buckets. They are not used again, because another bucket may need another order.
    in_buckets: HashSet<BufferId>,
    collectives_wait_for: Option<StepId>,
    /// The step that the next compute step waits for.
    compute_waits_for: Option<StepId>,
}

#[derive(Default)]
struct PendingUses {
    writer: Option<StepId>,
    readers_since: Vec<StepId>,
}

impl RankBuilder {
    fn new(class: Vec<usize>, precision: Precision) -> Self {
        let rank = class.first().copied().unwrap_or_default();
        let (buffers, steps) = (Vec::new(), Vec::new());
        Self {
            program: RankProgram {
                rank,
                represented_ranks: class,
                parts: BTreeMap::new(),
                buffers,
                state_buffers: 0,
                arena_elements: 0,
                steps,
                later_iterations: Vec::new(),
            },
            precision,
            uses: Vec::new(),
            operands: HashMap::new(),
            optimized: HashMap::new(),
            totals: HashMap::new(),
            free: Vec::new(),
            in_buckets: HashSet::new(),
            collectives_wait_for: None,
            compute_waits_for: None,
        }
    }

    /// Returns the program, with the offsets of its buffers. `earlier` are the steps of previous
    /// iterations that have separate programs with the same buffers. `packings` are those of other
    /// ranks.
    fn finish<'s>(
        mut self,
        earlier: impl Iterator<Item = &'s [Step]>,
        packings: &mut Packings,
    ) -> RankProgram {
        let steps = std::mem::take(&mut self.program.steps);
        let mut iterations: Vec<IterationSteps<'_>> =
            earlier.map(|steps| IterationSteps { steps, first_id: 0 }).collect();
        let later_iterations = std::mem::take(&mut self.program.later_iterations);
        iterations.extend(IterationSteps::of(&steps, &later_iterations));
        self.program.assign_offsets(&iterations, packings);
        (self.program.steps, self.program.later_iterations) = (steps, later_iterations);
        self.program
    }

    /// Takes the steps of an iteration. The next iteration has the same buffers, of which only the
    /// state keeps its contents.
    fn take_steps(&mut self) -> Vec<Step> {
        self.totals.clear();
        (self.collectives_wait_for, self.compute_waits_for) = (None, None);
        self.uses.fill_with(PendingUses::default);
        std::mem::take(&mut self.program.steps)
    }

    /// Makes the steps of the next iteration wait for all steps of this one.
    fn end_iteration(&mut self) {
        self.totals.clear();
        self.program.later_iterations.push(StepId(self.program.steps.len()));
        let last = |lane| self.program.steps.iter().rposition(|step| step.lane() == lane).map(StepId);
        (self.collectives_wait_for, self.compute_waits_for) =
            (last(Lane::Compute), last(Lane::Communication));
    }

    /// Returns a layer as the rank runs it: its part of a split layer.
    pub(super) fn layer<'p>(&'p self, network: &'p LayerGraph, id: LayerId) -> &'p Layer {
        self.program.layer(network, id)
    }

    /// Returns the part of a split layer that the rank runs.
    pub(super) fn part(&self, id: LayerId) -> Option<&LayerPart> {
        self.program.parts.get(&id).map(Arc::as_ref)
    }

    /// Returns the rank whose program is built: the first of its class.
    pub(super) fn rank(&self) -> usize {
        self.program.rank
    }

    /// Allocates a buffer. If a previous micro-batch left a free buffer of the same size and
    /// contents, that one is returned.
    pub(super) fn buffer(&mut self, elements: usize, storage: Storage, contents: Contents) -> BufferId {
        let spec = BufferSpec { elements, storage, contents, offset: None };
        if let Some(place) = self.free.iter().position(|id| self.program.buffers[id.0] == spec) {
            return self.free.remove(place);
        }
        self.program.buffers.push(spec);
        self.uses.push(PendingUses::default());
        BufferId(self.uses.len() - 1)
    }

    /// Begins the next micro-batch: all buffers of previous ones are free, except state, sums and
    /// the buffers of buckets.
    fn reuse_buffers(&mut self) {
        let state = self.program.state_buffers;
        self.operands.retain(|_, buffer| buffer.0 < state);
        let kept: HashSet<BufferId> = self.totals.values().chain(&self.in_buckets).copied().collect();
        let scratch = (state..self.program.buffers.len()).map(BufferId);
        self.free = scratch.filter(|buffer| !kept.contains(buffer)).collect();
    }

    /// Adds a step that sums an operand over the micro-batches so far. Its length must not depend
    /// on the number of samples. From now on the sum is the operand.
    pub(super) fn accumulate(&mut self, id: LayerId, network: &LayerGraph, role: Role) {
        let part = self.operand(id, network, role, 0);
        let total = match self.totals.get(&(id, role)) {
            None => part,
            Some(&before) => {
                let label = format!("add up micro-batches of {}", network.layer(id).name());
                self.step(Op::AddGradient, label, vec![part], vec![before]);
                before
            }
        };
        self.totals.insert((id, role), total);
        self.set_operand(id, role, total);
    }

    /// Makes the sum over all micro-batches the operand, also if the last micro-batch did not write
    /// it. Nothing changes if there is no sum.
    pub(super) fn use_total(&mut self, id: LayerId, role: Role) {
        if let Some(&total) = self.totals.get(&(id, role)) {
            self.set_operand(id, role, total);
        }
    }

    /// Returns the buffer of an operand of a layer, or of its part on this rank, for `samples`
    /// samples, allocated on first use.
    pub(super) fn operand(
        &mut self,
        id: LayerId,
        network: &LayerGraph,
        role: Role,
        samples: usize,
    ) -> BufferId {
        if let Some(&buffer) = self.operands.get(&(id, role)) {
            return buffer;
        }
        let layer = self.program.layer(network, id);
        let (elements, storage) = (role.elements(layer, samples), role.storage(layer, self.precision));
        let buffer = self.buffer(elements, storage, Contents::Operand(id, role));
        self.operands.insert((id, role), buffer);
        buffer
    }

    /// Makes the next use of an operand allocate another buffer.
    pub(super) fn forget_operand(&mut self, id: LayerId, role: Role) {
        self.operands.remove(&(id, role));
    }

    /// Uses an existing buffer as an operand, such as the output of one layer as the input of
    /// another.
    pub(super) fn set_operand(&mut self, id: LayerId, role: Role, buffer: BufferId) {
        self.operands.insert((id, role), buffer);
    }

    /// Returns the buffers that the optimiser step of a layer updates; `None` if this rank does not
    /// hold its parameters.
    pub(super) fn optimized(&self, id: LayerId) -> Option<&[BufferId]> {
        self.optimized.get(&id).map(Vec::as_slice)
    }

    /// Adds a collective. Several buffers form a bucket: see [`Step::writes`].
    fn collective(&mut self, id: CollectiveId, label: String, reads: Vec<BufferId>, writes: Vec<BufferId>) {
        if writes.len() > 1 {
            self.in_buckets.extend(&writes);
        }
        self.step(Op::Collective(id), label, reads, writes);
    }

    /// Adds a step with a label for timelines. It depends on the last writers of the buffers that
    /// it reads or writes, and on all readers of those that it overwrites.
    pub(super) fn step(&mut self, op: Op, label: String, reads: Vec<BufferId>, writes: Vec<BufferId>) {
        let id = StepId(self.program.steps.len());
        let mut after: Vec<StepId> =
            reads.iter().chain(&writes).filter_map(|&buffer| self.uses[buffer.0].writer).collect();
        for &buffer in &writes {
            after.extend(&self.uses[buffer.0].readers_since);
        }
        after.extend(match op {
            Op::Collective(_) => self.collectives_wait_for,
            _ => self.compute_waits_for.take(),
        });
        after.sort_unstable();
        after.dedup();
        for &buffer in &reads {
            self.uses[buffer.0].readers_since.push(id);
        }
        for &buffer in &writes {
            self.uses[buffer.0] = PendingUses { writer: Some(id), readers_since: Vec::new() };
        }
        self.program.steps.push(Step { op, label, after, reads, writes });
    }
}
