//! Detection of races on shared memory.

/// Access of a thread to shared memory, as recorded for each byte.
#[derive(Clone, Copy)]
pub(crate) struct SharedAccess {
    /// Number of the thread in the block, with x fastest.
    pub(crate) thread: u32,
    /// Index of the instruction in the kernel.
    pub(crate) instruction: u32,
    /// Number of barriers that the block had completed before the access.
    pub(crate) block_epoch: u32,
    /// Number of warp barriers that the warp had completed before the access.
    pub(crate) warp_epoch: u32,
    /// Whether the access is atomic.
    pub(crate) atomic: bool,
}

#[derive(Clone, Copy, Default)]
struct Byte {
    write: Option<SharedAccess>,
    /// First read since the last write, and the first one by another thread: one of them is by a
    /// thread other than the next writer.
    reads: [Option<SharedAccess>; 2],
}

/// Race detector: the last accesses to each byte of shared memory.
///
/// Accesses of two warps are ordered by a block barrier between them, those of two lanes of a warp
/// also by a warp barrier. Every barrier counts for the whole block, even if only some warps take
/// part, so races beside such a barrier may be missed.
pub(crate) struct RaceCheck {
    bytes: Vec<Byte>,
}

impl RaceCheck {
    /// Creates a detector without recorded accesses for `bytes` bytes of shared memory.
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes: vec![Byte::default(); bytes as usize] }
    }

    /// Clears all recorded accesses.
    pub(super) fn reset(&mut self) {
        self.bytes.fill(Byte::default());
    }

    /// Records a read of `bytes` bytes at `offset`. Returns an earlier write of one of them that is
    /// not ordered with it by a barrier, or `None`.
    pub(crate) fn read(&mut self, offset: u64, bytes: u32, by: SharedAccess) -> Option<SharedAccess> {
        let mut found = None;
        for byte in &mut self.bytes[offset as usize..][..bytes as usize] {
            found = found.or(byte.write.filter(|write| conflict(write, &by)));
            let fresh = |read: &SharedAccess| read.block_epoch == by.block_epoch;
            let [first, second] = &mut byte.reads;
            if !first.as_ref().is_some_and(fresh) {
                (*first, *second) = (Some(by), None);
            } else if first.is_some_and(|first| first.thread == by.thread) {
                *first = Some(by);
            } else if !second
                .is_some_and(|second| second.thread / 32 != first.map_or(0, |first| first.thread / 32))
            {
                *second = Some(by);
            }
        }
        found
    }

    /// Records a write or atomic operation on `bytes` bytes at `offset`. Returns an earlier read or
    /// write of one of them that is not ordered with it by a barrier, or `None`. With `same_value`,
    /// the bytes already have the written value, which does not conflict with other writes.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        bytes: u32,
        by: SharedAccess,
        same_value: bool,
    ) -> Option<SharedAccess> {
        let mut found = None;
        for byte in &mut self.bytes[offset as usize..][..bytes as usize] {
            let write = byte.write.filter(|write| !same_value && conflict(write, &by));
            let read = byte.reads.iter().flatten().find(|read| conflict(read, &by)).copied();
            found = found.or(write).or(read);
            byte.write = Some(by);
        }
        found
    }
}

fn conflict(before: &SharedAccess, now: &SharedAccess) -> bool {
    let same_warp = before.thread / 32 == now.thread / 32;
    before.thread != now.thread
        && !(before.atomic && now.atomic)
        && before.block_epoch == now.block_epoch
        && !(same_warp && before.warp_epoch != now.warp_epoch)
}
