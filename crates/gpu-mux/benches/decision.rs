//! What one tasklet costs in decisions (it becomes ready, is launched, finishes) while 10,000 others are queued.
#![allow(missing_docs)] // the benchmark macros define a public function without any

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_mux::{Command, Error, Event, JobId, Multiplexer, Policy, Tasklet};

const QUEUED: u64 = 10_000;
const TOOK: Duration = Duration::from_micros(100);

/// A multiplexer with `QUEUED` tasklets of a job, in the middle of its run.
struct Stream {
    mux: Multiplexer,
    job: JobId,
    next: u64,
    now: Duration,
}

impl Stream {
    fn new(job: JobId) -> Result<Self, Error> {
        let mut stream = Self { mux: Multiplexer::new(Policy::default()), job, next: 0, now: Duration::ZERO };
        (0..QUEUED).try_for_each(|_| stream.ready())?;
        Ok(stream)
    }

    fn ready(&mut self) -> Result<(), Error> {
        let tasklet = Tasklet::new(self.job, self.next).estimated(TOOK);
        self.next += 1;
        self.mux.handle(self.now, Event::Ready(tasklet))
    }

    /// Launches the next tasklet, finishes it, and makes another one ready.
    fn turn(&mut self) -> Result<(), Error> {
        if let Some(Command::Launch(tasklet)) = self.mux.poll_command() {
            self.now += TOOK;
            self.mux.handle(self.now, Event::Finished { tasklet: black_box(tasklet), took: TOOK })?;
            self.ready()?;
        }
        Ok(())
    }
}

fn decision(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    for job in [JobId::FOREGROUND, JobId::BACKGROUND] {
        group.bench_function(format!("{job}, {QUEUED} queued"), |bencher| match Stream::new(job) {
            Ok(mut stream) => bencher.iter(|| stream.turn()),
            Err(error) => eprintln!("{error}"),
        });
    }
    group.finish();
}

criterion_group!(benches, decision);
criterion_main!(benches);
