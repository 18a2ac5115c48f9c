//! The NCCL backend as a user meets it: without the library, and on one GPU where there is one.
#![allow(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use collectives::{
    Communicator, DeviceBuffer, DeviceStream, Element, Error, Group, NcclCommunicator, NcclLibrary,
    NcclWorld, Partition, Redistribution, ReduceOp, Request, Result, bf16, f16,
};
use cudarc::driver::{CudaContext, CudaSlice};

const TIMEOUT: Duration = Duration::from_secs(20);

/// What is said when none of these files can be opened.
fn complaint(candidates: &[PathBuf]) -> String {
    let error = NcclLibrary::open_first_of(candidates).unwrap_err();
    assert!(matches!(error, Error::Unavailable { backend: "NCCL", .. }), "{error:?}");
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn without_the_library_one_line_says_what_was_looked_for_and_what_to_do() {
    let places = ["/nowhere/libnccl.so.2", "libnccl-of-nobody.so.2"];
    let message = complaint(&places.map(PathBuf::from));
    for part in places.into_iter().chain(["nvidia-nccl-cu13", "LD_LIBRARY_PATH", "COLLECTIVES_NCCL"]) {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_file_that_is_not_the_library_is_named_with_the_loaders_reason() {
    let text = PathBuf::from(env!("CARGO_MANIFEST_PATH"));
    let message = complaint(&[PathBuf::from("/nowhere/libnccl.so.2"), text]);
    assert!(message.contains("Cargo.toml cannot be used as NCCL: "), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn another_library_is_not_taken_for_nccl() {
    let message = complaint(&[PathBuf::from("libc.so.6")]);
    assert!(
        message.contains("libc.so.6 cannot be used as NCCL: ") && message.contains("ncclGetVersion"),
        "{message}"
    );
}

/// One rank on the first GPU; `None`, with the reason, where there is none.
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

/// Small whole numbers, so that every order of additions gives the same.
fn input<T: Element>(rank: usize, len: usize, number: impl Fn(u8) -> T) -> Vec<T> {
    (0..len).map(|i| number(((i * 7 + rank * 5) % 11) as u8)).collect()
}

/// Every collective on one element type, against its definition.
fn collectives_of<T: Element>(
    ranks: &NcclCommunicator,
    len: usize,
    number: impl Fn(u8) -> T + Copy,
) -> Result<()> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut stream = ranks.new_stream()?;
    let reduced = |op, len: usize| {
        let inputs: Vec<Vec<T>> = (0..size).map(|rank| input(rank, len, number)).collect();
        let mut output = vec![T::default(); len];
        T::reduce(op, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut output);
        output
    };
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        let mut buffer = DeviceBuffer::upload(&input(rank, len, number), &stream)?;
        ranks.all_reduce(&mut buffer, op, &mut stream)?;
        assert_eq!(buffer.download(&stream)?, reduced(op, len), "{op}");

        let mut send = DeviceBuffer::upload(&input(rank, len * size, number), &stream)?;
        let mut receive = DeviceBuffer::uninitialised(len, &stream)?;
        ranks.reduce_scatter(&mut send, &mut receive, op, &mut stream)?;
        assert_eq!(receive.download(&stream)?, reduced(op, len * size)[rank * len..(rank + 1) * len], "{op}");
    }
    for root in 0..size {
        let mut buffer = DeviceBuffer::upload(&input(rank, len, number), &stream)?;
        ranks.broadcast(&mut buffer, root, &mut stream)?;
        assert_eq!(buffer.download(&stream)?, input(root, len, number));
    }
    let mut send = DeviceBuffer::upload(&input(rank, len, number), &stream)?;
    let mut receive = DeviceBuffer::uninitialised(len * size, &stream)?;
    ranks.all_gather(&mut send, &mut receive, &mut stream)?;
    let everything: Vec<T> = (0..size).flat_map(|rank| input(rank, len, number)).collect();
    assert_eq!(receive.download(&stream)?, everything);

    // Rank `from` sends `from + to` elements to rank `to`.
    let counts: Vec<usize> = (0..size).map(|peer| rank + peer).collect();
    let whole = counts.iter().sum();
    let mut send = DeviceBuffer::upload(&vec![number(rank as u8); whole], &stream)?;
    let mut receive = DeviceBuffer::uninitialised(whole, &stream)?;
    ranks.all_to_all_v(&mut send, &counts, &mut receive, &counts, &mut stream)?;
    let arrived: Vec<T> = (0..size).flat_map(|from| vec![number(from as u8); rank + from]).collect();
    assert_eq!(receive.download(&stream)?, arrived);
    ranks.barrier(&mut stream)
}

fn all_types(ranks: &NcclCommunicator) -> Result<()> {
    for len in [0, 1, 1000] {
        collectives_of(ranks, len, f32::from)?;
        collectives_of(ranks, len, f64::from)?;
        collectives_of(ranks, len, i32::from)?;
        collectives_of(ranks, len, i64::from)?;
        collectives_of(ranks, len, |value| value)?;
        collectives_of(ranks, len, |value| f16::from_f32(value.into()))?;
        collectives_of(ranks, len, |value| bf16::from_f32(value.into()))?;
    }
    Ok(())
}

/// From half of the ranks to all of them and back.
fn redistribution(ranks: &NcclCommunicator) -> Result<()> {
    let everyone: Vec<usize> = (0..ranks.size()).collect();
    let narrow = Partition::even(10, &everyone[..ranks.size().div_ceil(2)])?;
    // All ranks are in both, some with nothing.
    let narrow: Vec<_> = everyone.iter().map(|&rank| (rank, narrow.shard(rank).len())).collect();
    let there = Redistribution::new(&Partition::from_counts(&narrow)?, &Partition::even(10, &everyone)?)?;
    let data = |samples: std::ops::Range<usize>| -> Vec<f32> {
        samples.flat_map(|sample| [sample as f32, sample as f32 + 0.5]).collect()
    };
    let mut stream = ranks.new_stream()?;
    let mut held = DeviceBuffer::upload(&data(there.source().shard(ranks.rank())), &stream)?;
    for way in [there.clone(), there.reversed()] {
        let expected = data(way.target().shard(ranks.rank()));
        let output = DeviceBuffer::uninitialised(expected.len(), &stream)?;
        held = ranks.start_redistribution(&way, held, 2, output, &mut stream)?.wait()?.receive;
        assert_eq!(held.download(&stream)?, expected);
    }
    Ok(())
}

fn groups(ranks: &NcclCommunicator) -> Result<()> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let halves = ranks.split(Some((rank % 2) as u32), -(rank as i32))?.expect("a color");
    all_types(&halves)?;
    assert!(ranks.split(None, 0)?.is_none());
    let backwards: Vec<usize> = (0..size).rev().collect();
    let group = ranks.group(&backwards)?;
    assert_eq!((group.rank(), group.size()), (size - 1 - rank, size));
    all_types(&group)?;
    all_types(&ranks.group(&backwards)?)?;
    all_types(&ranks.group(&[rank])?)
}

#[test]
fn every_collective_on_every_type_on_one_gpu() -> Result<()> {
    one_rank().map_or(Ok(()), |ranks| all_types(&ranks))
}

#[test]
fn groups_and_splits_on_one_gpu() -> Result<()> {
    one_rank().map_or(Ok(()), |ranks| groups(&ranks))
}

#[test]
fn a_redistribution_of_nothing_is_a_copy_on_one_gpu() -> Result<()> {
    one_rank().map_or(Ok(()), |ranks| redistribution(&ranks))
}

#[test]
fn memory_of_cudarc_goes_through_and_comes_back() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Some(ranks) = one_rank() else { return Ok(()) };
    let stream = CudaContext::new(0)?.new_stream()?;
    let buffer = DeviceBuffer::from_slice(stream.clone_htod(&[1.5_f32, 2.5])?);
    let mut queue = DeviceStream::from_cuda(Arc::clone(&stream));
    let mut request = ranks.start_all_reduce(buffer, ReduceOp::Sum, &mut queue)?;
    // Behind the operation in the same stream, nobody has to wait on the host.
    let marker = DeviceBuffer::upload(&[1_u8], &queue)?;
    assert!(request.test()?);
    let slice = request.wait()?.into_owner::<CudaSlice<f32>>().expect("what was put in");
    assert_eq!(stream.clone_dtoh(&slice)?, [1.5, 2.5]);
    drop(marker);
    Ok(())
}

#[test]
fn a_rank_that_does_not_come_is_named_on_a_gpu() {
    if one_rank().is_none() {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let world = NcclWorld::new(0, 2, 0).with_address("127.0.0.1", port);
    let error = world.with_timeout(Duration::from_secs(1)).connect().unwrap_err();
    assert!(matches!(&error, Error::Rendezvous { missing, .. } if missing == &[1]), "{error}");
}

/// A rank of a job that a launcher has started, one process a GPU.
fn rank_of_a_job() -> NcclCommunicator {
    NcclWorld::from_env().and_then(|world| world.with_timeout(TIMEOUT).connect()).unwrap()
}

#[test]
#[ignore = "a rank of a job: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT have to be set"]
fn job_of_several_gpus() -> Result<()> {
    let ranks = rank_of_a_job();
    all_types(&ranks)?;
    groups(&ranks)?;
    redistribution(&ranks)?;
    let mut stream = ranks.new_stream()?;
    // Around the ring: one of two neighbours sends first.
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut mine = DeviceBuffer::upload(&[rank as i64], &stream)?;
    let mut last = DeviceBuffer::<i64>::uninitialised(1, &stream)?;
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
#[ignore = "a rank of a job of two or more, of which the last one ends early"]
fn job_that_loses_a_rank() -> Result<()> {
    let ranks = rank_of_a_job();
    let mut stream = ranks.new_stream()?;
    ranks.barrier(&mut stream)?;
    if ranks.rank() == ranks.size() - 1 {
        std::process::exit(0);
    }
    let started = Instant::now();
    let mut buffer = DeviceBuffer::upload(&vec![1.0_f32; 1 << 20], &stream)?;
    let error = ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap_err();
    println!("after {:?}: {error}", started.elapsed());
    assert!(started.elapsed() < TIMEOUT * 2);
    assert!(
        matches!(error, Error::RankFailed { .. } | Error::TimedOut { .. } | Error::Library { .. }),
        "{error:?}"
    );
    Ok(())
}
