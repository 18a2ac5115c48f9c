//! Sharing a core: a foreground that is idle most of its time, alone and with a background job.
//!
//! `cargo run --release --example share_a_core`
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::task::Poll;
use std::time::{Duration, Instant};

use gpu_mux::{CpuDriver, Error, JobState, Policy, PolledJob, Upcoming, Usage, job_fn};

/// A rank of a distributed job: it computes for a while, then waits for its partners.
struct Rank {
    steps_left: u32,
    answer_at: Instant,
}

impl PolledJob for Rank {
    type Error = Error;

    fn poll(&mut self) -> Result<JobState, Error> {
        Ok(match self.steps_left {
            0 => JobState::Finished,
            _ if Instant::now() < self.answer_at => JobState::Communicating(Upcoming::at_site(1)),
            _ => JobState::Ready(Upcoming::at_site(0)),
        })
    }

    fn run(&mut self) -> Result<(), Error> {
        black_box(compute(1_000_000));
        self.steps_left -= 1;
        self.answer_at = Instant::now() + Duration::from_millis(2);
        Ok(())
    }
}

/// A stand-in for a layer: `n` dependent additions.
fn compute(n: u32) -> f64 {
    (0..n).fold(0.0, |sum, i| sum + f64::from(i))
}

fn run(share: bool) -> Result<Usage, Error> {
    let mut foreground = Rank { steps_left: 100, answer_at: Instant::now() };
    let background = job_fn(
        || Poll::Ready(Some(())),
        |()| {
            black_box(compute(100_000));
            Ok::<_, Error>(())
        },
    );
    let mut driver = CpuDriver::new(Policy::default());
    if share {
        driver.add(background);
    }
    driver.run(&mut foreground)
}

fn main() -> Result<(), Error> {
    let (alone, shared) = (run(false)?, run(true)?);
    println!("foreground alone    {:7.1} ms", millis(alone.elapsed));
    println!(
        "foreground sharing  {:7.1} ms ({:+.1}%)",
        millis(shared.elapsed),
        100.0 * (shared.elapsed.as_secs_f64() / alone.elapsed.as_secs_f64() - 1.0)
    );
    println!(
        "background          {:7.1} ms of the {:.1} ms that the foreground was idle, in {} tasklets \
         (longest {:.3} ms)",
        millis(shared.background_busy),
        millis(shared.foreground_idle()),
        shared.background_tasklets,
        millis(shared.longest_background)
    );
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
