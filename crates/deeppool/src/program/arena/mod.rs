//! The arena of a rank: one piece of memory for all buffers that are not state. Buffers whose
//! lifetimes do not overlap share parts of it. Offsets are fixed, so that the steps can be captured
//! into a graph.

mod buckets;
#[cfg(feature = "train")]
mod check;
mod lifetimes;
mod pack;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use layer_engine::Role;

use super::{BufferId, BufferSpec, Contents, RankProgram, StepId};
pub use buckets::BUCKET_ALIGNMENT;
use buckets::{buckets, offsets_within};
#[cfg(feature = "train")]
pub(crate) use check::check_offsets;
pub(super) use lifetimes::IterationSteps;
use lifetimes::{Lifetime, lifetimes_of, memory_lifetimes};
use pack::{Item, Packing, pack};

/// Offsets of buffers are multiples of this number of scalars: 256 bytes, as those that
/// `cudaMalloc` returns. In a bucket, it is the offset of the first buffer.
pub const ARENA_ALIGNMENT: usize = 64;

/// Returns the part of the arena that a buffer takes, in scalars.
fn aligned(scalars: usize) -> usize {
    scalars.next_multiple_of(ARENA_ALIGNMENT)
}

impl BufferSpec {
    /// Returns whether the buffer shares its part of the arena with no other. Constants keep their
    /// values from one iteration to the next, and the metrics of the loss are read after the last
    /// step. The moments of batch normalisations take little memory. If another buffer had it, a
    /// kernel could not compute their step together with the steps beside it.
    pub(super) fn is_permanent(&self) -> bool {
        use Role::{GradientMoments, Metrics, Moments};
        matches!(
            self.contents,
            Contents::Constant(_) | Contents::Operand(_, Metrics | Moments | GradientMoments)
        )
    }
}

impl RankProgram {
    /// Assigns the offsets of all buffers but the state. `iterations` are the steps of all
    /// iterations that use the buffers.
    /// `known` are the packings of other ranks, to which that of this one is added.
    pub(super) fn assign_offsets(&mut self, iterations: &[IterationSteps<'_>], known: &mut Packings) {
        let lifetimes = memory_lifetimes(&self.buffers, self.state_buffers, iterations);
        let buckets = buckets(&self.buffers, iterations.iter().flat_map(|iteration| iteration.steps));
        let (placed, items) = items_of(&self.buffers, &lifetimes, buckets);
        let packing = known.of(&items);
        for buffer in &mut self.buffers[self.state_buffers..] {
            buffer.offset = Some(0);
        }
        for (together, &start) in placed.iter().zip(&packing.offsets) {
            let (offsets, _) = offsets_within(&self.buffers, together);
            for (id, offset) in together.iter().zip(offsets) {
                self.buffers[id.0].offset = Some(start + offset);
            }
        }
        self.arena_elements = packing.size;
    }
}

/// Packings of the ranks of a program. Ranks often have the same buffers.
#[derive(Debug, Default)]
pub(super) struct Packings(Vec<(Vec<(usize, Lifetime)>, Packing)>);

impl Packings {
    /// Returns the packing of items: that of equal items, or a new one.
    fn of(&mut self, items: &[Item<'_>]) -> &Packing {
        let is_equal = |(known, _): &(Vec<(usize, Lifetime)>, Packing)| {
            let pairs = || known.iter().zip(items);
            known.len() == items.len()
                && pairs().all(|((size, lifetime), item)| *size == item.size && lifetime == item.lifetime)
        };
        let place = self.0.iter().position(is_equal).unwrap_or_else(|| {
            let items_of_rank = items.iter().map(|item| (item.size, item.lifetime.clone())).collect();
            self.0.push((items_of_rank, pack(items, fullest(items).1)));
            self.0.len() - 1
        });
        &self.0[place].1
    }
}

/// Returns what needs a part of the arena, in the order of births: the ids of single buffers and of
/// the buffers of buckets, and their sizes and lifetimes.
fn items_of<'l>(
    buffers: &[BufferSpec],
    lifetimes: &'l [Lifetime],
    buckets: Vec<Vec<BufferId>>,
) -> (Vec<Vec<BufferId>>, Vec<Item<'l>>) {
    let in_buckets: HashSet<BufferId> = buckets.iter().flatten().copied().collect();
    let single = (0..buffers.len()).map(BufferId).filter(|id| !in_buckets.contains(id)).map(|id| vec![id]);
    // All buffers of a bucket have its lifetime.
    let lifetime = |together: &[BufferId]| &lifetimes[together[0].0];
    let size = |together: &[BufferId]| aligned(offsets_within(buffers, together).1);
    let is_used = |together: &Vec<BufferId>| size(together) > 0 && !lifetime(together).values.is_empty();
    let mut placed: Vec<Vec<BufferId>> = single.chain(buckets).filter(is_used).collect();
    placed.sort_by_key(|together| lifetime(together).first_step());
    let items =
        placed.iter().map(|together| Item { size: size(together), lifetime: lifetime(together) }).collect();
    (placed, items)
}

/// Returns the first step at which the total size of the items that are alive is largest, if the
/// steps run in the order of the program, and that size: a lower bound of the size of an arena.
/// O(items x log items).
fn fullest(items: &[Item<'_>]) -> (u32, usize) {
    let mut changes: Vec<(u32, bool, usize)> = Vec::new();
    for item in items {
        for value in &item.lifetime.values {
            changes.push((value.steps[0], true, item.size));
            changes.push((value.steps[1].saturating_add(1), false, item.size));
        }
    }
    changes.sort_unstable();
    let (mut alive, mut max) = (0_usize, (0, 0));
    for (step, is_born, size) in changes {
        alive = if is_born { alive + size } else { alive - size };
        if alive > max.1 {
            max = (step, alive);
        }
    }
    max
}

impl RankProgram {
    /// Returns the buffers of the arena whose memory is in use at a step if the steps run in their
    /// order, in the order of their first use: those that hold a value, and the others of their
    /// buckets. O(steps + dependencies + operands + buffers x log
    /// buffers).
    #[cfg(feature = "train")]
    pub(crate) fn alive_at(&self, step: StepId) -> Vec<BufferId> {
        alive_at(&lifetimes_of(&[self]), u32::try_from(step.0).unwrap_or(u32::MAX))
    }

    /// Returns the step with the maximum memory in use if the steps run in their order, and
    /// the buffers whose memory is then in use. O(steps + dependencies + operands +
    /// buffers x log buffers).
    #[must_use]
    pub fn fullest_step(&self) -> (StepId, Vec<BufferId>) {
        let lifetimes = lifetimes_of(&[self]);
        let items = self.buffers.iter().zip(&lifetimes);
        let items = items.map(|(buffer, lifetime)| Item { size: buffer.scalars(), lifetime });
        let (step, _) = fullest(&items.collect::<Vec<_>>());
        (StepId(step as usize), alive_at(&lifetimes, step))
    }
}

/// Returns the buffers whose memory is in use at a step, in the order of their first use.
fn alive_at(lifetimes: &[Lifetime], step: u32) -> Vec<BufferId> {
    let mut alive: Vec<usize> = (0..lifetimes.len()).filter(|&id| lifetimes[id].is_alive_at(step)).collect();
    alive.sort_by_key(|&id| lifetimes[id].first_step());
    alive.into_iter().map(BufferId).collect()
}
