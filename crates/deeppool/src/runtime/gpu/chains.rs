//! Chains of elementwise steps that one kernel computes: a sum, a rectifier (`ReLU`), and copies,
//! after a batch normalisation or before the moments of its backward pass. A value that only the
//! next step of the chain reads is not stored.

use layer_engine::{ChainNorm, ElementwiseChain, Pass, Rectifier, Role, Signature, Storage};
use layer_graph::{LayerGraph, LayerKind};

use crate::program::{BufferId, BufferSpec, Launch, Op, RankProgram, Step, StepId};

/// Consecutive steps that one kernel computes.
#[derive(Debug, Clone)]
pub(super) struct Chain<'n> {
    /// The first step.
    pub(super) first: StepId,
    /// Number of steps, at least two.
    pub(super) count: usize,
    /// Operations of the kernel.
    pub(super) operations: ElementwiseChain<'n>,
    /// Buffers that the normalisation reads and those that it writes, besides those of elementwise
    /// operations.
    norm: [Vec<BufferId>; 2],
    /// Buffers that elementwise operations read: the terms, and the output of a rectifier.
    terms: Vec<BufferId>,
    /// Buffers to which the result is written.
    copies: Vec<BufferId>,
}

/// Operation of a step.
enum Operation<'n> {
    /// Sum of the buffers that are read.
    Sum,
    /// Rectifier of the buffer `value`. In a backward pass, `gate` is the output of the forward
    /// pass.
    Rectifier { value: BufferId, gate: Option<BufferId> },
    /// Copies of the buffer.
    Copies(BufferId),
    /// Pass of a batch normalisation that may be in a chain. `value` is the buffer that it shares
    /// with the other operations, and the others are `norm`.
    Norm { pass: ChainNorm<'n>, value: BufferId, norm: [Vec<BufferId>; 2] },
}

impl<'n> Operation<'n> {
    /// Returns the operation of a step; `None` if it is no such operation.
    fn of_step(network: &'n LayerGraph, program: &'n RankProgram, step: &Step) -> Option<Self> {
        let (layer, pass, samples) = match step.op {
            Op::SumGradients => return Some(Self::Sum),
            Op::Forward { layer, pass, shard } | Op::Backward { layer, pass, shard } => {
                (program.layer(network, layer), pass, shard.samples)
            }
            _ => return None,
        };
        let operand = |role| {
            let reads = Signature::of(layer, pass)?.reads;
            reads.iter().position(|other| *other == role).and_then(|place| step.reads.get(place)).copied()
        };
        Some(match (layer.kind(), pass) {
            (LayerKind::Add, Pass::Backward) => Self::Copies(operand(Role::OutputGradient)?),
            (LayerKind::Add, Pass::Forward | Pass::Recompute) => Self::Sum,
            (LayerKind::Relu, Pass::Backward) => {
                Self::Rectifier { value: operand(Role::OutputGradient)?, gate: Some(operand(Role::Output)?) }
            }
            (LayerKind::Relu, Pass::Forward | Pass::Recompute) => {
                Self::Rectifier { value: operand(Role::Input(0))?, gate: None }
            }
            (LayerKind::BatchNorm(_), _) => Self::norm(step, ChainNorm { layer, pass, samples })?,
            _ => return None,
        })
    }

    /// Returns the operation of a step that is a pass of a batch normalisation; `None` if that pass
    /// is in no chain.
    fn norm(step: &Step, pass: ChainNorm<'n>) -> Option<Self> {
        let (all, kept) = (Signature::of(pass.layer, pass.pass)?, pass.signature()?);
        let place = |roles: &[Role], kept: &[Role]| roles.iter().position(|role| !kept.contains(role));
        let (read, written) = (place(&all.reads, &kept.reads), place(&all.writes, &kept.writes));
        let shared = |buffers: &[BufferId], place: Option<usize>| buffers.get(place?).copied();
        let value = shared(&step.reads, read).or(shared(&step.writes, written))?;
        let without = |buffers: &[BufferId]| buffers.iter().copied().filter(|&id| id != value).collect();
        Some(Self::Norm { pass, value, norm: [without(&step.reads), without(&step.writes)] })
    }
}

impl<'n> Chain<'n> {
    /// Returns the longest chain that begins with the first of these launches of a program; `None`
    /// if it has no two steps. Only its first step waits for another lane.
    pub(super) fn at_start_of(
        network: &'n LayerGraph,
        program: &'n RankProgram,
        launches: &[Launch],
    ) -> Option<Self> {
        let (first, others) = launches.split_first()?;
        let mut chain = Self::of_step(network, program, first.step)?;
        for launch in others.iter().take_while(|launch| launch.after.is_none()) {
            let Some(longer) = chain.followed_by(network, program, launch.step) else { break };
            chain = longer;
        }
        (chain.count > 1).then_some(chain)
    }

