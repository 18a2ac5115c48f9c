//! Instructions that exchange values between lanes of a warp. A lane is one of the 32 threads of a
//! warp; in a mask, bit *l* stands for lane *l*.

use super::warp::{Warp, lanes};
use crate::{
    FaultKind,
    decode::{NEGATED, ReduceOperation, ShuffleMode, VoteMode},
    operations::{Instruction, LANES, Op, Words, merge},
};

/// Returns whether the lanes of `mask`, which execute `i`, must wait for other live lanes that the
/// mask operand of `i` names.
///
/// # Errors
/// Returns [`FaultKind::LaneMask`] if a lane is not named by its own mask operand.
pub(crate) fn must_wait(warp: &Warp, i: &Instruction, mask: u32) -> Result<bool, FaultKind> {
    let slot = match i.op {
        Op::Shuffle => i.e,
        Op::WarpBarrier => i.a,
        _ => i.b,
    };
    let masks = &warp.registers.words[usize::from(slot)];
    let mut waits = false;
    for lane in lanes(mask) {
        let named = masks[lane];
        if named >> lane & 1 == 0 {
            return Err(FaultKind::LaneMask { mask: named, active: mask });
        }
        waits |= named & warp.live & !mask != 0;
    }
    Ok(waits)
}

/// Executes the exchange or warp barrier `i` for the lanes of `mask`. All lanes that the
/// instruction names have arrived.
pub(crate) fn exchange(warp: &mut Warp, i: &Instruction, mask: u32) {
    match i.op {
        Op::Shuffle => shuffle(warp, i, mask),
        Op::Vote => vote(warp, i, mask),
        Op::Match => matching(warp, i, mask),
        Op::ReduceWarp => reduce(warp, i, mask),
        // A warp barrier orders memory accesses; the exchanges above do not.
        _ => warp.epoch += 1,
    }
}

fn shuffle(warp: &mut Warp, i: &Instruction, mask: u32) {
    let registers = &mut warp.registers;
    let [values, offsets, clamps] = [i.a, i.b, i.c].map(|slot| registers.words[usize::from(slot)]);
    let mode = ShuffleMode::unpack(i.extra);
    let (mut result, mut inside) = (values, 0);
    for lane in 0..LANES as u32 {
        let (offset, clamp) = (offsets[lane as usize] & 31, clamps[lane as usize]);
        let segment = clamp >> 8 & 31;
        let last = lane & segment | clamp & 31 & !segment;
        let (from, valid) = match mode {
            ShuffleMode::Up => (lane.wrapping_sub(offset), lane as i32 - offset as i32 >= last as i32),
            ShuffleMode::Down => (lane + offset, lane + offset <= last),
            ShuffleMode::Butterfly => (lane ^ offset, lane ^ offset <= last),
            ShuffleMode::Index => {
                let from = lane & segment | offset & !segment;
                (from, from <= last)
            }
        };
        let from = if valid { from } else { lane };
        // The value of an inactive lane is undefined; its register is used.
        result[lane as usize] = values[from as usize % LANES];
        inside |= u32::from(valid) << lane;
    }
    merge(&mut registers.words[usize::from(i.d)], &result, mask);
    set_second(warp, i, inside, mask);
}

/// Writes the predicate of `d|p`, if there is one.
fn set_second(warp: &mut Warp, i: &Instruction, bits: u32, mask: u32) {
    let slot = (i.extra >> 16) as u16;
    if slot != Instruction::NONE {
        warp.registers.set_predicate(slot, bits, mask);
    }
}

/// Computes a result for each lane of `mask` from the active lanes in its mask.
fn by_mask(masks: &Words, mask: u32, mut make: impl FnMut(u32) -> u32) -> Words {
    let mut result = [0; LANES];
    let mut left = mask;
    while left != 0 {
        let named = masks[left.trailing_zeros() as usize];
        let same = lanes(left).filter(|&lane| masks[lane] == named).fold(0, |same, lane| same | 1 << lane);
        let value = make(named & mask);
        for lane in lanes(same) {
            result[lane] = value;
        }
        left &= !same;
    }
    result
}

/// Returns the mask of lanes whose word is not 0.
fn truths(words: &Words) -> u32 {
    words.iter().enumerate().fold(0, |bits, (lane, &word)| bits | u32::from(word != 0) << lane)
}

fn vote(warp: &mut Warp, i: &Instruction, mask: u32) {
    let predicate = warp.registers.predicates[usize::from(i.a)];
    let predicate = if i.extra & NEGATED != 0 { !predicate } else { predicate };
    let masks = warp.registers.words[usize::from(i.b)];
    let mode = VoteMode::unpack(i.extra);
    let result = by_mask(&masks, mask, |members| {
        let hold = predicate & members;
        match mode {
            VoteMode::All => u32::from(hold == members),
            VoteMode::Any => u32::from(hold != 0),
            VoteMode::Uniform => u32::from(hold == members || hold == 0),
            VoteMode::Count => hold,
        }
    });
    if mode == VoteMode::Count {
        merge(&mut warp.registers.words[usize::from(i.d)], &result, mask);
    } else {
        warp.registers.set_predicate(i.d, truths(&result), mask);
    }
}

fn matching(warp: &mut Warp, i: &Instruction, mask: u32) {
    let (all, wide) = (i.extra & 1 != 0, i.extra & 2 != 0);
    let masks = warp.registers.words[usize::from(i.b)];
    let mut result = [0; LANES];
    for lane in lanes(mask) {
        let members = masks[lane] & mask;
        let value = warp.registers.get(wide, i.a, lane);
        let same = lanes(members)
            .filter(|&other| warp.registers.get(wide, i.a, other) == value)
            .fold(0, |same, other| same | 1 << other);
        result[lane] = if all && same != members { 0 } else { same };
    }
    merge(&mut warp.registers.words[usize::from(i.d)], &result, mask);
    set_second(warp, i, truths(&result), mask);
}

fn reduce(warp: &mut Warp, i: &Instruction, mask: u32) {
    use ReduceOperation as Is;
    let values = warp.registers.words[usize::from(i.a)];
    let masks = warp.registers.words[usize::from(i.b)];
    let join = |a: u32, b: u32| match ReduceOperation::unpack(i.extra) {
        Is::Add => a.wrapping_add(b),
        Is::Minimum => a.min(b),
        Is::MinimumSigned => (a as i32).min(b as i32) as u32,
        Is::Maximum => a.max(b),
        Is::MaximumSigned => (a as i32).max(b as i32) as u32,
        Is::And => a & b,
        Is::Or => a | b,
        Is::Xor => a ^ b,
    };
    let result =
        by_mask(&masks, mask, |members| lanes(members).map(|lane| values[lane]).reduce(join).unwrap_or(0));
    merge(&mut warp.registers.words[usize::from(i.d)], &result, mask);
}
