//! Decoder of instructions that exchange values between the lanes of a warp, or that synchronise a
//! block. A lane is one of the 32 threads of a warp.

use super::function::Decoder;
use crate::{
    LoadError,
    operations::{Instruction, Kind, Op},
    parse::{Operand, ParsedInstruction},
};

/// Lane that a lane reads from in `shfl`, computed from its own index and the operand *b*.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShuffleMode {
    /// The lane *b* below.
    Up,
    /// The lane *b* above.
    Down,
    /// The lane whose index is the exclusive or of the own index and *b*.
    Butterfly,
    /// The lane with index *b*.
    Index,
}

/// Reduction of a predicate by `vote` (over lanes) or by a barrier (over threads).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VoteMode {
    /// Whether all predicates are true.
    All,
    /// Whether any predicate is true.
    Any,
    /// Whether all predicates are equal. Not used by barriers.
    Uniform,
    /// For `vote`, the mask of lanes whose predicate is true. For barriers, the number of threads
    /// whose predicate is true.
    Count,
}

/// Operation by which `redux` reduces the 32-bit values of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReduceOperation {
    /// Sum modulo 2^32.
    Add,
    /// Minimum of unsigned integers.
    Minimum,
    /// Minimum of signed integers.
    MinimumSigned,
    /// Maximum of unsigned integers.
    Maximum,
    /// Maximum of signed integers.
    MaximumSigned,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

macro_rules! packed {
    ($name:ident: $($variant:ident),*) => {
        impl $name {
            /// Restores the value from the lowest 4 bits of the field `extra` of an instruction.
            pub(crate) fn unpack(extra: u32) -> Self {
                let all = [$(Self::$variant),*];
                all[(extra & 15) as usize % all.len()]
            }
        }
    };
}

packed!(ShuffleMode: Up, Down, Butterfly, Index);
packed!(VoteMode: All, Any, Uniform, Count);
packed!(ReduceOperation: Add, Minimum, MinimumSigned, Maximum, MaximumSigned, And, Or, Xor);

/// Bit of the field `extra` of an instruction that is set if the predicate operand is negated.
pub(crate) const NEGATED: u32 = 16;

/// Modes of `shfl` by the part of the opcode after `shfl.`.
pub(super) const SHUFFLES: [(&str, ShuffleMode); 4] = [
    ("sync.up.b32", ShuffleMode::Up),
    ("sync.down.b32", ShuffleMode::Down),
    ("sync.bfly.b32", ShuffleMode::Butterfly),
    ("sync.idx.b32", ShuffleMode::Index),
];

/// Modes of `vote` by the part of the opcode after `vote.`.
pub(super) const VOTES: [(&str, VoteMode); 4] = [
    ("sync.all.pred", VoteMode::All),
    ("sync.any.pred", VoteMode::Any),
    ("sync.uni.pred", VoteMode::Uniform),
    ("sync.ballot.b32", VoteMode::Count),
];

/// Modifiers of `match`, with two properties: whether all lanes must have equal operands, and the
/// kind of the operand.
pub(super) const MATCHES: [(&str, (bool, Kind)); 4] = [
    ("any.sync.b32", (false, Kind::W)),
    ("any.sync.b64", (false, Kind::D)),
    ("all.sync.b32", (true, Kind::W)),
    ("all.sync.b64", (true, Kind::D)),
];

/// Operations of `redux` by the part of the opcode after `redux.`.
pub(super) const REDUCTIONS: [(&str, ReduceOperation); 9] = [
    ("sync.add.u32", ReduceOperation::Add),
    ("sync.add.s32", ReduceOperation::Add),
    ("sync.min.u32", ReduceOperation::Minimum),
    ("sync.min.s32", ReduceOperation::MinimumSigned),
    ("sync.max.u32", ReduceOperation::Maximum),
    ("sync.max.s32", ReduceOperation::MaximumSigned),
    ("sync.and.b32", ReduceOperation::And),
    ("sync.or.b32", ReduceOperation::Or),
    ("sync.xor.b32", ReduceOperation::Xor),
];

/// Reductions of a predicate by `bar` and `barrier`, by the part of the opcode after the first dot
/// without `cta` and `aligned`.
pub(super) const BARRIER_REDUCTIONS: [(&str, VoteMode); 3] =
    [("red.popc.u32", VoteMode::Count), ("red.and.pred", VoteMode::All), ("red.or.pred", VoteMode::Any)];

fn lookup<T: Copy>(table: &[(&str, T)], modifiers: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == modifiers).map(|(_, meaning)| *meaning)
}

