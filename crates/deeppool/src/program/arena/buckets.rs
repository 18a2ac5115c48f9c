//! Buckets: buffers that a collective transfers as one.

use std::collections::HashSet;

use crate::program::{BufferId, BufferSpec, Contents, Op, Step};

/// The second and all later buffers of a [bucket](crate::program::Step::writes) begin at the next
/// multiple of this number of scalars: 16 bytes, which kernels of libraries need. Elements between
/// two buffers are set to zero before the bucket is transferred.
pub const BUCKET_ALIGNMENT: usize = 4;

impl Step {
    /// Returns the buffers that a collective step transfers as one; `None` for other steps, and for
    /// collectives of a single buffer. `buffers` are those of the rank.
    pub(crate) fn bucket(&self, buffers: &[BufferSpec]) -> Option<&[BufferId]> {
        let is_packed = |id: &BufferId| {
            buffers.get(id.0).is_some_and(|spec| matches!(spec.contents, Contents::Packed(_)))
        };
        let is_bucket = self.writes.len() > 1 && !self.writes.iter().any(is_packed);
        (matches!(self.op, Op::Collective(_)) && is_bucket).then_some(&self.writes)
    }
}

/// Returns the buckets of a rank, each as its buffers in their order. `steps` are those of all
/// iterations. A collective of a part of an earlier bucket adds none. O(operands).
pub(super) fn buckets<'s>(
    buffers: &[BufferSpec],
    steps: impl IntoIterator<Item = &'s Step>,
) -> Vec<Vec<BufferId>> {
    let mut known: HashSet<BufferId> = HashSet::new();
    let mut buckets = Vec::new();
    for bucket in steps.into_iter().filter_map(|step| step.bucket(buffers)) {
        if !known.contains(&bucket[0]) {
            known.extend(bucket);
            buckets.push(bucket.to_vec());
        }
    }
    buckets
}

/// Returns the offsets of buffers that lie one after another from offset 0 on, and their size, both
/// in scalars.
pub(super) fn offsets_within(buffers: &[BufferSpec], bucket: &[BufferId]) -> (Vec<usize>, usize) {
    let (mut offsets, mut end) = (Vec::with_capacity(bucket.len()), 0_usize);
    for id in bucket {
        let offset = end.next_multiple_of(BUCKET_ALIGNMENT);
        offsets.push(offset);
        end = offset + buffers[id.0].scalars();
    }
    (offsets, end)
}
