//! Failing ranks, and the errors of the others. Each rank prints a line `SEEN ...`, which the trial
//! reads.

use std::io::{self, Write};
use std::panic;
use std::process;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use collectives::{
    Communicator, Error, Group, HostBuffer, MpiCommunicator, MpiWorld, ReduceOp, Request, Result,
    WaitStrategy,
};

use super::start;

/// Time-out of these trials.
const TIMEOUT: Duration = Duration::from_millis(700);

fn print_with_time(what: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    println!("{what} at {} ms", now.as_millis());
}

/// Rank 2 panics while the others wait for it.
pub(crate) fn panic() {
    let ranks = start(&MpiWorld::new());
    ranks.barrier(&mut ()).expect("all ranks are there");
    if ranks.rank() == 2 {
        print_with_time("PANIC");
        panic!("on purpose");
    }
    let outcome = ranks.all_reduce(&mut vec![1.0_f32; 1_000].into(), ReduceOp::Sum, &mut ());
    println!("SEEN {outcome:?}");
}

/// Like [`panic`], with a thread of rank 2 that holds the lock of the pending operations nearly all
/// the time.
pub(crate) fn panic_while_polling() {
    let ranks = start(&MpiWorld::new());
    ranks.barrier(&mut ()).expect("all ranks are there");
    let mut barrier = ranks.start_barrier(&mut ()).expect("it starts");
    if ranks.rank() == 2 {
        thread::spawn(move || while !matches!(barrier.test(), Err(_) | Ok(true)) {});
        thread::sleep(Duration::from_millis(20));
        print_with_time("PANIC");
        panic!("on purpose");
    }
    let late = ranks.all_reduce(&mut vec![1.0_f32; 1_000].into(), ReduceOp::Sum, &mut ());
    println!("SEEN {late:?}");
}

/// Like [`panic`], in a program whose panic hook replaces the one that aborts the job.
pub(crate) fn panic_with_own_hook() {
    let ranks = start(&MpiWorld::new());
    // Written in one piece, because the output of several ranks is in one file.
    panic::set_hook(Box::new(|information| {
        let line = format!("own hook: {information}\n");
        let _ = io::stderr().write_all(line.as_bytes());
    }));
    ranks.barrier(&mut ()).expect("all ranks are there");
    if ranks.rank() == 2 {
        print_with_time("PANIC");
        panic!("on purpose");
    }
    let outcome = ranks.all_reduce(&mut vec![1.0_f32; 1_000].into(), ReduceOp::Sum, &mut ());
    println!("SEEN {outcome:?}");
}

/// Rank 0 drops a request that no rank matches.
pub(crate) fn unmatched() {
    let ranks = start(&MpiWorld::new().with_timeout(TIMEOUT));
    if ranks.rank() == 0 {
        drop(ranks.start_receive(vec![0_u8].into(), 1, 5, &mut ()));
    }
    ranks.barrier(&mut ()).expect("all ranks are there");
}

