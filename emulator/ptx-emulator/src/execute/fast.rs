//! Accesses to words of shared and global memory, all lanes at once: what kernels do most. Each says whether it was done; what is
//! more than bounds and alignment of words to check, or is wrong, is left to the accesses lane by lane.

// The shape of loop that becomes vector instructions.
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

/// The numbers of the words that lanes access first, in a memory.
enum Places<'p> {
    /// The same for all lanes.
    One(u64),
    /// Each lane's; lanes that do not take part have that of one which does.
    Each(&'p mut Doubles),
}

/// Where the lanes of `mask` access a memory of `size` bytes from the address `start` on, if all of them are inside and aligned.
#[inline(always)]
fn places<'p>(
    registers: &Registers,
    access: &Access,
    mask: u32,
    (start, size): (u64, u64),
    places: &'p mut Doubles,
) -> Option<Places<'p>> {
    let bytes = 4 * access.registers.len() as u64;
    // What is aligned is at the last multiple or before it.
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
    // The highest bit is set where an offset or the distance from it to the last one is negative, one below the alignment where
    // either is not aligned.
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

/// Loads each register's words from a memory where `word` reads.
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

/// The places of the next words.
#[inline(always)]
fn next(places: &mut Doubles) {
    for place in places {
        *place += 1;
    }
}

/// Stores each register's words by `set`, lane after lane.
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
                // The last lane's stays.
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

/// Shared memory, if nothing but bounds is to be checked.
#[inline(always)]
fn shared(context: &Context<'_>) -> Option<(u64, u64)> {
    context.shared.is_plain().then_some((0, context.shared.bytes))
}

/// The allocation that the access was to before, if nothing but bounds is to be checked.
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
    // Never outside, after the check.
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
        // Never outside, after the check.
        if let Some(word) = words.get(place as usize) {
            word.store(value, Relaxed);
        }
    });
    Some(())
}
