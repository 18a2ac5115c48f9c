//! Collectives on views of one arena.
#![allow(unsafe_code, reason = "views of arenas")]

use std::sync::Arc;

use collectives::{
    Communicator, Group, HostArena, HostBuffer, Layout, Redistribution, RedistributionBuffers, ReduceOp,
    Result, ThreadWorld,
};

const RANKS: usize = 3;
/// Elements of a rank in the arena: more than a unit of work of an all-reduce.
const PART: usize = 40_000;

/// The elements of a rank from `offset` on.
fn part(arena: &Arc<HostArena<f32>>, rank: usize, offset: usize, len: usize) -> HostBuffer<f32> {
    assert!(offset + len <= PART);
    // SAFETY: each rank has its own part, whose views do not overlap or are used one after another.
    unsafe { arena.view(rank * PART + offset, len) }.expect("it is inside the arena")
}

/// Runs `rank` on every rank, then returns all elements of the arena.
fn run(
    rank: impl Fn(&Arc<HostArena<f32>>, &collectives::ThreadCommunicator) -> Result<()> + Sync,
) -> Vec<f32> {
    let arena = HostArena::new(RANKS * PART).expect("there is memory");
    for outcome in ThreadWorld::new(RANKS).run(|ranks| rank(&arena, &ranks)) {
        outcome.expect("no rank fails");
    }
    // SAFETY: the only view.
    unsafe { arena.view(0, arena.len()) }.expect("it is the arena").into_vec()
}

#[test]
fn all_reduces_write_to_disjoint_views_in_place() {
    let elements = run(|arena, ranks| {
        let rank = ranks.rank();
        let (mut small, mut large) = (part(arena, rank, 1, 3), part(arena, rank, 4, PART - 5));
        small.fill(rank as f32);
        large.fill(10.0 * rank as f32);
        let addresses = (small.as_ptr(), large.as_ptr());
        let small = ranks.start_all_reduce(small, ReduceOp::Sum, &mut ())?;
        ranks.all_reduce(&mut large, ReduceOp::Max, &mut ())?;
        let small = collectives::Request::wait(small)?;
        assert_eq!((small.as_ptr(), large.as_ptr()), addresses);
        assert!(small.is_view() && large.is_view());
        Ok(())
    });
    for part in elements.chunks_exact(PART) {
        assert_eq!(part[..4], [0.0, 3.0, 3.0, 3.0]);
        assert_eq!(part[4..PART - 1], vec![20.0; PART - 5]);
        assert_eq!(part[PART - 1..], [0.0]);
    }
}

#[test]
fn exchanges_write_to_the_receive_view() {
    let elements = run(|arena, ranks| {
        let rank = ranks.rank();
        let (mut send, mut receive) = (part(arena, rank, 0, 2), part(arena, rank, 2, 2 * RANKS));
        send.copy_from_slice(&[rank as f32 + 1.0, rank as f32 + 1.5]);
        ranks.all_gather(&mut send, &mut receive, &mut ())
    });
    for (rank, part) in elements.chunks_exact(PART).enumerate() {
        assert_eq!(part[..2], [rank as f32 + 1.0, rank as f32 + 1.5]);
        assert_eq!(part[2..9], [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 0.0]);
    }
}

#[test]
fn redistributed_samples_arrive_in_a_view() {
    let (one, all) = (Layout::even(6, &[0]).unwrap(), Layout::even(6, &[0, 1, 2]).unwrap());
    let spread = Arc::new(Redistribution::new(&one, &all).unwrap());
    let elements = run(|arena, ranks| {
        let mut input = part(arena, ranks.rank(), 0, spread.source().shard(ranks.rank()).len());
        input.iter_mut().zip(1_u8..).for_each(|(element, sample)| *element = sample.into());
        let output = part(arena, ranks.rank(), 6, 2);
        let mut buffers = RedistributionBuffers { input, output, ..Default::default() };
        ranks.redistribute(&spread, &mut buffers, 1, &mut ())
    });
    assert_eq!(elements[..8], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0, 2.0]);
    assert_eq!(elements[PART..PART + 8], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0]);
    assert_eq!(elements[2 * PART..2 * PART + 8], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 6.0]);
}
