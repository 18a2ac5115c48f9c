//! Registers of one warp. A lane is one of the 32 threads of a warp; in a mask, bit *l* stands for
//! lane *l*. The slot of a register is its index among the registers of its width.

use super::Instruction;
use super::lanes::{LANES, Words, Words64, merge};

/// Registers of a warp: one value for each lane, one bit for a predicate. 16-bit registers are
/// 32-bit words with a zero upper half. A slot is an index in one of the three vectors.
pub(crate) struct Registers {
    /// 32-bit registers, by slot.
    pub(crate) words: Vec<Words>,
    /// 64-bit registers, by slot.
    pub(crate) words64: Vec<Words64>,
    /// Predicates, by slot: bit *l* is the value in lane *l*.
    pub(crate) predicates: Vec<u32>,
}

impl Registers {
    /// Slot of the predicate that is always true.
    pub(crate) const ALWAYS: usize = 0;
    /// Slot of the carry flag, written by `add.cc` and similar.
    pub(crate) const CARRY: usize = 1;
    /// Slot of the predicate for unused results, written `_` in PTX.
    pub(crate) const DISCARD: usize = 2;
    /// Number of predicates reserved by the emulator. Those of the kernel have the slots after
    /// them.
    pub(crate) const RESERVED_PREDICATES: usize = 3;

    /// Creates the given number of registers of each kind. `predicates` includes the reserved ones.
    /// All are zero, except [`ALWAYS`](Self::ALWAYS).
    pub(crate) fn new(words: usize, words64: usize, predicates: usize) -> Self {
        let mut new = Self {
            words: vec![[0; LANES]; words],
            words64: vec![[0; LANES]; words64],
            predicates: vec![0; predicates],
        };
        new.predicates[Self::ALWAYS] = u32::MAX;
        new
    }

    /// Sets the predicate in a slot to `bits` (bit *l* for lane *l*) in the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, slot: u16, bits: u32, mask: u32) {
        let predicate = &mut self.predicates[usize::from(slot)];
        *predicate = *predicate & !mask | bits & mask;
    }

    /// Completes the comparison `i`, whose results are `bits` (bit *l* for lane *l*). First inverts
    /// the results, if `i.extra` says so. Then combines them with predicate `c`, negated if `i.e`
    /// is not 0, and writes them to predicate `d` in the lanes of `mask`. If there is a second
    /// predicate, the complement of the results is combined with `c` in the same way and written to
    /// it. `i.extra` is a packed `Comparison`.
    #[inline(always)]
    pub(crate) fn set_compared(&mut self, i: &Instruction, bits: u32, mask: u32) {
        let Comparison { inverted, combine, second } = Comparison::unpack(i.extra);
        let bits = if inverted { !bits } else { bits };
        let other = self.predicates[usize::from(i.c)];
        let other = if i.e != 0 { !other } else { other };
        let join = |bits: u32| match combine {
            Combine::None => bits,
            Combine::And => bits & other,
            Combine::Or => bits | other,
            Combine::Xor => bits ^ other,
        };
        self.set_predicate(i.d, join(bits), mask);
        if let Some(second) = second {
            self.set_predicate(second, join(!bits), mask);
        }
    }

    /// Sets the lanes in `mask` of the register in a slot: of a 64-bit register if `wide`,
    /// otherwise of a 32-bit register, to which the lower halves of `values` are written.
    pub(crate) fn set(&mut self, wide: bool, slot: u16, values: &Words64, mask: u32) {
        if wide {
            merge(&mut self.words64[usize::from(slot)], values, mask);
        } else {
            let values = std::array::from_fn(|lane| values[lane] as u32);
            merge(&mut self.words[usize::from(slot)], &values, mask);
        }
    }

    /// Returns one lane of the register in a slot: of a 64-bit register if `wide`, otherwise of a
    /// 32-bit register, zero-extended.
    #[inline(always)]
    pub(crate) fn get(&self, wide: bool, slot: u16, lane: usize) -> u64 {
        if wide { self.words64[usize::from(slot)][lane] } else { self.words[usize::from(slot)][lane].into() }
    }
}

/// Steps of `setp` after the comparison of the operands.
pub(crate) struct Comparison {
    /// Whether the result of the comparison is inverted before it is combined.
    pub(crate) inverted: bool,
    /// Operation that combines the result with the predicate `c` of the instruction.
    pub(crate) combine: Combine,
    /// Slot of a second predicate. The complement of the (possibly inverted) result, combined in
    /// the same way, is written to it. `None` if the instruction writes one predicate.
    pub(crate) second: Option<u16>,
}

/// Combination of a comparison with a predicate by `setp`.
#[derive(Clone, Copy)]
pub(crate) enum Combine {
    /// No combination: the result of the comparison is unchanged.
    None,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl Comparison {
    /// Packs the value into the field `extra` of an instruction.
    pub(crate) fn pack(&self) -> u32 {
        u32::from(self.inverted)
            | (self.combine as u32) << 1
            | self.second.map_or(0, |slot| u32::from(slot) << 16 | 8)
    }

    #[inline(always)]
    fn unpack(extra: u32) -> Self {
        Self {
            inverted: extra & 1 != 0,
            combine: match extra >> 1 & 3 {
                0 => Combine::None,
                1 => Combine::And,
                2 => Combine::Or,
                _ => Combine::Xor,
            },
            second: (extra & 8 != 0).then_some((extra >> 16) as u16),
        }
    }
}
