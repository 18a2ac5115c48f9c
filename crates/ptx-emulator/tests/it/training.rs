//! Kernels of training, compiled by NVRTC, against plain loops in double precision.

use crate::gpu::{Gpu, arguments, assert_all, assert_close, numbers};
use ptx_emulator::{Dimensions, Options};

pub(crate) const PTX: &str = include_str!("../kernels/training.ptx");

/// A run of a kernel: the name, and what it does with a device to give its results.
pub(crate) struct Case {
    pub(crate) kernel: &'static str,
    /// Runs the kernel on inputs that do not change, and gives the results.
    pub(crate) run: fn(&mut Gpu) -> Result<Vec<f32>, ptx_emulator::LaunchError>,
    /// What the results should be.
    pub(crate) expected: fn() -> Vec<f64>,
    pub(crate) tolerance: f64,
}

pub(crate) const CASES: &[Case] = &[
    Case { kernel: "gemm", run: gemm, expected: gemm_expected, tolerance: 1e-6 },
    Case { kernel: "convolution", run: convolution, expected: convolution_expected, tolerance: 1e-6 },
    Case { kernel: "batch_norm_statistics", run: batch_norm, expected: batch_norm_expected, tolerance: 1e-6 },
    Case { kernel: "softmax_cross_entropy", run: softmax, expected: softmax_expected, tolerance: 2e-6 },
    Case { kernel: "gelu", run: |gpu| gelu(gpu, "gelu"), expected: gelu_expected, tolerance: 1e-6 },
    Case {
        kernel: "gelu_tanh",
        run: |gpu| gelu(gpu, "gelu_tanh"),
        expected: gelu_tanh_expected,
        tolerance: 1e-6,
    },
    Case { kernel: "sgd", run: sgd, expected: sgd_expected, tolerance: 1e-6 },
    Case { kernel: "max_pool_backward", run: max_pool, expected: max_pool_expected, tolerance: 1e-6 },
    Case { kernel: "dropout", run: dropout, expected: dropout_expected, tolerance: 1e-6 },
    Case { kernel: "histogram", run: histogram, expected: histogram_expected, tolerance: 0.0 },
];

type Run = Result<Vec<f32>, ptx_emulator::LaunchError>;

const M: usize = 70;
const N: usize = 75;
const K: usize = 50;

fn gemm(gpu: &mut Gpu) -> Run {
    let (a, b) = (gpu.upload(&numbers(M * K, 1)), gpu.upload(&numbers(K * N, 2)));
    let c = gpu.zeros::<f32>(M * N);
    let dimensions =
        Dimensions { grid: [N.div_ceil(64) as u32, M.div_ceil(64) as u32, 1], ..Dimensions::linear(1, 256) };
    gpu.launch("gemm", dimensions, &arguments![M as i32, N as i32, K as i32, a, b, c])?;
    Ok(gpu.download(c, M * N))
}

fn gemm_expected() -> Vec<f64> {
    let (a, b) = (numbers(M * K, 1), numbers(K * N, 2));
    let one = |row: usize, column: usize| {
        (0..K).map(|k| f64::from(a[row * K + k]) * f64::from(b[k * N + column])).sum()
    };
    (0..M * N).map(|i| one(i / N, i % N)).collect()
}

const SAMPLES: usize = 2;
const CHANNELS: usize = 3;
const OUTPUTS: usize = 10;
const HEIGHT: usize = 19;
const WIDTH: usize = 17;

