//! Whether two threads use the same shared memory with nothing between that orders them.

/// An access of a thread to a byte.
#[derive(Clone, Copy)]
pub(crate) struct Use {
    /// The thread's index in the block.
    pub(crate) thread: u32,
    pub(crate) instruction: u32,
    /// Barriers that the block, and synchronisations that the warp, had passed.
    pub(crate) block_epoch: u32,
    pub(crate) warp_epoch: u32,
    pub(crate) atomic: bool,
}

#[derive(Clone, Copy, Default)]
struct Byte {
    write: Option<Use>,
    /// The first read since the last write, and the first one of another thread: whoever writes next, one of these is
    /// somebody else.
    reads: [Option<Use>; 2],
}

/// What is known of each byte of shared memory. Accesses of two warps are ordered by a barrier of the block between them, those
/// of two lanes of a warp by a synchronisation of the warp as well. Any barrier counts for the whole block, also one that
/// only some of its warps meet at, so a race beside such a barrier may be missed.
pub(crate) struct RaceCheck {
    bytes: Vec<Byte>,
}

impl RaceCheck {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes: vec![Byte::default(); bytes as usize] }
    }

    pub(super) fn reset(&mut self) {
        self.bytes.fill(Byte::default());
    }

    /// Notes a read, and gives the write that it is not ordered with.
    pub(crate) fn read(&mut self, offset: u64, bytes: u32, by: Use) -> Option<Use> {
        let mut found = None;
        for byte in &mut self.bytes[offset as usize..][..bytes as usize] {
            found = found.or(byte.write.filter(|write| conflict(write, &by)));
            let fresh = |read: &Use| read.block_epoch == by.block_epoch;
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

    /// Notes a write, and gives the read or write that it is not ordered with. Several threads may write what is there
    /// already.
    pub(crate) fn write(&mut self, offset: u64, bytes: u32, by: Use, same_value: bool) -> Option<Use> {
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

fn conflict(before: &Use, now: &Use) -> bool {
    let same_warp = before.thread / 32 == now.thread / 32;
    before.thread != now.thread
        && !(before.atomic && now.atomic)
        && before.block_epoch == now.block_epoch
        && !(same_warp && before.warp_epoch != now.warp_epoch)
}
