//! Throughput of a matrix product and a convolution on one and two host threads.

#![allow(missing_docs, clippy::cast_possible_wrap)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ptx_emulator::{Dimensions, Memory, Module, Options};
use std::hint::black_box;

const PTX: &str = include_str!("../tests/kernels/training.ptx");

fn threads(count: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(count).build().expect("threads can be started")
}

fn upload(memory: &mut Memory, count: usize) -> u64 {
    let bytes: Vec<u8> = (0..count).flat_map(|i| ((i % 7) as f32 - 3.0).to_le_bytes()).collect();
    let address = memory.allocate(bytes.len() as u64).expect("there is memory");
    memory.write(address, &bytes).expect("it was allocated");
    address
}

/// Benchmarks a kernel's launches, with its floating-point operations as elements.
fn launches(
    c: &mut Criterion,
    kernel: &str,
    operations: u64,
    dimensions: Dimensions,
    sizes: &[i32],
    buffers: &[usize],
) {
    let mut memory = Memory::new();
    let module = Module::load(PTX, &mut memory).expect("the kernels are supported");
    let mut arguments: Vec<Vec<u8>> = sizes.iter().map(|size| size.to_le_bytes().to_vec()).collect();
    arguments.extend(buffers.iter().map(|&count| upload(&mut memory, count).to_le_bytes().to_vec()));
    let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
    let mut group = c.benchmark_group(kernel);
    group.throughput(Throughput::Elements(operations)).sample_size(10);
    for count in [1, 2] {
        let pool = threads(count);
        group.bench_function(format!("{count} threads"), |bencher| {
            bencher.iter(|| {
                pool.install(|| {
                    let run = module.launch(&memory, kernel, dimensions, &arguments, &Options::default());
                    black_box(run.expect("the kernel ends"))
                })
            });
        });
    }
}

fn gemm(c: &mut Criterion) {
    let side = 512_usize;
    let dimensions = Dimensions { grid: [8, 8, 1], ..Dimensions::linear(1, 256) };
    launches(c, "gemm", 2 * 512_u64.pow(3), dimensions, &[side as i32; 3], &[side * side; 3]);
}

fn convolution(c: &mut Criterion) {
    let (samples, channels, outputs, side) = (4, 32, 32, 64);
    let dimensions = Dimensions { grid: [16, 4, samples], ..Dimensions::linear(1, 256) };
    let positions = samples as usize * side * side;
    let operations = 2 * 9 * (channels * outputs * positions) as u64;
    let sizes = [channels, outputs, side, side].map(|size| size as i32);
    let buffers = [positions * channels, outputs * channels * 9, outputs, positions * outputs];
    launches(c, "convolution", operations, dimensions, &sizes, &buffers);
}

criterion_group!(benches, gemm, convolution);
criterion_main!(benches);
