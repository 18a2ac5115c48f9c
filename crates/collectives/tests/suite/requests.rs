//! Several operations at a time.

use collectives::{Communicator, HostBuffer, ReduceOp, Request, Result};

use super::{Carries, Case, Subject, host_buffer};

/// Each rank completes its requests in a different order.
pub(crate) fn requests_complete_in_any_order<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<C: Carries<i64>>(ranks: &C, case: &Case) -> Result<()> {
        let (rank, size, queue) = (ranks.rank() as i64, ranks.size() as i64, &mut ranks.queue());
        let mut requests = (0..6)
            .map(|i| ranks.start_all_reduce(ranks.buffer(&[i * 100 + rank; 3]), ReduceOp::Sum, queue))
            .map(|request| request.map(Some))
            .collect::<Result<Vec<_>>>()?;
        for &i in &case.orders[ranks.rank()] {
            let mut request = requests[i].take().expect("each is waited for once");
            while case.polls && !request.test()? {
                std::thread::yield_now();
            }
            let sum = i as i64 * 100 * size + size * (size - 1) / 2;
            assert_eq!(ranks.values(&request.wait()?), [sum; 3]);
        }
        Ok(())
    }
    law(ranks, case)
}

pub(crate) fn a_dropped_request_does_not_affect_others<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<C: Carries<i32>>(ranks: &C, case: &Case) -> Result<()> {
        let queue = &mut ranks.queue();
        let ones = ranks.buffer(&vec![1; case.len]);
        let request = ranks.start_all_reduce(ones, ReduceOp::Sum, queue)?;
        if ranks.rank() == case.rank % ranks.size() {
            drop(request);
        } else {
            assert_eq!(ranks.values(&request.wait()?), vec![ranks.size() as i32; case.len]);
        }
        ranks.barrier(queue)
    }
    law(ranks, case)
}

/// Requires host memory.
pub(crate) fn a_buffer_is_returned_in_place<C>(ranks: &C, case: &Case) -> Result<()>
where
    C: Communicator<i32, Buffer = HostBuffer<i32>, Queue = ()>,
{
    let mut buffer = host_buffer(&vec![1_i32; case.len]);
    let address = buffer.as_ptr();
    ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut ())?;
    assert_eq!(buffer.as_ptr(), address);
    Ok(())
}
