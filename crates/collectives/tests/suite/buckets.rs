//! Gradients reduced in buckets.

use collectives::{BucketedAllReduce, Communicator, Gradient, Result};

use super::Case;

/// Host memory only. Groups overlap and ranks compute in different orders: still nobody waits for ever or gets another's sum.
pub(crate) fn gradients_are_summed_over_their_ranks<C>(ranks: &C, case: &Case) -> Result<()>
where
    C: Communicator<i64, Buffer = Vec<i64>, Queue = ()>,
{
    let me = ranks.rank();
    let gradients: Vec<Gradient> = (0..6)
        .map(|g| {
            let (list, width) = &case.lists[g % case.lists.len()];
            let there = list.iter().copied().filter(|&rank| rank < ranks.size());
            Gradient { ranks: there.take(*width).collect(), elements: case.counts[g][0] * 10 }
        })
        .collect();
    let value = |rank: usize, g: usize, iteration: usize, element: usize| {
        (rank * 1_000 + g * 100 + iteration * 10 + element % 7) as i64
    };
    let mut all_reduce = BucketedAllReduce::new(ranks, &gradients, case.len as u64)?;
    for iteration in 0..2 {
        for &g in case.orders[me].iter().filter(|&&g| gradients[g].ranks.contains(&me)) {
            let values: Vec<i64> = (0..gradients[g].elements).map(|i| value(me, g, iteration, i)).collect();
            all_reduce.ready(g, &values, &mut ())?;
        }
        let mut seen = Vec::new();
        all_reduce.finish(|g, sums| {
            seen.push(g);
            let sum = |i| gradients[g].ranks.iter().map(|&rank| value(rank, g, iteration, i)).sum();
            let expected: Vec<i64> = (0..gradients[g].elements).map(sum).collect();
            assert_eq!(sums, expected);
        })?;
        seen.sort_unstable();
        let mine: Vec<usize> = (0..gradients.len()).filter(|&g| gradients[g].ranks.contains(&me)).collect();
        assert_eq!(seen, mine);
    }
    Ok(())
}
