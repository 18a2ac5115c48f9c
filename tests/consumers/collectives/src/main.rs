//! Computes the mean and variance of numbers that are sharded over three threads.

use collectives::{Communicator, Error, Group, HostBuffer, Layout, ReduceOp, ThreadWorld};

fn main() -> Result<(), Error> {
    let samples = 10;
    let layout = Layout::even(samples, &[0, 1, 2])?;
    let results = ThreadWorld::new(3).run(|ranks| {
        let mine: Vec<f64> = layout.shard(ranks.rank()).map(|sample| sample as f64).collect();
        let mut sums = HostBuffer::from(vec![mine.iter().sum(), mine.iter().map(|x| x * x).sum::<f64>()]);
        ranks.all_reduce(&mut sums, ReduceOp::Sum, &mut ())?;
        let mean = sums[0] / samples as f64;
        Ok::<_, Error>((mean, sums[1] / samples as f64 - mean * mean))
    });
    for (rank, result) in results.into_iter().enumerate() {
        let (mean, variance) = result?;
        println!("rank {rank}: mean {mean}, variance {variance}");
        assert_eq!((mean, variance), (4.5, 8.25));
    }
    Ok(())
}
