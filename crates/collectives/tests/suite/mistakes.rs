//! A rank's mistake is an error on every rank of the operation, and the group remains usable.

use collectives::{Call, Communicator, ElementType, Error, Operation, ReduceOp, Request, Result};

use super::{Carries, Case, Subject};

/// One rank makes another call than the others: all ranks get a mismatch with both calls.
pub(crate) fn a_different_call_is_a_mismatch_on_all<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn usual<C: Carries<f32>>(ranks: &C) -> Result<()> {
        ranks.all_reduce(&mut ranks.buffer(&[0.0; 4]), ReduceOp::Sum, &mut ranks.queue())
    }
    fn odd<C: Subject>(ranks: &C, choice: usize) -> (Result<()>, Call) {
        let queue = &mut ranks.queue();
        let floats = |len: usize| Carries::<f32>::buffer(ranks, &vec![0.0; len]);
        let ints = &mut Carries::<i32>::buffer(ranks, &[0; 4]);
        let call = |operation, element| Call { operation, element };
        let reduce = |count, op| Operation::AllReduce { count, op };
        let (float, int) = (Some(ElementType::F32), Some(ElementType::I32));
        match choice % 6 {
            0 => (ranks.barrier(queue), call(Operation::Barrier, None)),
            1 => (ranks.split(None, 0).map(|_| ()), call(Operation::Split, None)),
            2 => (
                Communicator::<f32>::all_reduce(ranks, &mut floats(5), ReduceOp::Sum, queue),
                call(reduce(5, ReduceOp::Sum), float),
            ),
            3 => (
                Communicator::<f32>::all_reduce(ranks, &mut floats(4), ReduceOp::Max, queue),
                call(reduce(4, ReduceOp::Max), float),
            ),
            4 => (
                Communicator::<i32>::all_reduce(ranks, ints, ReduceOp::Sum, queue),
                call(reduce(4, ReduceOp::Sum), int),
            ),
            _ => (
                Communicator::<f32>::broadcast(ranks, &mut floats(4), 0, queue),
                call(Operation::Broadcast { count: 4, root: 0 }, float),
            ),
        }
    }
    if !C::CHECKS || ranks.size() == 1 {
        return Ok(());
    }
    let (outcome, odd_call) = if ranks.rank() == case.rank % ranks.size() {
        let (outcome, call) = odd(ranks, case.choice);
        (outcome, Some(call))
    } else {
        (usual(ranks), None)
    };
    let error = outcome.expect_err("the calls differ");
    let Error::Mismatch { first, first_call, second, second_call } = &error else {
        panic!("not a mismatch: {error}");
    };
    assert_ne!(first, second);
    let usual_call = Call {
        operation: Operation::AllReduce { count: 4, op: ReduceOp::Sum },
        element: Some(ElementType::F32),
    };
    assert!(**first_call == usual_call || **second_call == usual_call, "{error}");
    if let Some(call) = odd_call {
        assert!(**first_call == call || **second_call == call, "{error}");
    }
    usual(ranks)
}

