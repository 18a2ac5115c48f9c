//! Assembles the programs of all ranks side by side: allocates buffers, derives dependencies, numbers collectives.

use std::collections::{HashMap, HashSet};

use layer_engine::Role;
use layer_graph::{Layer, LayerGraph, LayerId};

use super::{
    BufferId, BufferSpec, Collective, CollectiveId, CollectiveOp, Contents, Op, Placement, Program,
    RankProgram, Step, StepId,
};

/// Buffers that are summed over the ranks of a group in one collective.
pub(super) struct Bucket {
    pub(super) ranks: Vec<usize>,
    pub(super) labels: Vec<String>,
    /// The buffers of the rank at each position of `ranks`.
    pub(super) buffers: Vec<Vec<BufferId>>,
    pub(super) elements: usize,
}

impl Bucket {
    pub(super) fn new(ranks: &[usize]) -> Self {
        let buffers = vec![Vec::new(); ranks.len()];
        Self { ranks: ranks.to_vec(), labels: Vec::new(), buffers, elements: 0 }
    }
}

pub(super) struct ProgramBuilder {
    batch: usize,
    ranks: Vec<RankBuilder>,
    collectives: Vec<Collective>,
}

impl ProgramBuilder {
    /// Programs without steps, but with the state that each rank holds: the parameters, velocities and statistics of
    /// its layers, in topological order. Every program for this network and placement begins with the same buffers.
    /// Parameters that several layers use are the buffer of the first of them, on the ranks of all.
    pub(super) fn new(
        network: &LayerGraph,
        placement: &Placement,
        parameter_ranks: &[Vec<usize>],
        batch: usize,
    ) -> Self {
        let ranks = (0..placement.world()).map(|rank| {
            let mut builder = RankBuilder::new(rank);
            for (id, layer) in network.layers() {
                if parameter_ranks[id.index()].contains(&rank) {
                    let parameters = builder.operand(id, layer, Role::Parameters, 0);
                    for user in network.parameter_users(id) {
                        builder.set_operand(user, Role::Parameters, parameters);
                    }
                    let velocity = builder.buffer(layer.parameter_count(), Contents::Velocity(id));
                    builder.velocities.insert(id, velocity);
                }
                if placement.ranks(id).contains(&rank) && !layer.statistics().is_empty() {
                    builder.operand(id, layer, Role::Statistics, 0);
                }
            }
            builder.program.state_buffers = builder.program.buffers.len();
            builder
        });
        Self { batch, ranks: ranks.collect(), collectives: Vec::new() }
    }

    pub(super) fn rank(&mut self, rank: usize) -> &mut RankBuilder {
        &mut self.ranks[rank]
    }

    /// Adds a collective to the programs of its ranks. `operands` gives what the rank at a position of `ranks` reads
    /// and writes.
    pub(super) fn collective(
        &mut self,
        op: CollectiveOp,
        ranks: &[usize],
        label: String,
        mut operands: impl FnMut(usize) -> (Vec<BufferId>, Vec<BufferId>),
    ) {
        let id = CollectiveId(self.collectives.len());
        for (position, &rank) in ranks.iter().enumerate() {
            let (reads, writes) = operands(position);
            self.ranks[rank].step(Op::Collective(id), label.clone(), reads, writes);
        }
        self.collectives.push(Collective { op, ranks: ranks.to_vec(), label });
    }

    /// Sums the buffers of a bucket over its ranks; nothing to do for one rank.
    pub(super) fn all_reduce(&mut self, bucket: Bucket) {
        if bucket.ranks.len() > 1 {
            let op = CollectiveOp::AllReduce { elements: bucket.elements };
            let label = format!("all-reduce {}", bucket.labels.join("+"));
            let mut buffers = bucket.buffers;
            self.collective(op, &bucket.ranks, label, |position| {
                (Vec::new(), std::mem::take(&mut buffers[position]))
            });
        }
    }

    /// The next micro-batch begins: see [`RankBuilder::reuse_buffers`].
    pub(super) fn reuse_buffers(&mut self) {
        self.ranks.iter_mut().for_each(RankBuilder::reuse_buffers);
    }

    /// From now on every collective waits for all steps that its ranks have so far.
    pub(super) fn collectives_wait(&mut self) {
        for rank in &mut self.ranks {
            rank.collectives_wait_for = rank.program.steps.len().checked_sub(1).map(StepId);
        }
    }

    pub(super) fn finish(self) -> Program {
        let ranks = self.ranks.into_iter().map(|rank| rank.program).collect();
        Program { batch: self.batch, ranks, collectives: self.collectives }
    }
}

