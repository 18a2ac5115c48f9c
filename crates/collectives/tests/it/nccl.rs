//! Tests of the NCCL backend's public interface on a GPU, if there is one.
#![allow(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use collectives::{
    Communicator, Element, Error, Group, Layout, NcclCommunicator, NcclWorld, Redistribution,
    RedistributionBuffers, ReduceOp, Request, Result,
};
use cuda::{Buffer, Priority, Stream};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::suite;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Connects one rank on the first GPU. Returns `None`, after printing the reason, if there is none.
fn one_rank() -> Option<NcclCommunicator> {
    match NcclWorld::new(0, 1, 0).with_timeout(TIMEOUT).connect() {
        Ok(ranks) => Some(ranks),
        Err(error) => {
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            let required = std::env::var("GPU_REQUIRED").is_ok_and(|value| value == "1");
            assert!(!required, "GPU_REQUIRED=1: {error}");
            println!("SKIPPED: no CUDA device: {error}");
            None
        }
    }
}

impl suite::Ranks for NcclCommunicator {
    const CHECKS: bool = false;
    const REDUCES_HALF: bool = true;

    fn queue(&self) -> Stream {
        Stream::new(self.context(), Priority::default()).expect("a stream")
    }
}

impl<T: Element> suite::Carries<T> for NcclCommunicator {
    fn buffer(&self, values: &[T]) -> Buffer<T> {
        let stream = suite::Ranks::queue(self);
        let buffer = Buffer::in_stream(&stream, values.len()).expect("memory");
        buffer.upload(&stream, values).expect("a copy");
        buffer
    }

    fn values(&self, buffer: &Buffer<T>) -> Vec<T> {
        buffer.to_vec(&suite::Ranks::queue(self)).expect("the device's answer")
    }
}

fn queue(ranks: &NcclCommunicator) -> Stream {
    suite::Ranks::queue(ranks)
}

fn buffer<T: Element>(ranks: &NcclCommunicator, values: &[T]) -> Buffer<T> {
    suite::Carries::buffer(ranks, values)
}

fn values<T: Element>(ranks: &NcclCommunicator, buffer: &Buffer<T>) -> Vec<T> {
    suite::Carries::values(ranks, buffer)
}

type Law = fn(&NcclCommunicator, &suite::Case) -> Result<()>;

macro_rules! laws {
    (any memory { $($any:ident)* } host memory { $($host:ident)* }) => {
        const LAWS: &[(&str, Law)] = &[$((stringify!($any), suite::$any)),*];
    };
}

suite::for_each_law!(laws);

/// Laws that do not hold for NCCL: it has no tags and no messages to oneself, and it executes
/// operations in one order on all ranks, including those of several communicators.
const UNSUPPORTED_LAWS: [&str; 3] = [
    "messages_arrive_in_order_with_their_tag",
    "no_rank_passes_a_barrier_before_the_last_arrives",
    "threads_of_a_rank_use_separate_groups",
];

/// Checks the laws on 10 cases, which are the same on every rank.
fn check_laws(ranks: &NcclCommunicator) -> Result<()> {
    let mut runner = TestRunner::deterministic();
    for _ in 0..10 {
        let case = suite::cases().new_tree(&mut runner).expect("cases can be drawn").current();
        for (name, law) in LAWS.iter().filter(|(name, _)| !UNSUPPORTED_LAWS.contains(name)) {
            println!("{name}");
            law(ranks, &case)?;
        }
    }
    Ok(())
}

/// Redistributes from half of the ranks to all of them and back.
fn check_redistribution(ranks: &NcclCommunicator) -> Result<()> {
    let everyone: Vec<usize> = (0..ranks.size()).collect();
    let narrow = Layout::even(10, &everyone[..ranks.size().div_ceil(2)])?;
    // All ranks are in both layouts, some without samples.
    let narrow: Vec<_> = everyone.iter().map(|&rank| (rank, narrow.shard(rank).len())).collect();
    let (narrow, wide) = (Layout::from_counts(&narrow)?, Layout::even(10, &everyone)?);
    let (forward, reverse) = (Redistribution::new(&narrow, &wide)?, Redistribution::new(&wide, &narrow)?);
    let data = |samples: std::ops::Range<usize>| -> Vec<f32> {
        samples.flat_map(|sample| [sample as f32, sample as f32 + 0.5]).collect()
    };
    let mut stream = queue(ranks);
    let mut held = buffer(ranks, &data(narrow.shard(ranks.rank())));
    for redistribution in [forward, reverse] {
        let expected = data(redistribution.target().shard(ranks.rank()));
        let output = buffer(ranks, &vec![0.0; expected.len()]);
        let address = output.address();
        let mut buffers = RedistributionBuffers { input: held, output, ..Default::default() };
        ranks.redistribute(&Arc::new(redistribution), &mut buffers, 2, &mut stream)?;
        held = buffers.output;
        assert_eq!((held.address(), values(ranks, &held)), (address, expected));
    }
    Ok(())
}