fn convolution(gpu: &mut Gpu) -> Run {
    let input = gpu.upload(&numbers(SAMPLES * CHANNELS * HEIGHT * WIDTH, 3));
    let (weights, bias) = (gpu.upload(&numbers(OUTPUTS * CHANNELS * 9, 4)), gpu.upload(&numbers(OUTPUTS, 5)));
    let count = SAMPLES * OUTPUTS * HEIGHT * WIDTH;
    let output = gpu.zeros::<f32>(count);
    let tiles = WIDTH.div_ceil(16) * HEIGHT.div_ceil(16);
    let grid = [tiles as u32, OUTPUTS.div_ceil(8) as u32, SAMPLES as u32];
    let sizes = [CHANNELS, OUTPUTS, HEIGHT, WIDTH].map(|size| size as i32);
    gpu.launch(
        "convolution",
        Dimensions { grid, ..Dimensions::linear(1, 256) },
        &arguments![sizes[0], sizes[1], sizes[2], sizes[3], input, weights, bias, output],
    )?;
    Ok(gpu.download(output, count))
}

fn convolution_expected() -> Vec<f64> {
    let input = numbers(SAMPLES * CHANNELS * HEIGHT * WIDTH, 3);
    let (weights, bias) = (numbers(OUTPUTS * CHANNELS * 9, 4), numbers(OUTPUTS, 5));
    let mut output = Vec::new();
    for (sample, out) in (0..SAMPLES).flat_map(|sample| (0..OUTPUTS).map(move |out| (sample, out))) {
        for (y, x) in (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (y, x))) {
            let mut sum = f64::from(bias[out]);
            for (channel, tap) in (0..CHANNELS).flat_map(|channel| (0..9).map(move |tap| (channel, tap))) {
                let (row, column) = ((y + tap / 3).wrapping_sub(1), (x + tap % 3).wrapping_sub(1));
                if row < HEIGHT && column < WIDTH {
                    let value = input[((sample * CHANNELS + channel) * HEIGHT + row) * WIDTH + column];
                    sum += f64::from(value) * f64::from(weights[(out * CHANNELS + channel) * 9 + tap]);
                }
            }
            output.push(sum);
        }
    }
    output
}

const POSITIONS: usize = 45;

fn batch_norm(gpu: &mut Gpu) -> Run {
    let values = gpu.upload(&numbers(SAMPLES * CHANNELS * POSITIONS, 6));
    let (mean, variance) = (gpu.zeros::<f32>(CHANNELS), gpu.zeros::<f32>(CHANNELS));
    gpu.launch(
        "batch_norm_statistics",
        Dimensions::linear(CHANNELS as u32, 96),
        &arguments![SAMPLES as i32, CHANNELS as i32, POSITIONS as i32, values, mean, variance],
    )?;
    Ok([gpu.download(mean, CHANNELS), gpu.download(variance, CHANNELS)].concat())
}

fn batch_norm_expected() -> Vec<f64> {
    let values = numbers(SAMPLES * CHANNELS * POSITIONS, 6);
    let of_channel = |channel: usize| {
        let mine = (0..values.len()).filter(|i| i / POSITIONS % CHANNELS == channel);
        let mine: Vec<_> = mine.map(|i| f64::from(values[i])).collect();
        let mean = mine.iter().sum::<f64>() / mine.len() as f64;
        (mean, mine.iter().map(|value| value * value).sum::<f64>() / mine.len() as f64 - mean * mean)
    };
    let (mean, variance): (Vec<_>, Vec<_>) = (0..CHANNELS).map(of_channel).unzip();
    [mean, variance].concat()
}

const ROWS: usize = 5;
const CLASSES: usize = 640;

fn labels() -> Vec<i32> {
    (0..ROWS as i32).map(|row| row * 31 % CLASSES as i32).collect()
}

fn softmax(gpu: &mut Gpu) -> Run {
    let (logits, labels) = (gpu.upload(&numbers(ROWS * CLASSES, 7)), gpu.upload(&labels()));
    let (losses, gradient) = (gpu.zeros::<f32>(ROWS), gpu.zeros::<f32>(ROWS * CLASSES));
    gpu.launch(
        "softmax_cross_entropy",
        Dimensions::linear(ROWS as u32, 128),
        &arguments![CLASSES as i32, 0.5_f32, logits, labels, losses, gradient],
    )?;
    Ok([gpu.download(losses, ROWS), gpu.download(gradient, ROWS * CLASSES)].concat())
}

