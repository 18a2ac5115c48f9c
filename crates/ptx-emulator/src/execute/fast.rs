//! Accesses to words of shared and global memory, all lanes at once: what kernels do most.

// The shape of loop that becomes vector instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    access,
    interpreter::{Context, Stop},
    lanes::{LANES, Words, merge},
    shared::WORDS,
    warp::Warp,
};
use crate::decode::{Access, Instruction};
use std::sync::atomic::Ordering::Relaxed;

/// The lanes' addresses, less `base`, if all of them are multiples of `align` up to `last`; 0 for lanes that are not in the mask.
#[inline(always)]
fn offsets(warp: &Warp, access: &Access, mask: u32, base: u64, last: u64, align: u32) -> Option<Words> {
    let add = (access.offset as u64).wrapping_sub(base);
    let slot = usize::from(access.address);
    let mut offsets = [0; LANES];
    let (mut high, mut bits, mut largest) = (0, 0, 0);
    if access.wide_address && mask == u32::MAX {
        let addresses = &warp.registers.doubles[slot];
        for lane in 0..LANES {
            let offset = addresses[lane].wrapping_add(add);
            high |= offset;
            offsets[lane] = offset as u32;
        }
    } else {
        for lane in 0..LANES {
            let address = if access.wide_address {
                warp.registers.doubles[slot][lane]
            } else {
                warp.registers.words[slot][lane].into()
            };
            let offset = if mask >> lane & 1 != 0 { address.wrapping_add(add) } else { 0 };
            high |= offset;
            offsets[lane] = offset as u32;
        }
    }
    for &offset in &offsets {
        bits |= offset;
        largest = offset.max(largest);
    }
    (high >> 32 == 0 && bits & (align - 1) == 0 && u64::from(largest) <= last).then_some(offsets)
}

/// The bytes that a lane accesses.
#[inline(always)]
fn bytes(access: &Access) -> u32 {
    4 * access.registers.len() as u32
}

/// The offsets in shared memory, if nothing but their bounds is to be checked and all are within them.
#[inline(always)]
fn in_shared(warp: &Warp, context: &Context<'_>, access: &Access, mask: u32) -> Option<Words> {
    let bytes = bytes(access);
    let last = context.shared.bytes.checked_sub(bytes.into()).filter(|_| context.shared.is_plain())?;
    offsets(warp, access, mask, 0, last, bytes)
}

#[inline(always)]
pub(crate) fn load_shared(
    warp: &mut Warp,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), Stop> {
    let access = &context.environment.program.accesses[i.extra as usize];
    let Some(offsets) = in_shared(warp, context, access, mask) else {
        return access::load(warp, context, i, mask, at);
    };
    let words = context.shared.words();
    for (index, register) in access.registers.iter().enumerate() {
        let mut result = [0; LANES];
        for lane in 0..LANES {
            result[lane] = words[((offsets[lane] >> 2) as usize + index) % WORDS];
        }
        merge(&mut warp.registers.words[usize::from(register.slot)], &result, mask);
    }
    Ok(())
}

#[inline(always)]
pub(crate) fn store_shared(
    warp: &mut Warp,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), Stop> {
    let access = &context.environment.program.accesses[i.extra as usize];
    let Some(offsets) = in_shared(warp, context, access, mask) else {
        return access::store(warp, context, i, mask, at);
    };
    let words = context.shared.words_mut();
    for (index, register) in access.registers.iter().enumerate() {
        let values = &warp.registers.words[usize::from(register.slot)];
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                words[((offsets[lane] >> 2) as usize + index) % WORDS] = values[lane];
            }
        }
    }
    Ok(())
}

/// The allocation that the access was to before, and the offsets in it, if it is that one for all lanes again.
#[inline(always)]
fn in_block<'l>(
    warp: &Warp,
    context: &Context<'l>,
    i: &Instruction,
    access: &Access,
    mask: u32,
) -> Option<(&'l crate::memory::Block, Words)> {
    let block = context.environment.memory.blocks().get(context.hints[i.extra as usize] as usize)?;
    let bytes = bytes(access);
    let last = block.bytes.checked_sub(bytes.into()).filter(|_| !block.tracks_writes())?;
    Some((block, offsets(warp, access, mask, block.start, last, bytes)?))
}

#[inline(always)]
pub(crate) fn load_global(
    warp: &mut Warp,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), Stop> {
    let access = &context.environment.program.accesses[i.extra as usize];
    let Some((block, offsets)) = in_block(warp, context, i, access, mask) else {
        return access::load(warp, context, i, mask, at);
    };
    let words = block.words();
    for (index, register) in access.registers.iter().enumerate() {
        let mut result = [0; LANES];
        for lane in 0..LANES {
            // Never outside, after the check above.
            let word = words.get((offsets[lane] >> 2) as usize + index);
            result[lane] = word.map_or(0, |word| word.load(Relaxed));
        }
        merge(&mut warp.registers.words[usize::from(register.slot)], &result, mask);
    }
    Ok(())
}

#[inline(always)]
pub(crate) fn store_global(
    warp: &mut Warp,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), Stop> {
    let access = &context.environment.program.accesses[i.extra as usize];
    let Some((block, offsets)) = in_block(warp, context, i, access, mask) else {
        return access::store(warp, context, i, mask, at);
    };
    let words = block.words();
    for (index, register) in access.registers.iter().enumerate() {
        let values = &warp.registers.words[usize::from(register.slot)];
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                // Never outside, after the check above.
                if let Some(word) = words.get((offsets[lane] >> 2) as usize + index) {
                    word.store(values[lane], Relaxed);
                }
            }
        }
    }
    Ok(())
}