#[test]
fn the_suites_laws_hold_on_one_gpu() -> Result<()> {
    one_rank().map_or(Ok(()), |ranks| check_laws(&ranks))
}

#[test]
fn an_identity_redistribution_is_a_copy_on_one_gpu() -> Result<()> {
    one_rank().map_or(Ok(()), |ranks| check_redistribution(&ranks))
}

#[test]
fn memory_and_streams_of_another_owner_are_used() -> Result<()> {
    let Some(ranks) = one_rank() else { return Ok(()) };
    let stream = queue(&ranks);
    let tensor = Arc::new(buffer(&ranks, &[1.5_f32, 2.5]));
    // SAFETY: the stream and the memory, which nothing else accesses, outlive the operation.
    #[allow(unsafe_code)]
    let (mut queue, theirs) = unsafe {
        let queue = Stream::borrow(ranks.context(), stream.as_raw());
        (queue, Buffer::<f32>::from_raw(ranks.context(), tensor.address(), 2, Arc::clone(&tensor)))
    };
    let mut request = ranks.start_all_reduce(theirs, ReduceOp::Sum, &mut queue)?;
    ranks.synchronize(&queue)?;
    assert!(request.test()?);
    let reduced = request.wait()?;
    assert_eq!((reduced.address(), Arc::strong_count(&tensor)), (tensor.address(), 2));
    drop(reduced);
    assert_eq!((values(&ranks, &tensor), Arc::strong_count(&tensor)), (vec![1.5, 2.5], 1));
    Ok(())
}

#[test]
fn a_missing_rank_is_named_on_a_gpu() {
    if one_rank().is_none() {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let world = NcclWorld::new(0, 2, 0).with_address("127.0.0.1", port);
    let error = world.with_timeout(Duration::from_secs(1)).connect().unwrap_err();
    assert!(matches!(&error, Error::Rendezvous { missing, .. } if missing == &[1]), "{error}");
}

/// Connects one rank of a job that a launcher has started, with one process for each GPU.
fn connect_from_env() -> NcclCommunicator {
    NcclWorld::from_env().and_then(|world| world.with_timeout(TIMEOUT).connect()).unwrap()
}

#[test]
#[ignore = "one rank of a job: set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT"]
fn job_of_several_gpus() -> Result<()> {
    let ranks = connect_from_env();
    check_laws(&ranks)?;
    check_redistribution(&ranks)?;
    let mut stream = queue(&ranks);
    // Messages around a ring: one of two neighbors sends first.
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut mine = buffer(&ranks, &[rank as i64]);
    let mut last = buffer(&ranks, &[0_i64]);
    if size > 1 {
        if rank > 0 {
            ranks.receive(&mut last, rank - 1, 0, &mut stream)?;
        }
        ranks.send(&mut mine, (rank + 1) % size, 0, &mut stream)?;
        if rank == 0 {
            ranks.receive(&mut last, size - 1, 0, &mut stream)?;
        }
        assert_eq!(values(&ranks, &last), [((rank + size - 1) % size) as i64]);
    }
    Ok(())
}

#[test]
#[ignore = "one rank of a job of two or more ranks, the last of which ends early"]
fn job_that_loses_a_rank() -> Result<()> {
    let ranks = connect_from_env();
    let mut stream = queue(&ranks);
    ranks.barrier(&mut stream)?;
    if ranks.rank() == ranks.size() - 1 {
        std::process::exit(0);
    }
    let started = Instant::now();
    let mut sums = buffer(&ranks, &vec![1.0_f32; 1 << 20]);
    let error = ranks.all_reduce(&mut sums, ReduceOp::Sum, &mut stream).unwrap_err();
    println!("after {:?}: {error}", started.elapsed());
    assert!(started.elapsed() < TIMEOUT * 2);
    assert!(
        matches!(error, Error::RankFailed { .. } | Error::TimedOut { .. } | Error::Library { .. }),
        "{error:?}"
    );
    Ok(())
}