/// Assembles the program of one rank.
pub(super) struct RankBuilder {
    program: RankProgram,
    /// By buffer: who has to be finished before it may be read or written.
    uses: Vec<Uses>,
    operands: HashMap<(LayerId, Role), BufferId>,
    velocities: HashMap<LayerId, BufferId>,
    /// What the micro-batches so far gave in a role.
    totals: HashMap<(LayerId, Role), BufferId>,
    /// Buffers of earlier micro-batches that nobody needs any more.
    free: Vec<BufferId>,
    collectives_wait_for: Option<StepId>,
}

#[derive(Default)]
struct Uses {
    writer: Option<StepId>,
    readers_since: Vec<StepId>,
}

impl RankBuilder {
    fn new(rank: usize) -> Self {
        Self {
            program: RankProgram { rank, buffers: Vec::new(), state_buffers: 0, steps: Vec::new() },
            uses: Vec::new(),
            operands: HashMap::new(),
            velocities: HashMap::new(),
            totals: HashMap::new(),
            free: Vec::new(),
            collectives_wait_for: None,
        }
    }

    /// A new buffer, or one of an earlier micro-batch that was made for the same.
    pub(super) fn buffer(&mut self, elements: usize, contents: Contents) -> BufferId {
        let spec = BufferSpec { elements, contents };
        if let Some(place) = self.free.iter().position(|id| self.program.buffers[id.0] == spec) {
            return self.free.remove(place);
        }
        self.program.buffers.push(spec);
        self.uses.push(Uses::default());
        BufferId(self.uses.len() - 1)
    }

    /// The next micro-batch begins: the buffers of those before it are free but for state and totals.
    fn reuse_buffers(&mut self) {
        let state = self.program.state_buffers;
        self.operands.retain(|_, buffer| buffer.0 < state);
        let kept: HashSet<BufferId> = self.totals.values().copied().collect();
        let scratch = (state..self.program.buffers.len()).map(BufferId);
        self.free = scratch.filter(|buffer| !kept.contains(buffer)).collect();
    }

    /// Adds what the micro-batch gave in a role, whose length does not depend on the number of samples, to what those
    /// before it gave; from now on the sum plays the role.
    pub(super) fn accumulate(&mut self, id: LayerId, layer: &Layer, role: Role) {
        let part = self.operand(id, layer, role, 0);
        let total = match self.totals.get(&(id, role)) {
            None => part,
            Some(&before) => {
                let sum = self.buffer(role.elements(layer, 0), Contents::Operand(id, role));
                let label = format!("add up micro-batches of {}", layer.name());
                self.step(Op::AccumulateGradient, label, vec![before, part], vec![sum]);
                sum
            }
        };
        self.totals.insert((id, role), total);
        self.set_operand(id, role, total);
    }

    /// The buffer that plays a role for a layer on this rank; made at its first use.
    pub(super) fn operand(&mut self, id: LayerId, layer: &Layer, role: Role, samples: usize) -> BufferId {
        if let Some(&buffer) = self.operands.get(&(id, role)) {
            return buffer;
        }
        let buffer = self.buffer(role.elements(layer, samples), Contents::Operand(id, role));
        self.operands.insert((id, role), buffer);
        buffer
    }

    /// Lets an existing buffer play a role for a layer: the output of another layer as its input.
    pub(super) fn set_operand(&mut self, id: LayerId, role: Role, buffer: BufferId) {
        self.operands.insert((id, role), buffer);
    }

    /// The optimiser's velocity for a layer that has parameters on this rank.
    pub(super) fn velocity(&self, id: LayerId) -> Option<BufferId> {
        self.velocities.get(&id).copied()
    }

    /// Adds a step. It comes after whoever last wrote what it reads or writes, and after all readers of what it
    /// overwrites.
    pub(super) fn step(&mut self, op: Op, label: String, reads: Vec<BufferId>, writes: Vec<BufferId>) {
        let id = StepId(self.program.steps.len());
        let mut after: Vec<StepId> =
            reads.iter().chain(&writes).filter_map(|buffer| self.uses[buffer.0].writer).collect();
        after.extend(writes.iter().flat_map(|buffer| &self.uses[buffer.0].readers_since));
        if matches!(op, Op::Collective(_)) {
            after.extend(self.collectives_wait_for);
        }
        after.sort_unstable();
        after.dedup();
        for buffer in &reads {
            self.uses[buffer.0].readers_since.push(id);
        }
        for buffer in &writes {
            self.uses[buffer.0] = Uses { writer: Some(id), readers_since: Vec::new() };
        }
        self.program.steps.push(Step { op, label, after, reads, writes });
    }
}