impl<'a> Decoder<'_, 'a> {
    /// Decodes the instruction `parsed`, which is a barrier or an exchange between lanes, and emits
    /// one instruction. `base` is the opcode up to the first dot and `modifiers` the rest. It is an
    /// error if the opcode is not supported or an operand is invalid.
    pub(super) fn warp_or_block(
        &mut self,
        parsed: &ParsedInstruction<'a>,
        base: &str,
        modifiers: &str,
    ) -> Result<(), LoadError> {
        match (base, modifiers) {
            ("bar" | "barrier", "warp.sync") => {
                let [mask] = self.take::<1>(parsed)?;
                let a = self.operands.value(&mask, Kind::W)?;
                self.emit(Instruction { a, ..Instruction::new(Op::WarpBarrier) });
                Ok(())
            }
            ("bar" | "barrier", _) => self.barrier(parsed, modifiers),
            ("shfl", _) => self.shuffle(parsed, modifiers),
            ("vote", _) => self.vote(parsed, modifiers),
            ("match", _) => self.matching(parsed, modifiers),
            ("redux", _) => self.reduce(parsed, modifiers),
            ("activemask", "b32") => {
                let [to] = self.take::<1>(parsed)?;
                let d = self.operands.result(&to, Kind::W)?;
                self.emit(Instruction { d, ..Instruction::new(Op::ActiveLanes) });
                Ok(())
            }
            _ => Err(self.unsupported(parsed)),
        }
    }

    fn barrier(&mut self, parsed: &ParsedInstruction<'a>, modifiers: &str) -> Result<(), LoadError> {
        let parts: Vec<_> = modifiers.split('.').filter(|part| !matches!(*part, "aligned" | "cta")).collect();
        let mut i = Instruction { b: Instruction::NONE, ..Instruction::new(Op::Barrier) };
        let mut operands = parsed.operands.as_slice();
        let mode = match parts.as_slice() {
            ["sync"] => None,
            ["arrive"] => {
                i.op = Op::BarrierArrive;
                None
            }
            parts => match lookup(&BARRIER_REDUCTIONS, &parts.join(".")) {
                None => return Err(self.unsupported(parsed)),
                mode => mode,
            },
        };
        if let Some(mode) = mode {
            let (Some((to, rest)), kind) =
                (operands.split_first(), if mode == VoteMode::Count { Kind::W } else { Kind::P })
            else {
                return Err(self.operands.error("operands are missing"));
            };
            let Some((predicate, rest)) = rest.split_last() else {
                return Err(self.operands.error("operands are missing"));
            };
            i.op = Op::BarrierReduce;
            i.d = self.operands.result(to, kind)?;
            let (slot, negated) = self.operands.predicate(predicate)?;
            i.c = slot;
            i.extra = mode as u32 | if negated { NEGATED } else { 0 };
            operands = rest;
        }
        match operands {
            [number] if i.op != Op::BarrierArrive => i.a = self.operands.value(number, Kind::W)?,
            [number, count] => {
                i.a = self.operands.value(number, Kind::W)?;
                i.b = self.operands.value(count, Kind::W)?;
            }
            _ => {
                return Err(self
                    .operands
                    .error("a barrier's number is expected, and perhaps a number of threads"));
            }
        }
        self.emit(i);
        Ok(())
    }

    fn shuffle(&mut self, parsed: &ParsedInstruction<'a>, modifiers: &str) -> Result<(), LoadError> {
        let Some(mode) = lookup(&SHUFFLES, modifiers) else { return Err(self.unsupported(parsed)) };
        let [to, value, lane, clamp, mask] = self.take::<5>(parsed)?;
        let (a, b) = (self.operands.value(&value, Kind::W)?, self.operands.value(&lane, Kind::W)?);
        let (c, e) = (self.operands.value(&clamp, Kind::W)?, self.operands.value(&mask, Kind::W)?);
        let (d, predicate) = self.operands.with_predicate(&to, Kind::W)?;
        let extra = mode as u32 | u32::from(predicate.unwrap_or(Instruction::NONE)) << 16;
        self.emit(Instruction { d, a, b, c, e, extra, ..Instruction::new(Op::Shuffle) });
        Ok(())
    }

    fn vote(&mut self, parsed: &ParsedInstruction<'a>, modifiers: &str) -> Result<(), LoadError> {
        let Some(mode) = lookup(&VOTES, modifiers) else { return Err(self.unsupported(parsed)) };
        let kind = if mode == VoteMode::Count { Kind::W } else { Kind::P };
        let [to, predicate, mask] = self.take::<3>(parsed)?;
        let (a, negated) = self.operands.predicate(&predicate)?;
        let b = self.operands.value(&mask, Kind::W)?;
        let d = self.operands.result(&to, kind)?;
        let extra = mode as u32 | if negated { NEGATED } else { 0 };
        self.emit(Instruction { d, a, b, extra, ..Instruction::new(Op::Vote) });
        Ok(())
    }

    /// Decodes `match.any` and `match.all`. The second result is a predicate.
    fn matching(&mut self, parsed: &ParsedInstruction<'a>, modifiers: &str) -> Result<(), LoadError> {
        let Some((all, kind)) = lookup(&MATCHES, modifiers) else { return Err(self.unsupported(parsed)) };
        let [to, value, mask] = self.take::<3>(parsed)?;
        let a = self.operands.value(&value, kind)?;
        let b = self.operands.value(&mask, Kind::W)?;
        let (d, predicate) = match &to {
            Operand::Pair(..) if !all => return Err(self.unsupported(parsed)),
            to => self.operands.with_predicate(to, Kind::W)?,
        };
        let extra = u32::from(all)
            | u32::from(kind == Kind::D) << 1
            | u32::from(predicate.unwrap_or(Instruction::NONE)) << 16;
        self.emit(Instruction { d, a, b, extra, ..Instruction::new(Op::Match) });
        Ok(())
    }

    fn reduce(&mut self, parsed: &ParsedInstruction<'a>, modifiers: &str) -> Result<(), LoadError> {
        let Some(operation) = lookup(&REDUCTIONS, modifiers) else { return Err(self.unsupported(parsed)) };
        let [to, value, mask] = self.take::<3>(parsed)?;
        let (a, b) = (self.operands.value(&value, Kind::W)?, self.operands.value(&mask, Kind::W)?);
        let d = self.operands.result(&to, Kind::W)?;
        self.emit(Instruction { d, a, b, extra: operation as u32, ..Instruction::new(Op::ReduceWarp) });
        Ok(())
    }
}
