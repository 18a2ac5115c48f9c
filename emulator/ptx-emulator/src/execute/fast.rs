//! Fast path for loads and stores of 32-bit words in shared and global memory, for all lanes at
//! once. A lane is one of the 32 threads of a warp; in a mask, bit *l* stands for lane *l*.
//!
//! Each function returns `Some` if it executed the access. Otherwise it has had no effect, and the
//! caller uses the slow path in [`access`](super::access), because a check of bounds or alignment
//! failed, or because other checks are needed.

// The compiler vectorises this form of loop.
#![allow(clippy::needless_range_loop)]

use super::{
    context::BlockContext,
    shared::WORDS,
    warp::{lanes, lowest_lane},
};
use crate::{
    decode::Access,
    memory::Allocation,
    operations::{Instruction, LANES, Registers, Words64, merge},
};
use std::sync::atomic::Ordering::Relaxed;

/// Indices of the first word accessed by each lane.
enum WordIndices<'p> {
    /// The same index for all lanes.
    One(u64),
    /// One index for each lane; inactive lanes have the index of an active one.
    Each(&'p mut Words64),
}

/// Computes the word indices of the lanes in `mask` in a memory of `size` bytes at address `start`.
/// Returns `None` unless all accesses are aligned and inside.
#[inline(always)]
fn indices<'p>(
    registers: &Registers,
    access: &Access,
    mask: u32,
    (start, size): (u64, u64),
    indices: &'p mut Words64,
) -> Option<WordIndices<'p>> {
    let bytes = 4 * access.registers.len() as u64;
    // Maximum offset of an aligned access.
    let last = size.checked_sub(bytes)? & !(bytes - 1);
    let slot = usize::from(access.address);
    let mut addresses = [0; LANES];
    let addresses = if access.wide_address && mask == u32::MAX {
        &registers.words64[slot]
    } else {
        let one = registers.get(access.wide_address, access.address, lowest_lane(mask));
        for lane in 0..LANES {
            addresses[lane] = if access.wide_address {
                registers.words64[slot][lane]
            } else {
                registers.words[slot][lane].into()
            };
        }
        merge(&mut addresses, &[one; LANES], !mask);
        &addresses
    };
    let one = addresses[0];
    let add = (access.offset as u64).wrapping_sub(start);
    // The highest bit is set if an offset, or the distance from it to the maximum, is negative. A
    // bit below the alignment is set if either is not aligned.
    let (mut invalid, mut different) = (0, 0);
    for lane in 0..LANES {
        different |= addresses[lane] ^ one;
        let offset = addresses[lane].wrapping_add(add);
        invalid |= offset | last.wrapping_sub(offset);
        indices[lane] = offset / 4;
    }
    if invalid & (1 << 63 | (bytes - 1)) != 0 {
        return None;
    }
    Some(if different == 0 {
        WordIndices::One(one.wrapping_add(add) / 4)
    } else {
        WordIndices::Each(indices)
    })
}

/// Loads the words of each register. `word` reads a word by index.
#[inline(always)]
fn load(
    registers: &mut Registers,
    access: &Access,
    mask: u32,
    indices: WordIndices<'_>,
    word: impl Fn(u64) -> u32,
) {
    match indices {
        WordIndices::One(index) => {
            for (register, index) in access.registers.iter().zip(index..) {
                merge(&mut registers.words[usize::from(register.slot)], &[word(index); LANES], mask);
            }
        }
        WordIndices::Each(indices) => {
            for (index, register) in access.registers.iter().enumerate() {
                if index > 0 {
                    next(indices);
                }
                let to = &mut registers.words[usize::from(register.slot)];
                if mask == u32::MAX {
                    for lane in 0..LANES {
                        to[lane] = word(indices[lane]);
                    }
                } else {
                    lanes(mask).for_each(|lane| to[lane] = word(indices[lane]));
                }
            }
        }
    }
}

/// Advances to the next words.
#[inline(always)]
fn next(indices: &mut Words64) {
    for index in indices {
        *index += 1;
    }
}