/// Lengths that do not fit together on one rank, and chunks and messages that do not fit between
/// two.
pub(crate) fn a_wrong_buffer_length_of_one_rank_is_an_error_on_all<C: Subject>(
    ranks: &C,
    case: &Case,
) -> Result<()> {
    fn law<C: Carries<f32>>(ranks: &C, case: &Case) -> Result<()> {
        let (rank, size, queue) = (ranks.rank(), ranks.size(), &mut ranks.queue());
        let odd = usize::from(rank == case.rank % size);
        let floats = |len: usize| ranks.buffer(&vec![0.0; len]);

        let gathered = ranks.all_gather(&mut floats(2), &mut floats(2 * size - odd), queue);
        let Err(Error::WrongLength { call, buffer: "receive buffer", expected, actual, .. }) = gathered
        else {
            panic!("not the wrong length: {gathered:?}");
        };
        assert_eq!(
            (call.operation, expected, actual),
            (Operation::AllGather { count: 2 }, 2 * size, 2 * size - 1)
        );

        let scattered =
            ranks.reduce_scatter(&mut floats(3 * size + odd), &mut floats(3), ReduceOp::Sum, queue);
        assert!(
            matches!(scattered, Err(Error::WrongLength { buffer: "send buffer", .. })),
            "not the wrong length: {scattered:?}"
        );

        let counts = vec![1; size + odd];
        let exchanged =
            ranks.all_to_all_v(&mut floats(size), &counts, &mut floats(size), &vec![1; size], queue);
        assert!(
            matches!(exchanged, Err(Error::WrongLength { buffer: "send counts", .. })),
            "not the wrong length: {exchanged:?}"
        );

        // The odd rank expects two elements from itself and sends one.
        let mut receive_counts = vec![1; size];
        receive_counts[rank] += odd;
        let (mut send, mut receive) = (floats(size), floats(size + odd));
        let exchanged = ranks.all_to_all_v(&mut send, &vec![1; size], &mut receive, &receive_counts, queue);
        assert!(matches!(exchanged, Err(Error::Mismatch { .. })), "not a mismatch: {exchanged:?}");

        if size > 1 {
            // The odd rank expects two elements from its neighbor, which sends one.
            let mut receive_counts = vec![1; size];
            receive_counts[(rank + 1) % size] += odd;
            let exchanged = ranks.all_to_all_v(
                &mut floats(size),
                &vec![1; size],
                &mut floats(size + odd),
                &receive_counts,
                queue,
            );
            assert!(matches!(exchanged, Err(Error::Mismatch { .. })), "not a mismatch: {exchanged:?}");

            // Messages of different lengths, to the right and from the left.
            let sent = ranks.start_send(floats(3), (rank + 1) % size, 9, queue);
            let received = ranks.receive(&mut floats(4), (rank + size - 1) % size, 9, queue);
            for outcome in [sent.and_then(Request::wait).map(|_| ()), received] {
                let error = outcome.expect_err("the lengths differ").to_string();
                assert!(
                    error.contains("send (3 f32 to ") && error.contains("receive (4 f32 from "),
                    "{error}"
                );
            }
        }
        ranks.barrier(queue)
    }
    if C::CHECKS { law(ranks, case) } else { Ok(()) }
}

/// Roots, peers and lists of ranks out of range.
pub(crate) fn ranks_out_of_range_are_errors<C: Subject>(ranks: &C, _: &Case) -> Result<()> {
    fn law<C: Carries<u8>>(ranks: &C) -> Result<()> {
        let (rank, size, queue) = (ranks.rank(), ranks.size(), &mut ranks.queue());
        let no_such_rank = Err(Error::NoSuchRank { rank: size + 1, size });
        let buffer = &mut ranks.buffer(&[0]);
        assert_eq!(ranks.send(buffer, size + 1, 0, queue), no_such_rank);
        let buffer = &mut ranks.buffer(&[0]);
        assert_eq!(ranks.receive(buffer, size + 1, 0, queue), no_such_rank);
        let buffer = &mut ranks.buffer(&[0]);
        assert_eq!(ranks.broadcast(buffer, size + 1, queue), no_such_rank);

        let error = |list: &[usize]| ranks.group(list).err().expect("the list is wrong");
        assert_eq!(error(&[rank, size]), Error::NoSuchRank { rank: size, size });
        assert_eq!(error(&[rank, rank]), Error::DuplicateRank { rank });
        assert_eq!(error(&[]), Error::NotAMember { rank, ranks: vec![] });
        if size > 1 {
            let other = (rank + 1) % size;
            assert_eq!(error(&[other]), Error::NotAMember { rank, ranks: vec![other] });
        }
        ranks.barrier(queue)
    }
    law(ranks)
}
