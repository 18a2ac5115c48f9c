//! Collectives match their sequential definitions.

use collectives::{Error, ReduceOp, Request, Result, bf16, f16};

use super::{Carries, Case, Number, Subject, digit, every_type, input};

/// Reduces all ranks' inputs element by element.
fn reduced<T: Number>(op: ReduceOp, ranks: usize, len: usize) -> Vec<T> {
    let column = |i: usize| (0..ranks).map(move |rank| digit(rank, i));
    (0..len)
        .map(|i| match op {
            ReduceOp::Sum => column(i).sum(),
            ReduceOp::Max => column(i).max().unwrap_or(0),
            ReduceOp::Min => column(i).min().unwrap_or(0),
        })
        .map(T::small)
        .collect()
}

/// Returns whether the backend rejected half-precision numbers, which it may if it does not reduce
/// them.
fn refused<T: Number, C: Carries<T>>(result: Result<()>) -> Result<bool> {
    match result {
        Err(Error::Unsupported { .. }) if size_of::<T>() == 2 && !C::REDUCES_HALF => Ok(true),
        other => other.map(|()| false),
    }
}

pub(crate) fn all_reduce_matches_the_serial_reduction<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<T: Number, C: Carries<T>>(ranks: &C, case: &Case) -> Result<()> {
        let mut buffer = ranks.buffer(&input(ranks.rank(), case.len));
        if refused::<T, C>(ranks.all_reduce(&mut buffer, case.op, &mut ranks.queue()))? {
            return Ok(());
        }
        assert_eq!(ranks.values(&buffer), reduced::<T>(case.op, ranks.size(), case.len));
        Ok(())
    }
    every_type!(law(ranks, case));
    Ok(())
}

pub(crate) fn reduce_scatter_returns_chunks_of_the_reduction<C: Subject>(
    ranks: &C,
    case: &Case,
) -> Result<()> {
    fn law<T: Number, C: Carries<T>>(ranks: &C, case: &Case) -> Result<()> {
        let (rank, size) = (ranks.rank(), ranks.size());
        let chunk = case.len / size;
        let mut whole = ranks.buffer(&input(rank, chunk * size));
        let mut mine = ranks.buffer(&vec![T::default(); chunk]);
        if refused::<T, C>(ranks.reduce_scatter(&mut whole, &mut mine, case.op, &mut ranks.queue()))? {
            return Ok(());
        }
        let result = reduced::<T>(case.op, size, chunk * size);
        assert_eq!(ranks.values(&mine), result[rank * chunk..(rank + 1) * chunk]);
        assert_eq!(ranks.values(&whole), input(rank, chunk * size), "a send buffer does not change");
        Ok(())
    }
    every_type!(law(ranks, case));
    Ok(())
}

pub(crate) fn reduce_scatter_then_all_gather_is_all_reduce<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<T: Number, C: Carries<T>>(ranks: &C, case: &Case) -> Result<()> {
        let (rank, size, queue) = (ranks.rank(), ranks.size(), &mut ranks.queue());
        let chunk = case.len / size;
        let mut whole = ranks.buffer(&input(rank, chunk * size));
        let mut mine = ranks.buffer(&vec![T::default(); chunk]);
        let mut gathered = ranks.buffer(&vec![T::default(); chunk * size]);
        ranks.reduce_scatter(&mut whole, &mut mine, case.op, queue)?;
        ranks.all_gather(&mut mine, &mut gathered, queue)?;
        ranks.all_reduce(&mut whole, case.op, queue)?;
        assert_eq!(ranks.values(&gathered), ranks.values(&whole));
        Ok(())
    }
    law::<f32, C>(ranks, case)?;
    law::<i64, C>(ranks, case)
}

pub(crate) fn broadcast_copies_the_root<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<T: Number, C: Carries<T>>(ranks: &C, case: &Case) -> Result<()> {
        let root = case.rank % ranks.size();
        let mut buffer = ranks.buffer(&input(ranks.rank(), case.len));
        ranks.broadcast(&mut buffer, root, &mut ranks.queue())?;
        assert_eq!(ranks.values(&buffer), input(root, case.len));
        Ok(())
    }
    every_type!(law(ranks, case));
    Ok(())
}

pub(crate) fn all_gather_concatenates<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<T: Number, C: Carries<T>>(ranks: &C, case: &Case) -> Result<()> {
        let mut mine = ranks.buffer(&input(ranks.rank(), case.len));
        let mut gathered = ranks.buffer(&vec![T::default(); case.len * ranks.size()]);
        ranks.all_gather(&mut mine, &mut gathered, &mut ranks.queue())?;
        let expected: Vec<T> = (0..ranks.size()).flat_map(|rank| input(rank, case.len)).collect();
        assert_eq!(ranks.values(&gathered), expected);
        Ok(())
    }
    every_type!(law(ranks, case));
    Ok(())
}

pub(crate) fn all_to_all_v_transposes<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<T: Number, C: Carries<T>>(ranks: &C, case: &Case) -> Result<()> {
        let (rank, size) = (ranks.rank(), ranks.size());
        let chunk = |from: usize, to: usize| input::<T>(16 * from + to, case.counts[from][to]);
        let outgoing: Vec<T> = (0..size).flat_map(|to| chunk(rank, to)).collect();
        let incoming: Vec<T> = (0..size).flat_map(|from| chunk(from, rank)).collect();
        let receive_counts: Vec<usize> = (0..size).map(|from| case.counts[from][rank]).collect();
        let mut send = ranks.buffer(&outgoing);
        let mut receive = ranks.buffer(&vec![T::default(); incoming.len()]);
        let send_counts = &case.counts[rank][..size];
        ranks.all_to_all_v(&mut send, send_counts, &mut receive, &receive_counts, &mut ranks.queue())?;
        assert_eq!(ranks.values(&receive), incoming);
        assert_eq!(ranks.values(&send), outgoing);
        Ok(())
    }
    every_type!(law(ranks, case));
    Ok(())
}

/// Rank 0 calls the barrier after all others have seen that it is incomplete.
pub(crate) fn no_rank_passes_a_barrier_before_the_last_arrives<C: Subject>(
    ranks: &C,
    _: &Case,
) -> Result<()> {
    fn law<C: Carries<u8>>(ranks: &C) -> Result<()> {
        let queue = &mut ranks.queue();
        if ranks.rank() == 0 {
            for other in 1..ranks.size() {
                ranks.receive(&mut ranks.buffer(&[0]), other, 0, queue)?;
            }
            return ranks.barrier(queue);
        }
        let mut barrier = ranks.start_barrier(queue)?;
        for _ in 0..20 {
            assert!(!barrier.test()?, "rank 0 has not called it yet");
        }
        ranks.send(&mut ranks.buffer(&[0]), 0, 0, queue)?;
        barrier.wait()
    }
    law(ranks)
}
