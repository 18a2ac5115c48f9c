//! Where shared and local memory are among generic addresses.

/// The first generic address of shared memory.
pub(crate) const SHARED: u64 = 0x0300_0000_0000;
/// The first generic address of local memory.
pub(crate) const LOCAL: u64 = 0x0400_0000_0000;
/// Far more than either memory has, so that what lies behind its end is an access to it.
const LENGTH: u64 = 1 << 32;

/// Whether a generic address is in shared memory.
#[inline(always)]
pub(crate) fn is_shared(address: u64) -> bool {
    address.wrapping_sub(SHARED) < LENGTH
}

/// Whether a generic address is in local memory.
#[inline(always)]
pub(crate) fn is_local(address: u64) -> bool {
    address.wrapping_sub(LOCAL) < LENGTH
}
