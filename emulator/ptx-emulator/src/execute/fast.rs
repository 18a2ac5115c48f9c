//! Fast path for accesses to words of shared and global memory, for all lanes at once.
//!
//! Each function returns `Some` if it executed the access. Accesses that need more than the checks
//! of bounds and alignment, or that fail these, are left to the slow path in
//! [`access`](super::access).

// The compiler vectorises this form of loop.
#![allow(clippy::needless_range_loop)]

use super::{
    interpreter::Context,
    lanes::{Doubles, LANES, merge},
    registers::Registers,
    shared::WORDS,
    warp::{first, lanes},
};
use crate::{
    decode::{Access, Instruction},
    memory::Block,
};
use std::sync::atomic::Ordering::Relaxed;

/// Indices of the first word accessed by each lane.
enum Places<'p> {
    /// The same index for all lanes.
    One(u64),
    /// One index for each lane; inactive lanes have the index of an active one.
    Each(&'p mut Doubles),
}

/// Computes the word indices of the lanes in `mask` in a memory of `size` bytes at address `start`.
/// Returns `None` unless all accesses are aligned and inside.
#[inline(always)]
fn places<'p>(
    registers: &Registers,
    access: &Access,
    mask: u32,
    (start, size): (u64, u64),
    places: &'p mut Doubles,
) -> Option<Places<'p>> {
    let bytes = 4 * access.registers.len() as u64;
    // Maximum offset of an aligned access.
    let last = size.checked_sub(bytes)? & !(bytes - 1);
    let slot = usize::from(access.address);
    let mut addresses = [0; LANES];
    let addresses = if access.wide_address && mask == u32::MAX {
        &registers.doubles[slot]
    } else {
        let one = registers.get(access.wide_address, access.address, first(mask));
        for lane in 0..LANES {
            addresses[lane] = if access.wide_address {
                registers.doubles[slot][lane]
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
    let (mut wrong, mut different) = (0, 0);
    for lane in 0..LANES {
        different |= addresses[lane] ^ one;
        let offset = addresses[lane].wrapping_add(add);
        wrong |= offset | last.wrapping_sub(offset);
        places[lane] = offset / 4;
    }
    if wrong & (1 << 63 | (bytes - 1)) != 0 {
        return None;
    }
    Some(if different == 0 { Places::One(one.wrapping_add(add) / 4) } else { Places::Each(places) })
}

/// Loads the words of each register. `word` reads a word by index.
#[inline(always)]
fn load(
    registers: &mut Registers,
    access: &Access,
    mask: u32,
    places: Places<'_>,
    word: impl Fn(u64) -> u32,
) {
    match places {
        Places::One(place) => {
            for (register, place) in access.registers.iter().zip(place..) {
                merge(&mut registers.words[usize::from(register.slot)], &[word(place); LANES], mask);
            }
        }
        Places::Each(places) => {
            for (index, register) in access.registers.iter().enumerate() {
                if index > 0 {
                    next(places);
                }
                let to = &mut registers.words[usize::from(register.slot)];
                if mask == u32::MAX {
                    for lane in 0..LANES {
                        to[lane] = word(places[lane]);
                    }
                } else {
                    lanes(mask).for_each(|lane| to[lane] = word(places[lane]));
                }
            }
        }
    }
}

/// Advances to the next words.
#[inline(always)]
fn next(places: &mut Doubles) {
    for place in places {
        *place += 1;
    }
}

/// Stores the words of each register by `set`, in order of the lanes.
#[inline(always)]
fn store(
    registers: &Registers,
    access: &Access,
    mask: u32,
    places: Places<'_>,
    mut set: impl FnMut(u64, u32),
) {
    match places {
        Places::One(place) => {
            for (register, place) in access.registers.iter().zip(place..) {
                // The last lane's value remains.
                let last = 31 - mask.leading_zeros() as usize % 32;
                set(place, registers.words[usize::from(register.slot)][last]);
            }
        }
        Places::Each(places) => {
            for (index, register) in access.registers.iter().enumerate() {
                if index > 0 {
                    next(places);
                }
                let values = &registers.words[usize::from(register.slot)];
                lanes(mask).for_each(|lane| set(places[lane], values[lane]));
            }
        }
    }
}

/// Returns the bounds of shared memory if nothing else must be checked.
#[inline(always)]
fn shared(context: &Context<'_>) -> Option<(u64, u64)> {
    context.shared.is_plain().then_some((0, context.shared.bytes))
}

/// Returns the allocation of the instruction's previous access if nothing but bounds must be
/// checked.
#[inline(always)]
fn block<'l>(context: &Context<'l>, i: &Instruction) -> Option<&'l Block> {
    let blocks = context.environment.memory.blocks();
    blocks.get(context.hints[i.extra as usize] as usize).filter(|block| block.is_plain())
}

#[inline(always)]
pub(crate) fn load_shared(
    registers: &mut Registers,
    context: &Context<'_>,
    i: &Instruction,
    mask: u32,
) -> Option<()> {
    let access = &context.accesses[i.extra as usize];
    let mut each = [0; LANES];
    let places = places(registers, access, mask, shared(context)?, &mut each)?;
    let words = context.shared.words();
    load(registers, access, mask, places, |place| words[place as usize % WORDS]);
    Some(())
}

#[inline(always)]
pub(crate) fn store_shared(
    registers: &Registers,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
) -> Option<()> {
    let access = &context.accesses[i.extra as usize];
    let mut each = [0; LANES];
    let places = places(registers, access, mask, shared(context)?, &mut each)?;
    let words = context.shared.words_mut();
    store(registers, access, mask, places, |place, value| words[place as usize % WORDS] = value);
    Some(())
}

#[inline(always)]
pub(crate) fn load_global(
    registers: &mut Registers,
    context: &Context<'_>,
    i: &Instruction,
    mask: u32,
) -> Option<()> {
    let access = &context.accesses[i.extra as usize];
    let block = block(context, i)?;
    let mut each = [0; LANES];
    let places = places(registers, access, mask, (block.start, block.bytes), &mut each)?;
    let words = block.words();
    // Always inside after the check.
    let word = |place| words.get(place as usize).map_or(0, |word| word.load(Relaxed));
    load(registers, access, mask, places, word);
    Some(())
}

#[inline(always)]
pub(crate) fn store_global(
    registers: &Registers,
    context: &Context<'_>,
    i: &Instruction,
    mask: u32,
) -> Option<()> {
    let access = &context.accesses[i.extra as usize];
    let block = block(context, i)?;
    let mut each = [0; LANES];
    let places = places(registers, access, mask, (block.start, block.bytes), &mut each)?;
    let words = block.words();
    store(registers, access, mask, places, |place, value| {
        // Always inside after the check.
        if let Some(word) = words.get(place as usize) {
            word.store(value, Relaxed);
        }
    });
    Some(())
}
