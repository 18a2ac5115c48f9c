//! Tests of the NCCL backend's public interface: without the library, and on a GPU if there is one.
#![allow(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use collectives::{
    Communicator, Element, Error, Group, NcclBuffer, NcclCommunicator, NcclLibrary, NcclStream, NcclWorld,
    Partition, Redistribution, RedistributionRequest, ReduceOp, Request, Result,
};
use cudarc::driver::{CudaContext, CudaSlice};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::suite;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the error for files none of which can be opened.
fn open_error(candidates: &[PathBuf]) -> String {
    let error = NcclLibrary::open_first_of(candidates).unwrap_err();
    assert!(matches!(error, Error::Unavailable { backend: "NCCL", .. }), "{error:?}");
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn a_missing_library_is_one_line_with_the_searched_places_and_the_remedy() {
    let places = ["/nowhere/libnccl.so.2", "libnccl-of-nobody.so.2"];
    let message = open_error(&places.map(PathBuf::from));
    for part in places.into_iter().chain(["nvidia-nccl-cu13", "LD_LIBRARY_PATH", "COLLECTIVES_NCCL"]) {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_file_that_is_no_library_is_named_with_the_loaders_error() {
    let text = tempfile::Builder::new().suffix("libnccl.txt").tempfile().unwrap();
    let message = open_error(&[PathBuf::from("/nowhere/libnccl.so.2"), text.path().to_owned()]);
    assert!(message.contains("libnccl.txt cannot be used as NCCL: "), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn another_library_is_refused() {
    let message = open_error(&[PathBuf::from("libc.so.6")]);
    assert!(
        message.contains("libc.so.6 cannot be used as NCCL: ") && message.contains("ncclGetVersion"),
        "{message}"
    );
}

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

    fn queue(&self) -> NcclStream {
        self.new_stream().expect("a stream")
    }
}

impl<T: Element> suite::Carries<T> for NcclCommunicator {
    fn buffer(&self, values: &[T]) -> NcclBuffer<T> {
        NcclBuffer::upload(values, &suite::Ranks::queue(self)).expect("memory")
    }

    fn values(&self, buffer: &NcclBuffer<T>) -> Vec<T> {
        buffer.download(&suite::Ranks::queue(self)).expect("the device's answer")
    }
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
    let narrow = Partition::even(10, &everyone[..ranks.size().div_ceil(2)])?;
    // All ranks are in both partitions, some without samples.
    let narrow: Vec<_> = everyone.iter().map(|&rank| (rank, narrow.shard(rank).len())).collect();
    let forward = Redistribution::new(&Partition::from_counts(&narrow)?, &Partition::even(10, &everyone)?)?;
    let data = |samples: std::ops::Range<usize>| -> Vec<f32> {
        samples.flat_map(|sample| [sample as f32, sample as f32 + 0.5]).collect()
    };
    let mut stream = ranks.new_stream()?;
    let mut held = NcclBuffer::upload(&data(forward.source().shard(ranks.rank())), &stream)?;
    for redistribution in [forward.clone(), forward.reversed()] {
        let expected = data(redistribution.target().shard(ranks.rank()));
        let mut output = NcclBuffer::uninitialised(expected.len(), &stream)?;
        let address = output.device_pointer();
        ranks.start_redistribution(&redistribution, &held, 2, &mut stream)?.wait_into(&mut output)?;
        assert_eq!(output.device_pointer(), address);
        held = output;
        assert_eq!(held.download(&stream)?, expected);
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
fn cudarc_memory_can_be_reduced_and_returned() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Some(ranks) = one_rank() else { return Ok(()) };
    let stream = CudaContext::new(0)?.new_stream()?;
    let buffer = NcclBuffer::from_slice(stream.clone_htod(&[1.5_f32, 2.5])?);
    let mut queue = NcclStream::from_cuda(Arc::clone(&stream));
    let mut request = ranks.start_all_reduce(buffer, ReduceOp::Sum, &mut queue)?;
    // Work after the operation in the same stream needs no wait on the host.
    let marker = NcclBuffer::upload(&[1_u8], &queue)?;
    assert!(request.test()?);
    let slice = request.wait()?.into_owner::<CudaSlice<f32>>().expect("the owner is the slice");
    assert_eq!(stream.clone_dtoh(&slice)?, [1.5, 2.5]);
    drop(marker);
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
    let mut stream = ranks.new_stream()?;
    // Messages around a ring: one of two neighbors sends first.
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut mine = NcclBuffer::upload(&[rank as i64], &stream)?;
    let mut last = NcclBuffer::<i64>::uninitialised(1, &stream)?;
    if size > 1 {
        if rank > 0 {
            ranks.receive(&mut last, rank - 1, 0, &mut stream)?;
        }
        ranks.send(&mut mine, (rank + 1) % size, 0, &mut stream)?;
        if rank == 0 {
            ranks.receive(&mut last, size - 1, 0, &mut stream)?;
        }
        assert_eq!(last.download(&stream)?, [((rank + size - 1) % size) as i64]);
    }
    Ok(())
}

#[test]
#[ignore = "one rank of a job of two or more ranks, the last of which ends early"]
fn job_that_loses_a_rank() -> Result<()> {
    let ranks = connect_from_env();
    let mut stream = ranks.new_stream()?;
    ranks.barrier(&mut stream)?;
    if ranks.rank() == ranks.size() - 1 {
        std::process::exit(0);
    }
    let started = Instant::now();
    let mut buffer = NcclBuffer::upload(&vec![1.0_f32; 1 << 20], &stream)?;
    let error = ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap_err();
    println!("after {:?}: {error}", started.elapsed());
    assert!(started.elapsed() < TIMEOUT * 2);
    assert!(
        matches!(error, Error::RankFailed { .. } | Error::TimedOut { .. } | Error::Library { .. }),
        "{error:?}"
    );
    Ok(())
}
