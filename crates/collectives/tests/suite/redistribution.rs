//! Redistributions and their reverses.

use collectives::{Communicator, HostBuffer, Partition, Redistribution, RedistributionRequest, Result};

use super::{Case, host_buffer};

/// Returns a shard of `sample_len` elements a sample. Each element encodes its sample and place.
fn shard(samples: std::ops::Range<usize>, sample_len: usize) -> Vec<i64> {
    let element = |sample: usize, place: usize| (sample * 100 + place) as i64;
    samples.flat_map(|sample| (0..sample_len).map(move |place| element(sample, place))).collect()
}

/// Requires host memory. Ranks in neither partition do not take part.
pub(crate) fn redistribution_and_its_reverse_move_every_sample<C>(ranks: &C, case: &Case) -> Result<()>
where
    C: Communicator<i64, Buffer = HostBuffer<i64>, Queue = ()>,
{
    let (rank, sample_len) = (ranks.rank(), case.sample_len);
    let (from, to) =
        (restrict(&case.partitions.0, ranks.size())?, restrict(&case.partitions.1, ranks.size())?);
    let forward = Redistribution::new(&from, &to)?;
    if !forward.ranks().contains(&rank) {
        return Ok(());
    }
    let group = ranks.group(forward.ranks())?;
    let mut input = host_buffer(&shard(from.shard(rank), sample_len));
    let pending = group.start_redistribution(&forward, &input, sample_len, &mut ())?;
    input.fill(-1);
    let mut arrived = host_buffer(&vec![0; to.shard(rank).len() * sample_len]);
    let address = arrived.as_ptr();
    pending.wait_into(&mut arrived)?;
    assert_eq!((arrived.to_vec(), arrived.as_ptr()), (shard(to.shard(rank), sample_len), address));

    let mut back = group.start_redistribution(&forward.reversed(), &arrived, sample_len, &mut ())?;
    while !back.test()? {
        std::thread::yield_now();
    }
    back.wait_into(&mut input)?;
    assert_eq!(input, shard(from.shard(rank), sample_len));
    Ok(())
}

/// Restricts a partition to the first `size` ranks. Rank 0 gets the samples of the others.
fn restrict(partition: &Partition, size: usize) -> Result<Partition> {
    let shards = partition.shards().map(|(rank, samples)| (rank, samples.len()));
    let mut counts: Vec<(usize, usize)> = shards.filter(|(rank, _)| *rank < size).collect();
    let lost = partition.samples() - counts.iter().map(|(_, count)| count).sum::<usize>();
    match counts.iter_mut().find(|(rank, _)| *rank == 0) {
        Some((_, count)) => *count += lost,
        None if lost > 0 => counts.push((0, lost)),
        None => {}
    }
    if counts.is_empty() { Partition::even(0, &[0]) } else { Partition::from_counts(&counts) }
}
