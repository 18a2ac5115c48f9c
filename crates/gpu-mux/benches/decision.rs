//! Cost of the multiplexer's decisions with 10,000 queued tasklets: criterion's mean for a full
//! cycle (a tasklet becomes ready, is launched, finishes), and percentiles of single decisions (a
//! tasklet's end is handled and the next one launched). Each includes the time to read the clock.
#![allow(missing_docs)] // the benchmark macros define a public function without any
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_mux::{Error, JobId, Multiplexer, MuxCommand, MuxEvent, Policy, Tasklet};

const QUEUED: u64 = 10_000;
const TOOK: Duration = Duration::from_micros(100);
const SITES: u64 = 100;
const TURNS: usize = 500_000;

/// A multiplexer with `QUEUED` tasklets of a job, in steady state.
struct Stream {
    mux: Multiplexer,
    job: JobId,
    next: u64,
    now: Duration,
}

impl Stream {
    fn new(policy: Policy, job: JobId) -> Result<Self, Error> {
        let mut stream = Self { mux: Multiplexer::new(policy), job, next: 0, now: Duration::ZERO };
        (0..QUEUED).try_for_each(|_| stream.ready())?;
        Ok(stream)
    }

    fn ready(&mut self) -> Result<(), Error> {
        let tasklet = Tasklet::new(self.job, self.next).estimated(TOOK).at_site((self.next % SITES) as u32);
        self.next += 1;
        self.mux.handle(self.now, MuxEvent::Ready(tasklet))
    }

    /// Launches the next tasklet, finishes it, and makes another one ready.
    fn turn(&mut self) -> Result<(), Error> {
        if let Some(MuxCommand::Launch(tasklet)) = self.mux.poll_command() {
            self.now += TOOK;
            self.mux.handle(self.now, MuxEvent::Finished { tasklet: black_box(tasklet), took: TOOK })?;
            self.ready()?;
        }
        Ok(())
    }

    /// Returns the durations of single decisions in nanoseconds, sorted.
    fn decisions(&mut self) -> Result<Vec<u64>, Error> {
        let mut times = Vec::with_capacity(TURNS);
        let mut launched = self.mux.poll_command();
        while let Some(MuxCommand::Launch(tasklet)) = launched {
            self.ready()?;
            self.now += TOOK;
            let start = Instant::now();
            self.mux.handle(self.now, MuxEvent::Finished { tasklet, took: TOOK })?;
            launched = black_box(self.mux.poll_command());
            times.push(start.elapsed().as_nanos() as u64);
            if times.len() == TURNS {
                break;
            }
        }
        times.sort_unstable();
        Ok(times)
    }
}

fn percentiles(policy: Policy, name: &str) {
    for job in [JobId::FOREGROUND, JobId::BACKGROUND] {
        match Stream::new(policy, job).and_then(|mut stream| stream.decisions()) {
            Ok(times) if times.len() < TURNS => eprintln!("{name}, {job}: nothing was launched"),
            Ok(times) => {
                let (median, p99) = (times[TURNS / 2], times[TURNS / 100 * 99]);
                println!("{name}, {job}: median {median} ns, p99 {p99} ns");
            }
            Err(error) => eprintln!("{error}"),
        }
    }
}

fn decision(criterion: &mut Criterion) {
    for (name, policy) in Policy::presets() {
        percentiles(policy, &format!("single decisions, {name}, {QUEUED} queued"));
    }
    let mut group = criterion.benchmark_group("decision");
    for job in [JobId::FOREGROUND, JobId::BACKGROUND] {
        let name = format!("{job}, {QUEUED} queued");
        group.bench_function(name, |bencher| match Stream::new(Policy::default(), job) {
            Ok(mut stream) => bencher.iter(|| stream.turn()),
            Err(error) => eprintln!("{error}"),
        });
    }
    group.finish();
}

criterion_group!(benches, decision);
criterion_main!(benches);