    /// Returns the buffers that the kernel reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = &BufferId> {
        self.norm[0].iter().chain(&self.terms)
    }

    /// Returns the buffers that the kernel writes.
    pub(super) fn writes(&self) -> impl Iterator<Item = &BufferId> {
        self.norm[1].iter().chain(&self.copies)
    }

    fn of_step(network: &'n LayerGraph, program: &'n RankProgram, first: StepId) -> Option<Self> {
        let step = &program.steps[first.0];
        let mut operations = ElementwiseChain {
            elements: 0,
            storage: Storage::Scalar,
            terms: 0,
            rectifier: None,
            copies: 0,
            norm: None,
        };
        let (mut norm, mut copies) = ([Vec::new(), Vec::new()], step.writes.clone());
        let terms = match Operation::of_step(network, program, step)? {
            Operation::Sum => step.reads.clone(),
            Operation::Copies(value) => vec![value],
            Operation::Rectifier { value, gate: Some(gate) } => {
                operations.rectifier = Some(Rectifier::Backward);
                vec![value, gate]
            }
            Operation::Norm { pass, value, norm: others } if pass.pass != Pass::BackwardMoments => {
                (operations.norm, norm, copies) = (Some(pass), others, vec![value]);
                Vec::new()
            }
            _ => return None,
        };
        operations.terms = terms.len() - usize::from(operations.rectifier.is_some());
        BufferSpec { elements: operations.elements, storage: operations.storage, .. } =
            program.buffers[copies.first()?.0];
        operations.copies = copies.len();
        let is_possible = operations.terms <= ElementwiseChain::MAX_OPERANDS && operations.elements > 0;
        let chain = Self { first, count: 1, operations, norm, terms, copies };
        (is_possible && chain.is_uniform(program)).then_some(chain)
    }

    /// Returns the chain with one more step; `None` if the step does not continue it.
    fn followed_by(&self, network: &'n LayerGraph, program: &'n RankProgram, id: StepId) -> Option<Self> {
        let step = &program.steps[id.0];
        let operation = Operation::of_step(network, program, step)?;
        let mut longer = self.clone();
        longer.count += 1;
        if let Operation::Norm { pass, value, norm } = operation {
            let is_possible = pass.pass == Pass::BackwardMoments
                && self.operations.norm.is_none()
                && self.operations.rectifier != Some(Rectifier::Forward)
                && self.copies.contains(&value);
            (longer.operations.norm, longer.norm) = (Some(pass), norm);
            return (is_possible && longer.has_no_conflict(program)).then_some(longer);
        }
        let [value] = self.copies[..] else { return None };
        let begins_with_norm = match self.operations.norm {
            Some(norm) if norm.pass == Pass::BackwardMoments => return None,
            norm => norm.is_some(),
        };
        match operation {
            Operation::Rectifier { value: read, gate }
                if read == value
                    && self.operations.rectifier.is_none()
                    && !(begins_with_norm && gate.is_some()) =>
            {
                longer.operations.rectifier = Some(gate.map_or(Rectifier::Forward, |_| Rectifier::Backward));
                longer.terms.extend(gate);
            }
            Operation::Copies(read) if read == value && !begins_with_norm => {}
            // A sum of two terms has the same bits in either order.
            Operation::Sum if begins_with_norm && self.operations.terms == 0 => {
                let other = match step.reads[..] {
                    [a, b] if a == value && b != value => b,
                    [a, b] if b == value && a != value => a,
                    _ => return None,
                };
                longer.terms.push(other);
                longer.operations.terms = 1;
            }
            _ => return None,
        }
        longer.copies.clone_from(&step.writes);
        longer.operations.copies = step.writes.len();
        let is_possible = (1..=ElementwiseChain::MAX_OPERANDS).contains(&longer.operations.copies)
            && longer.is_uniform(program)
            && !is_read_after(program, value, id)
            && longer.has_no_conflict(program);
        is_possible.then_some(longer)
    }

    /// Returns whether the terms, the output of a rectifier and the copies have the number of
    /// elements and the number format of the chain.
    fn is_uniform(&self, program: &RankProgram) -> bool {
        let ElementwiseChain { elements, storage, .. } = self.operations;
        self.terms.iter().chain(&self.copies).all(|id| {
            let buffer = &program.buffers[id.0];
            (buffer.elements, buffer.storage) == (elements, storage)
        })
    }

    /// Returns whether the order of the kernel's reads and writes does not matter: a buffer that is
    /// written overlaps another operand only if both have the same elements at the same place.
    fn has_no_conflict(&self, program: &RankProgram) -> bool {
        let overlap = |a: &BufferId, b: &BufferId| overlap(&program.buffers[a.0], &program.buffers[b.0]);
        let is_same = |a: &BufferId, b: &BufferId| program.buffers[a.0].offset == program.buffers[b.0].offset;
        // The input of the normalisation is read by elements unless the moments of its gradient are
        // computed, parameters and sums are not.
        let is_forward = self.operations.norm.is_some_and(|norm| norm.pass != Pass::BackwardMoments);
        let (input, others) = self.norm[0].split_at(usize::from(is_forward && !self.norm[0].is_empty()));
        let by_elements = || self.terms.iter().chain(input);
        let [_, written] = &self.norm;
        self.copies.iter().all(|copy| {
            !by_elements().any(|read| overlap(read, copy) && !is_same(read, copy))
                && !others.iter().chain(written).any(|other| overlap(other, copy))
        }) && written.iter().all(|written| !self.reads().any(|read| overlap(read, written)))
    }
}

/// Returns whether two buffers overlap in the arena.
fn overlap(a: &BufferSpec, b: &BufferSpec) -> bool {
    match (a.offset, b.offset) {
        (Some(first), Some(other)) => first < other + b.scalars() && other < first + a.scalars(),
        _ => false,
    }
}

/// Returns whether the content of a buffer may be read after a step.
fn is_read_after(program: &RankProgram, buffer: BufferId, step: StepId) -> bool {
    let overwrites = |step: &Step| match step.op {
        Op::SumGradients => !step.reads.contains(&buffer),
        Op::Forward { pass, .. } | Op::Backward { pass, .. } => {
            let is_in_place = matches!(pass, Pass::ForwardInPlace | Pass::BackwardInPlace);
            !is_in_place && !step.reads.contains(&buffer)
        }
        _ => false,
    };
    let uses = |step: &&Step| step.reads.contains(&buffer) || step.writes.contains(&buffer);
    program.steps[step.0 + 1..].iter().find(uses).is_some_and(|next| !overwrites(next))
}