fn softmax_expected() -> Vec<f64> {
    let (logits, labels) = (numbers(ROWS * CLASSES, 7), labels());
    let (mut losses, mut gradient) = (Vec::new(), Vec::new());
    for (row, label) in logits.chunks(CLASSES).zip(labels) {
        let sum: f64 = row.iter().map(|value| f64::from(*value).exp()).sum();
        losses.push(sum.ln() - f64::from(row[label as usize]));
        for (class, value) in row.iter().enumerate() {
            let target = if class == label as usize { 1.0 } else { 0.0 };
            gradient.push(0.5 * (f64::from(*value).exp() / sum - target));
        }
    }
    [losses, gradient].concat()
}

const ELEMENTS: usize = 1000;

fn gelu(gpu: &mut Gpu, kernel: &str) -> Run {
    let inputs: Vec<_> = numbers(ELEMENTS, 8).iter().map(|value| value * 6.0).collect();
    let (input, output) = (gpu.upload(&inputs), gpu.zeros::<f32>(ELEMENTS));
    gpu.launch(kernel, Dimensions::linear(4, 256), &arguments![ELEMENTS as i32, input, output])?;
    Ok(gpu.download(output, ELEMENTS))
}

/// By the integral of the series, which converges on these inputs.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn gelu_expected() -> Vec<f64> {
    let inputs = numbers(ELEMENTS, 8).into_iter().map(|value| f64::from(value * 6.0));
    inputs.map(|x| 0.5 * x * (1.0 + erf(x * f64::from(0.707_106_78_f32)))).collect()
}

fn gelu_tanh_expected() -> Vec<f64> {
    let inputs = numbers(ELEMENTS, 8).into_iter().map(|value| f64::from(value * 6.0));
    inputs.map(|x| 0.5 * x * (1.0 + (0.797_884_56 * (x + 0.044_715 * x * x * x)).tanh())).collect()
}

fn sgd(gpu: &mut Gpu) -> Run {
    let [parameters, gradient, velocity] = [9, 10, 11].map(|seed| gpu.upload(&numbers(ELEMENTS, seed)));
    let quarters = ELEMENTS as i32 / 4;
    let rates = [0.1_f32, 0.9, 0.01];
    gpu.launch(
        "sgd",
        Dimensions::linear(3, 96),
        &arguments![quarters, rates[0], rates[1], rates[2], parameters, gradient, velocity],
    )?;
    Ok([gpu.download(parameters, ELEMENTS), gpu.download(velocity, ELEMENTS)].concat())
}

fn sgd_expected() -> Vec<f64> {
    let [parameters, gradient, velocity] = [9, 10, 11].map(|seed| numbers(ELEMENTS, seed));
    let velocity: Vec<_> = (0..ELEMENTS)
        .map(|i| 0.9 * f64::from(velocity[i]) + f64::from(gradient[i]) + 0.01 * f64::from(parameters[i]))
        .collect();
    let parameters: Vec<_> = (0..ELEMENTS).map(|i| f64::from(parameters[i]) - 0.1 * velocity[i]).collect();
    [parameters, velocity].concat()
}

const PLANES: usize = 3;
const SIDE: usize = 15;
const POOLED: usize = 8;

fn max_pool(gpu: &mut Gpu) -> Run {
    let input = gpu.upload(&numbers(PLANES * SIDE * SIDE, 12));
    let gradient = gpu.upload(&numbers(PLANES * POOLED * POOLED, 13));
    let result = gpu.zeros::<f32>(PLANES * SIDE * SIDE);
    let (planes, side, pooled) = (PLANES as i32, SIDE as i32, POOLED as i32);
    gpu.launch(
        "max_pool_backward",
        Dimensions::linear(4, 64),
        &arguments![planes, side, side, pooled, pooled, input, gradient, result],
    )?;
    Ok(gpu.download(result, PLANES * SIDE * SIDE))
}

