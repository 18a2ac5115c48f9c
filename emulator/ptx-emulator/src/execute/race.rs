//! Detection of races on shared memory.

/// Access of a thread to shared memory.
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

/// Last accesses to some bytes that all accesses so far had together.
#[derive(Clone, Copy, Default)]
struct Record {
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
    records: Vec<Record>,
    /// Binary logarithm of the number of bytes of a record: 2 until there is an access to fewer.
    shift: u32,
}

impl RaceCheck {
    /// Creates a detector without recorded accesses for `bytes` bytes of shared memory.
    pub(super) fn new(bytes: u64) -> Self {
        Self { records: vec![Record::default(); bytes.div_ceil(4) as usize], shift: 2 }
    }

    /// Clears all recorded accesses.
    pub(super) fn reset(&mut self) {
        self.records.fill(Record::default());
    }

    /// Returns the records of aligned bytes. Halves all records until these have their own.
    #[inline(always)]
    fn records(&mut self, offset: u64, bytes: u32) -> &mut [Record] {
        while bytes >> self.shift == 0 {
            self.halve();
        }
        &mut self.records[(offset >> self.shift) as usize..][..(bytes >> self.shift) as usize]
    }

    #[cold]
    fn halve(&mut self) {
        self.records = self.records.iter().flat_map(|&record| [record; 2]).collect();
        self.shift -= 1;
    }

    /// Records a read of `bytes` bytes at `offset`, a multiple of `bytes`, which is 1, 2, 4 or 8.
    /// Returns an earlier write of one of them that is not ordered with it by a barrier, or `None`.
    pub(crate) fn read(&mut self, offset: u64, bytes: u32, by: SharedAccess) -> Option<SharedAccess> {
        let mut found = None;
        for record in self.records(offset, bytes) {
            found = found.or(record.write.filter(|write| conflict(write, &by)));
            let fresh = |read: &SharedAccess| read.block_epoch == by.block_epoch;
            let [first, second] = &mut record.reads;
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

    /// Records a write or atomic operation on `bytes` bytes at `offset`, as [`read`](Self::read)
    /// does. Returns an earlier read or write of one of them that is not ordered with it by a
    /// barrier, or `None`. With `same_value`, the bytes already have the written value, which does
    /// not conflict with other writes.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        bytes: u32,
        by: SharedAccess,
        same_value: bool,
    ) -> Option<SharedAccess> {
        let mut found = None;
        for record in self.records(offset, bytes) {
            let write = record.write.filter(|write| !same_value && conflict(write, &by));
            let read = record.reads.iter().flatten().find(|read| conflict(read, &by)).copied();
            found = found.or(write).or(read);
            record.write = Some(by);
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
