//! How long four threads take to all-reduce f32 gradients, beside what merely copying the same bytes takes: each rank
//! has to read its own bytes and write them back, so one copy a rank is the bound.

use std::hint::black_box;
use std::time::{Duration, Instant};

use collectives::{Communicator, Group, ReduceOp, ThreadWorld, WaitStrategy};
use criterion::{BenchmarkId, Criterion, Throughput};

const RANKS: usize = 4;

fn all_reduce(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("all_reduce");
    for (size, bytes) in [("4 KiB", 4 << 10), ("4 MiB", 4 << 20)] {
        group.throughput(Throughput::Bytes(bytes as u64));
        for (name, wait) in [("yield", WaitStrategy::Yield), ("park", WaitStrategy::Park)] {
            let world = ThreadWorld::new(RANKS).with_wait(wait);
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter_custom(|iterations| {
                    slowest_rank(&world, bytes, |ranks, buffer| {
                        for _ in 0..iterations {
                            // The minimum of equal inputs stays as it is, however often it is taken.
                            ranks.all_reduce(buffer, ReduceOp::Min, &mut ()).expect("all ranks take part");
                        }
                    })
                });
            });
        }
        let world = ThreadWorld::new(RANKS);
        group.bench_function(BenchmarkId::new("copy bound", size), |bencher| {
            bencher.iter_custom(|iterations| {
                slowest_rank(&world, bytes, |_, buffer| {
                    let mut copy = buffer.clone();
                    for _ in 0..iterations {
                        black_box(&mut copy).copy_from_slice(black_box(buffer));
                    }
                })
            });
        });
    }
    group.finish();
}

/// The longest time that a rank spends in `work`, when all begin together.
fn slowest_rank(
    world: &ThreadWorld,
    bytes: usize,
    work: impl Fn(&collectives::ThreadCommunicator, &mut Vec<f32>) + Sync,
) -> Duration {
    let times = world.run(|ranks| {
        let mut buffer = vec![1.0; bytes / size_of::<f32>()];
        ranks.barrier(&mut ()).expect("all ranks take part");
        let start = Instant::now();
        work(&ranks, &mut buffer);
        start.elapsed()
    });
    times.into_iter().max().unwrap_or_default()
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    all_reduce(&mut criterion);
    criterion.final_summary();
}