/// Returns a number for each use of a seed.
fn random(seed: u64, salt: u64) -> u64 {
    seed.wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// One rank kills itself at a random time in a loop of collectives. The survivors print their
/// errors and times.
pub(crate) fn killed(seed: u64) {
    killed_within(seed, |ranks, step| one_collective(ranks, random(seed, step % 64 + 3)));
}

/// Like [`killed`], in a loop that creates groups.
pub(crate) fn killed_while_grouping(seed: u64) {
    killed_within(seed, |ranks, _| ranks.split(Some(0), 0).map(|_| ()));
}

fn killed_within(seed: u64, one_step: impl Fn(&MpiCommunicator, u64) -> Result<()>) {
    let ranks = start(&MpiWorld::new().with_timeout(TIMEOUT).with_wait(WaitStrategy::Yield));
    let victim = random(seed, 1) as usize % ranks.size();
    ranks.barrier(&mut ()).expect("all ranks are there");
    if ranks.rank() == victim {
        println!("VICTIM {victim}");
        thread::spawn(move || {
            thread::sleep(Duration::from_micros(random(seed, 2) % 30_000));
            let _ = process::Command::new("kill").args(["-KILL", &process::id().to_string()]).status();
        });
    }
    for step in 0.. {
        let started = Instant::now();
        if let Err(error) = one_step(&ranks, step) {
            report(&error, started);
            break;
        }
    }
    // MPI is not finalized, and the others see the failure.
    process::exit(0);
}

fn one_collective(ranks: &MpiCommunicator, random: u64) -> Result<()> {
    let size = ranks.size();
    let len = (random >> 3) as usize % [3, 2_000, 50_000, 600_000][random as usize >> 1 & 3];
    match random % 5 {
        0 => ranks.all_reduce(&mut vec![1.0_f32; len].into(), ReduceOp::Sum, &mut ()),
        1 => ranks.broadcast(&mut vec![1_i64; len].into(), len % size, &mut ()),
        2 => ranks.all_gather(
            &mut vec![1.0_f64; len / size].into(),
            &mut vec![0.0; len / size * size].into(),
            &mut (),
        ),
        3 => ranks.reduce_scatter(
            &mut vec![1; len / size * size].into(),
            &mut vec![0_i32; len / size].into(),
            ReduceOp::Max,
            &mut (),
        ),
        _ => ranks.barrier(&mut ()),
    }
}

fn report(error: &Error, started: Instant) {
    let missing = match error {
        Error::TimedOut { missing, .. } => format!("{missing:?}"),
        _ => "?".into(),
    };
    println!("SEEN missing {missing} after {} ms: {error}", started.elapsed().as_millis());
}

/// Rank 0 is late: the others have timed out. It gets the error, too, even from an operation for
/// which it has received all its data by then.
pub(crate) fn late_rank(operation: u64) {
    let timeout = Duration::from_millis(300);
    let ranks = start(&MpiWorld::new().with_timeout(timeout).with_checks(operation < 6));
    ranks.barrier(&mut ()).expect("all ranks are there");
    if ranks.rank() == 0 {
        thread::sleep(3 * timeout);
    }
    let started = Instant::now();
    let error = operation_without_a_wait(&ranks, operation).expect_err("rank 0 is late");
    report(&error, started);
    assert_eq!(ranks.barrier(&mut ()), Err(error), "the group has failed for good");
    // Wait until rank 0 has failed, because `mpirun` may end the job with the first rank.
    if ranks.rank() != 0 {
        thread::sleep(3 * timeout);
    }
    process::exit(0);
}

/// Calls an operation in which only rank 0 sends and the others receive, or no rank sends.
fn operation_without_a_wait(ranks: &MpiCommunicator, operation: u64) -> Result<()> {
    let (first, size) = (ranks.rank() == 0, ranks.size());
    match operation {
        0 => ranks.all_reduce(&mut vec![0.0_f32; 10].into(), ReduceOp::Sum, &mut ()),
        1 => ranks.barrier(&mut ()),
        2 | 6 => ranks.broadcast(&mut vec![0_i32; 10].into(), 0, &mut ()),
        3 if first => (1..size).try_for_each(|to| ranks.send(&mut vec![0_u8; 10].into(), to, 0, &mut ())),
        3 => ranks.receive(&mut vec![0_u8; 10].into(), 0, 0, &mut ()),
        4 => {
            let (sent, mut received) = (usize::from(first), vec![0; size]);
            received[0] = 1;
            let (mut send, mut receive) = (vec![0.0_f32; sent * size].into(), vec![0.0; 1].into());
            ranks.all_to_all_v(&mut send, &vec![sent; size], &mut receive, &received, &mut ())
        }
        _ => ranks.group(&[1, 0, 2]).map(|_| ()),
    }
}

/// Rank 1 never calls for the group that ranks 0 and 2 create.
pub(crate) fn missing_in_group_creation() {
    let ranks = start(&MpiWorld::new().with_timeout(TIMEOUT));
    ranks.barrier(&mut ()).expect("all ranks are there");
    if ranks.rank() % 2 == 0 {
        let started = Instant::now();
        let error = ranks.group(&[2, 1, 0]).expect_err("rank 1 does not call it");
        report(&error, started);
    }
    thread::sleep(2 * TIMEOUT);
    process::exit(0);
}

/// Calls that MPI does not support, and a second initialization.
pub(crate) fn mistakes() {
    let ranks = start(&MpiWorld::new());
    let again = MpiWorld::new().communicator().expect_err("MPI is initialised once");
    assert!(matches!(again, Error::Unavailable { .. }), "{again}");
    let tag = ranks.send(&mut vec![0_u8].into(), 0, u32::MAX, &mut ()).expect_err("there is no such tag");
    assert!(matches!(tag, Error::NoSuchTag { tag: u32::MAX, .. }), "{tag}");
    ranks.barrier(&mut ()).expect("the group works on");
}

/// One rank, not started by `mpirun`.
pub(crate) fn alone() {
    let ranks = start(&MpiWorld::new());
    assert_eq!((ranks.rank(), ranks.size()), (0, 1));
    let mut sum = HostBuffer::from(vec![3.0_f32]);
    ranks.all_reduce(&mut sum, ReduceOp::Sum, &mut ()).expect("no other rank is needed");
    assert_eq!(sum, [3.0]);
}