/// Stores the words of each register by `set`, in order of the lanes.
#[inline(always)]
fn store(
    registers: &Registers,
    access: &Access,
    mask: u32,
    indices: WordIndices<'_>,
    mut set: impl FnMut(u64, u32),
) {
    match indices {
        WordIndices::One(index) => {
            for (register, index) in access.registers.iter().zip(index..) {
                // The last lane's value remains.
                let last = 31 - mask.leading_zeros() as usize % 32;
                set(index, registers.words[usize::from(register.slot)][last]);
            }
        }
        WordIndices::Each(indices) => {
            for (index, register) in access.registers.iter().enumerate() {
                if index > 0 {
                    next(indices);
                }
                let values = &registers.words[usize::from(register.slot)];
                lanes(mask).for_each(|lane| set(indices[lane], values[lane]));
            }
        }
    }
}

/// Returns the bounds of shared memory if nothing else must be checked.
#[inline(always)]
fn shared(context: &BlockContext<'_>) -> Option<(u64, u64)> {
    context.shared.is_plain().then_some((0, context.shared.bytes))
}

/// Returns the allocation of the instruction's previous access if nothing but bounds must be
/// checked.
#[inline(always)]
fn allocation<'l>(context: &BlockContext<'l>, i: &Instruction) -> Option<&'l Allocation> {
    let allocations = context.environment.memory.allocations();
    allocations
        .get(context.last_allocations[i.extra as usize] as usize)
        .filter(|allocation| allocation.is_plain())
}

/// Executes the load `i` from shared memory in the lanes of `mask`. Returns `None` without effect
/// if the slow path is needed.
#[inline(always)]
pub(crate) fn load_shared(
    registers: &mut Registers,
    context: &BlockContext<'_>,
    i: &Instruction,
    mask: u32,
) -> Option<()> {
    let access = &context.accesses[i.extra as usize];
    let mut each = [0; LANES];
    let indices = indices(registers, access, mask, shared(context)?, &mut each)?;
    let words = context.shared.words();
    load(registers, access, mask, indices, |index| words[index as usize % WORDS]);
    Some(())
}

/// Executes the store `i` to shared memory in the lanes of `mask`. Returns `None` without effect if
/// the slow path is needed.
#[inline(always)]
pub(crate) fn store_shared(
    registers: &Registers,
    context: &mut BlockContext<'_>,
    i: &Instruction,
    mask: u32,
) -> Option<()> {
    let access = &context.accesses[i.extra as usize];
    let mut each = [0; LANES];
    let indices = indices(registers, access, mask, shared(context)?, &mut each)?;
    let words = context.shared.words_mut();
    store(registers, access, mask, indices, |index, value| words[index as usize % WORDS] = value);
    Some(())
}

/// Executes the load `i` from global memory in the lanes of `mask`. Returns `None` without effect
/// if the slow path is needed.
#[inline(always)]
pub(crate) fn load_global(
    registers: &mut Registers,
    context: &BlockContext<'_>,
    i: &Instruction,
    mask: u32,
) -> Option<()> {
    let access = &context.accesses[i.extra as usize];
    let allocation = allocation(context, i)?;
    let mut each = [0; LANES];
    let indices = indices(registers, access, mask, (allocation.start, allocation.bytes), &mut each)?;
    let words = allocation.words();
    // Always inside after the check.
    let word = |index| words.get(index as usize).map_or(0, |word| word.load(Relaxed));
    load(registers, access, mask, indices, word);
    Some(())
}

/// Executes the store `i` to global memory in the lanes of `mask`. Returns `None` without effect if
/// the slow path is needed.
#[inline(always)]
pub(crate) fn store_global(
    registers: &Registers,
    context: &BlockContext<'_>,
    i: &Instruction,
    mask: u32,
) -> Option<()> {
    let access = &context.accesses[i.extra as usize];
    let allocation = allocation(context, i)?;
    let mut each = [0; LANES];
    let indices = indices(registers, access, mask, (allocation.start, allocation.bytes), &mut each)?;
    let words = allocation.words();
    store(registers, access, mask, indices, |index, value| {
        // Always inside after the check.
        if let Some(word) = words.get(index as usize) {
            word.store(value, Relaxed);
        }
    });
    Some(())
}
