//! Chains of elementwise steps that one kernel computes: a sum, a rectifier (`ReLU`), and copies. A
//! value that only the next step of the chain reads is not stored.

use layer_engine::{ElementwiseChain, Pass, Rectifier, Role, Signature, Storage};
use layer_graph::{LayerGraph, LayerKind};

use crate::program::{BufferId, BufferSpec, Launch, Op, RankProgram, Step, StepId};

/// Consecutive steps that one kernel computes.
#[derive(Debug)]
pub(super) struct Chain {
    /// The first step.
    pub(super) first: StepId,
    /// Number of steps, at least two.
    pub(super) count: usize,
    /// Operations of the kernel.
    pub(super) operations: ElementwiseChain,
    /// Buffers that the kernel reads.
    pub(super) reads: Vec<BufferId>,
    /// Buffers that the kernel writes.
    pub(super) writes: Vec<BufferId>,
}

/// Elementwise operation of a step.
enum Operation {
    /// Sum of the buffers that are read.
    Sum,
    /// Rectifier of the buffer `value`. In a backward pass, `gate` is the output of the forward
    /// pass.
    Rectifier { value: BufferId, gate: Option<BufferId> },
    /// Copies of the buffer.
    Copies(BufferId),
}

impl Operation {
    /// Returns the operation of a step; `None` if it is no such operation.
    fn of_step(network: &LayerGraph, step: &Step) -> Option<Self> {
        let (layer, pass) = match &step.op {
            Op::SumGradients => return Some(Self::Sum),
            Op::Forward { layer, pass: pass @ (Pass::Forward | Pass::Recompute), .. }
            | Op::Backward { layer, pass: pass @ Pass::Backward, .. } => (network.layer(*layer), *pass),
            _ => return None,
        };
        let operand = |role| {
            let reads = Signature::of(layer, pass)?.reads;
            reads.iter().position(|other| *other == role).and_then(|place| step.reads.get(place)).copied()
        };
        Some(match (layer.kind(), pass) {
            (LayerKind::Add, Pass::Backward) => Self::Copies(operand(Role::OutputGradient)?),
            (LayerKind::Add, _) => Self::Sum,
            (LayerKind::Relu, Pass::Backward) => {
                Self::Rectifier { value: operand(Role::OutputGradient)?, gate: Some(operand(Role::Output)?) }
            }
            (LayerKind::Relu, _) => Self::Rectifier { value: operand(Role::Input(0))?, gate: None },
            _ => return None,
        })
    }
}

impl Chain {
    /// Returns the longest chain that begins with the first of these launches of a program; `None`
    /// if it has no two steps. Only its first step waits for another lane.
    pub(super) fn at_start_of(
        network: &LayerGraph,
        program: &RankProgram,
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

    fn of_step(network: &LayerGraph, program: &RankProgram, first: StepId) -> Option<Self> {
        let step = &program.steps[first.0];
        let (reads, terms, rectifier) = match Operation::of_step(network, step)? {
            Operation::Sum => (step.reads.clone(), step.reads.len(), None),
            Operation::Rectifier { value, gate: Some(gate) } => {
                (vec![value, gate], 1, Some(Rectifier::Backward))
            }
            _ => return None,
        };
        let elements = program.buffers[step.writes.first()?.0].elements;
        let operations = ElementwiseChain {
            elements,
            storage: Storage::Scalar,
            terms,
            rectifier,
            copies: step.writes.len(),
        };
        let is_possible = terms <= ElementwiseChain::MAX_OPERANDS && elements > 0;
        let chain = Self { first, count: 1, operations, reads, writes: step.writes.clone() };
        is_possible.then_some(chain)
    }

    /// Returns the chain with one more step; `None` if the step does not continue it.
    fn followed_by(&self, network: &LayerGraph, program: &RankProgram, id: StepId) -> Option<Self> {
        let step = &program.steps[id.0];
        let [value] = self.writes[..] else { return None };
        let (mut operations, mut reads) = (self.operations, self.reads.clone());
        match Operation::of_step(network, step)? {
            Operation::Rectifier { value: read, gate } if read == value && operations.rectifier.is_none() => {
                operations.rectifier = Some(gate.map_or(Rectifier::Forward, |_| Rectifier::Backward));
                reads.extend(gate);
            }
            Operation::Copies(read) if read == value => operations.copies = step.writes.len(),
            _ => return None,
        }
        let buffer = |id: &BufferId| &program.buffers[id.0];
        let is_same_length = step.writes.iter().all(|id| buffer(id).elements == operations.elements);
        let conflicts =
            |read| step.writes.iter().any(|written| overlap_shifted(buffer(read), buffer(written)));
        let is_possible = is_same_length
            && (1..=ElementwiseChain::MAX_OPERANDS).contains(&operations.copies)
            && !is_read_after(program, value, id)
            && !reads.iter().any(conflicts);
        let writes = step.writes.clone();
        is_possible.then_some(Self { first: self.first, count: self.count + 1, operations, reads, writes })
    }
}

/// Returns whether two buffers overlap in the arena without being at the same place.
fn overlap_shifted(a: &BufferSpec, b: &BufferSpec) -> bool {
    match (a.offset, b.offset) {
        (Some(first), Some(other)) => {
            first != other && first < other + b.elements && other < first + a.elements
        }
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