fn max_pool_expected() -> Vec<f64> {
    let (input, gradient) = (numbers(PLANES * SIDE * SIDE, 12), numbers(PLANES * POOLED * POOLED, 13));
    let mut result = vec![0.0; input.len()];
    for (i, gradient) in gradient.iter().enumerate() {
        let (plane, y, x) = (i / POOLED / POOLED, i / POOLED % POOLED * 2, i % POOLED * 2);
        let window = (0..9)
            .map(|tap| (y + tap / 3, x + tap % 3))
            .filter(|(row, column)| *row < SIDE && *column < SIDE);
        let place = window
            .map(|(row, column)| (plane * SIDE + row) * SIDE + column)
            .reduce(|best, place| if input[place] > input[best] { place } else { best });
        result[place.unwrap()] += f64::from(*gradient);
    }
    result
}

fn dropout(gpu: &mut Gpu) -> Run {
    let (input, output) = (gpu.upload(&numbers(ELEMENTS, 14)), gpu.zeros::<f32>(ELEMENTS));
    gpu.launch(
        "dropout",
        Dimensions::linear(8, 128),
        &arguments![ELEMENTS as i64, 42_u64, 0.75_f32, input, output],
    )?;
    Ok(gpu.download(output, ELEMENTS))
}

fn dropout_expected() -> Vec<f64> {
    let kept = |i: usize| {
        let z = 42_u64.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 40) as f32 / 16_777_216.0 < 0.75
    };
    let input = numbers(ELEMENTS, 14).into_iter().enumerate();
    input.map(|(i, value)| if kept(i) { f64::from(value) / 0.75 } else { 0.0 }).collect()
}

fn bytes() -> Vec<u8> {
    numbers(5000, 15).iter().map(|value| (value * 128.0 + 128.0) as u8).collect()
}

fn histogram(gpu: &mut Gpu) -> Run {
    let (values, counts) = (gpu.upload(&bytes()), gpu.zeros::<u32>(256));
    gpu.launch("histogram", Dimensions::linear(3, 128), &arguments![5000_i32, values, counts])?;
    Ok(gpu.download::<u32>(counts, 256).into_iter().map(|count| count as f32).collect())
}

fn histogram_expected() -> Vec<f64> {
    let mut counts = vec![0.0; 256];
    for byte in bytes() {
        counts[usize::from(byte)] += 1.0;
    }
    counts
}

#[test]
fn kernels_give_what_plain_loops_give() {
    for case in CASES {
        println!("{}", case.kernel);
        for mut gpu in [Gpu::new(PTX), Gpu::plain(PTX)] {
            let found = (case.run)(&mut gpu).unwrap_or_else(|error| panic!("{error}"));
            assert_close(&found, &(case.expected)(), case.tolerance);
        }
    }
}

#[test]
fn every_check_is_passed_and_no_order_changes_a_result() {
    for case in CASES {
        let in_order = (case.run)(&mut Gpu::new(PTX)).unwrap();
        for seed in 0..8 {
            let mut gpu = Gpu::new(PTX);
            gpu.options = options(seed);
            let found = (case.run)(&mut gpu).unwrap_or_else(|error| panic!("{error}"));
            if case.kernel == "max_pool_backward" {
                // Sums of atomics are in another order.
                let in_order: Vec<_> = in_order.iter().copied().map(f64::from).collect();
                assert_close(&found, &in_order, 1e-6);
            } else {
                assert_all(&found, &in_order);
            }
        }
    }
}

/// Shuffled by `seed`, with all checks.
pub(crate) fn options(seed: u64) -> Options {
    let mut options = Options::default();
    (options.seed, options.races, options.uninitialised) = (Some(seed), true, true);
    options
}
