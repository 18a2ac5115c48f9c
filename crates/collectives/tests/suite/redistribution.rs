//! Samples that move, and come back.

use collectives::{Communicator, Partition, Redistribution, RedistributionRequest, Result};

use super::Case;

/// Each rank's shard: `sample_len` elements a sample, which tell the sample and the place.
fn shard(samples: std::ops::Range<usize>, sample_len: usize) -> Vec<i64> {
    let element = |sample: usize, place: usize| (sample * 100 + place) as i64;
    samples.flat_map(|sample| (0..sample_len).map(move |place| element(sample, place))).collect()
}

/// Host memory only. Ranks that neither partition names take no part.
pub(crate) fn every_sample_arrives_and_comes_back<C>(ranks: &C, case: &Case) -> Result<()>
where
    C: Communicator<i64, Buffer = Vec<i64>, Queue = ()>,
{
    let (rank, sample_len) = (ranks.rank(), case.sample_len);
    let (from, to) = (within(&case.partitions.0, ranks.size())?, within(&case.partitions.1, ranks.size())?);
    let there = Redistribution::new(&from, &to)?;
    if !there.ranks().contains(&rank) {
        return Ok(());
    }
    let group = ranks.group(there.ranks())?;
    let mut input = shard(from.shard(rank), sample_len);
    let pending = group.start_redistribution(&there, &input, sample_len, &mut ())?;
    input.fill(-1);
    let mut arrived = vec![0; to.shard(rank).len() * sample_len];
    pending.wait_into(&mut arrived)?;
    assert_eq!(arrived, shard(to.shard(rank), sample_len));

    let mut back = group.start_redistribution(&there.reversed(), &arrived, sample_len, &mut ())?;
    while !back.test()? {
        std::thread::yield_now();
    }
    back.wait_into(&mut input)?;
    assert_eq!(input, shard(from.shard(rank), sample_len));
    Ok(())
}

/// The partition among the first `size` ranks: the samples of the others, of whom there may be no such rank, go to rank 0.
fn within(partition: &Partition, size: usize) -> Result<Partition> {
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
