//! Values of all lanes of a warp. A lane is one of the 32 threads of a warp. In a mask, bit *l*
//! stands for lane *l*.

// The compiler vectorises this form of loop.
#![allow(clippy::needless_range_loop)]

/// Number of lanes of a warp.
pub(crate) const LANES: usize = 32;

/// 32-bit register of a warp: one value for each lane.
pub(crate) type Words = [u32; LANES];

/// 64-bit register of a warp: one value for each lane.
pub(crate) type Words64 = [u64; LANES];

/// Copies the lanes in `mask` from `from` to `to`.
#[inline(always)]
pub(crate) fn merge<T: Lane>(to: &mut [T; LANES], from: &[T; LANES], mask: u32) {
    if mask == u32::MAX {
        *to = *from;
    } else {
        // A local copy, because a value whose address is passed to a function is not kept in vector
        // registers.
        let from = *from;
        merge_some(to, &from, mask);
    }
}

/// Copies the lanes in `mask`. This is a separate function, so that the mask is not expanded to
/// lanes before it is known to be needed.
#[inline(never)]
fn merge_some<T: Lane>(to: &mut [T; LANES], from: &[T; LANES], mask: u32) {
    for lane in 0..LANES {
        to[lane] = T::choose(mask >> lane & 1, from[lane], to[lane]);
    }
}

/// Value of one lane of a register.
pub(crate) trait Lane: Copy {
    /// Returns `yes` if `bit` is 1 and `no` if it is 0. Written without branches so that it is
    /// vectorised.
    fn choose(bit: u32, yes: Self, no: Self) -> Self;
}

impl Lane for u32 {
    #[inline(always)]
    fn choose(bit: u32, yes: Self, no: Self) -> Self {
        no ^ (yes ^ no) & bit.wrapping_neg()
    }
}

impl Lane for u64 {
    #[inline(always)]
    fn choose(bit: u32, yes: Self, no: Self) -> Self {
        no ^ (yes ^ no) & Self::from(bit).wrapping_neg()
    }
}
