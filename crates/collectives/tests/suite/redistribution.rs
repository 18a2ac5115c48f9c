//! Redistributions and their reverses.

use std::sync::Arc;

use collectives::{Communicator, HostBuffer, Layout, Redistribution, RedistributionBuffers, Request, Result};

use super::{Case, host_buffer};

/// Returns a shard of `sample_len` elements a sample. Each element encodes its sample and place.
fn shard(samples: std::ops::Range<usize>, sample_len: usize) -> Vec<i64> {
    let element = |sample: usize, place: usize| (sample * 100 + place) as i64;
    samples.flat_map(|sample| (0..sample_len).map(move |place| element(sample, place))).collect()
}

/// Requires host memory. Ranks in neither layout do not take part.
pub(crate) fn redistribution_and_its_reverse_move_every_sample<C>(ranks: &C, case: &Case) -> Result<()>
where
    C: Communicator<i64, Buffer = HostBuffer<i64>, Queue = ()>,
{
    let (rank, sample_len) = (ranks.rank(), case.sample_len);
    let (from, to) = (restrict(&case.layouts.0, ranks.size())?, restrict(&case.layouts.1, ranks.size())?);
    let forward = Arc::new(Redistribution::new(&from, &to)?);
    if !forward.ranks().contains(&rank) {
        return Ok(());
    }
    let group = ranks.group(forward.ranks())?;
    let input = shard(from.shard(rank), sample_len);
    let wanted = shard(to.shard(rank), sample_len);
    let mut buffers = RedistributionBuffers {
        input: host_buffer(&input),
        output: host_buffer(&vec![0; wanted.len()]),
        packed: [host_buffer(&[]), host_buffer(&[])],
    };
    let address = buffers.output.as_ptr();
    group.redistribute(&forward, &mut buffers, sample_len, &mut ())?;
    assert_eq!((buffers.output.to_vec(), buffers.output.as_ptr()), (wanted, address));
    assert_eq!(buffers.input, input);

    let RedistributionBuffers { mut input, output, packed } = buffers;
    input.fill(-1);
    let back = RedistributionBuffers { input: output, output: input, packed };
    let reverse = Arc::new(Redistribution::new(&to, &from)?);
    let mut back = group.start_redistribution(&reverse, back, sample_len, &mut ())?;
    while !back.test()? {
        std::thread::yield_now();
    }
    assert_eq!(back.wait()?.output, shard(from.shard(rank), sample_len));
    Ok(())
}

/// Requires host memory. Every rank gets its box of the target layout.
pub(crate) fn boxes_move_between_grids<C>(ranks: &C, case: &Case) -> Result<()>
where
    C: Communicator<i64, Buffer = HostBuffer<i64>, Queue = ()>,
{
    let (rank, item_len) = (ranks.rank(), case.sample_len);
    let [from, to] = case.grids(ranks.size());
    let redistribution = Arc::new(Redistribution::new(&from, &to)?);
    if !redistribution.ranks().contains(&rank) {
        return Ok(());
    }
    let group = ranks.group(redistribution.ranks())?;
    let [held, wanted] = [&from, &to].map(|layout| elements(layout, rank, item_len));
    let packed = redistribution.packed_len(rank, item_len)?.map(|len| host_buffer(&vec![0; len]));
    let output = host_buffer(&vec![-1; wanted.len()]);
    let mut buffers = RedistributionBuffers { input: host_buffer(&held), output, packed };
    group.redistribute(&redistribution, &mut buffers, item_len, &mut ())?;
    assert_eq!(buffers.output, wanted, "{from:?} to {to:?}");
    assert_eq!(buffers.input, held);
    Ok(())
}

/// Returns the elements of a rank's box, each of which encodes its item and its index there.
pub(crate) fn elements(layout: &Layout, rank: usize, item_len: usize) -> Vec<i64> {
    let Some(region) = layout.region(rank) else { return Vec::new() };
    let items = region.ranges().iter().zip(layout.extents()).fold(vec![0], |items, (range, extent)| {
        items.into_iter().flat_map(|item| range.clone().map(move |index| item * extent + index)).collect()
    });
    items.into_iter().flat_map(|item| (0..item_len).map(move |place| (item * 100 + place) as i64)).collect()
}

/// Restricts a layout to the first `size` ranks. Rank 0 gets the samples of the others.
fn restrict(layout: &Layout, size: usize) -> Result<Layout> {
    let shards = layout.shards().map(|(rank, samples)| (rank, samples.len()));
    let mut counts: Vec<(usize, usize)> = shards.filter(|(rank, _)| *rank < size).collect();
    let lost = layout.samples() - counts.iter().map(|(_, count)| count).sum::<usize>();
    match counts.iter_mut().find(|(rank, _)| *rank == 0) {
        Some((_, count)) => *count += lost,
        None if lost > 0 => counts.push((0, lost)),
        None => {}
    }
    if counts.is_empty() { Layout::even(0, &[0]) } else { Layout::from_counts(&counts) }
}
