//! Training kernels compiled by NVRTC, compared with plain loops in double precision.

use crate::gpu::{Gpu, arguments, assert_all, assert_close, numbers};
use ptx_emulator::{Dimensions, Options};

pub(crate) const PTX: &str = include_str!("../kernels/training.ptx");

/// Kernel with inputs and expected results.
pub(crate) struct Case {
    pub(crate) kernel: &'static str,
    /// Problem sizes: with full blocks, rows and loop iterations, and with a remainder in each
    /// place.
    pub(crate) sizes: &'static [&'static [usize]],
    /// Runs the kernel on fixed inputs and returns the results.
    pub(crate) run: fn(&mut Gpu, &[usize]) -> Run,
    /// Computes the expected results.
    pub(crate) expected: fn(&[usize]) -> Vec<f64>,
    pub(crate) tolerance: f64,
}

pub(crate) const CASES: &[Case] = &[
    Case {
        kernel: "gemm",
        sizes: &[&[70, 75, 50], &[85, 65, 22], &[44, 70, 26], &[63, 68, 46]],
        run: gemm,
        expected: gemm_expected,
        tolerance: 1e-6,
    },
    Case {
        kernel: "convolution",
        sizes: &[
            &[2, 3, 10, 19, 17],
            &[2, 1, 8, 14, 16],
            &[1, 2, 9, 16, 15],
            &[1, 2, 11, 5, 6],
            &[1, 2, 12, 5, 6],
            &[1, 2, 13, 5, 6],
            &[1, 2, 14, 5, 6],
            &[1, 2, 15, 5, 6],
        ],
        run: convolution,
        expected: convolution_expected,
        tolerance: 1e-6,
    },
    Case {
        kernel: "batch_norm_statistics",
        sizes: &[&[2, 3, 45], &[2, 3, 48]],
        run: batch_norm,
        expected: batch_norm_expected,
        tolerance: 1e-6,
    },
    Case {
        kernel: "softmax_cross_entropy",
        sizes: &[&[5, 640], &[3, 100], &[2, 500]],
        run: softmax,
        expected: softmax_expected,
        tolerance: 2e-6,
    },
    Case {
        kernel: "gelu",
        sizes: &[&[1000]],
        run: |gpu, sizes| gelu(gpu, "gelu", sizes),
        expected: gelu_expected,
        tolerance: 1e-6,
    },
    Case {
        kernel: "gelu_tanh",
        sizes: &[&[1000]],
        run: |gpu, sizes| gelu(gpu, "gelu_tanh", sizes),
        expected: gelu_tanh_expected,
        tolerance: 1e-6,
    },
    Case { kernel: "sgd", sizes: &[&[1000]], run: sgd, expected: sgd_expected, tolerance: 1e-6 },
    Case {
        kernel: "max_pool_backward",
        sizes: &[&[3, 15, 15], &[2, 16, 12], &[1, 9, 14]],
        run: max_pool,
        expected: max_pool_expected,
        tolerance: 1e-6,
    },
    Case { kernel: "dropout", sizes: &[&[1000]], run: dropout, expected: dropout_expected, tolerance: 1e-6 },
    Case {
        kernel: "histogram",
        sizes: &[&[5000, 128], &[300, 128], &[3000, 320]],
        run: histogram,
        expected: histogram_expected,
        tolerance: 0.0,
    },
];

type Run = Result<Vec<f32>, ptx_emulator::LaunchError>;

/// Converts a slice to an array of the kernel's sizes.
fn take<const N: usize>(sizes: &[usize]) -> [usize; N] {
    sizes.try_into().unwrap()
}

fn gemm(gpu: &mut Gpu, sizes: &[usize]) -> Run {
    let [m, n, k] = take(sizes);
    let (a, b) = (gpu.upload(&numbers(m * k, 1)), gpu.upload(&numbers(k * n, 2)));
    let c = gpu.zeros::<f32>(m * n);
    let dimensions =
        Dimensions { grid: [n.div_ceil(64) as u32, m.div_ceil(64) as u32, 1], ..Dimensions::linear(1, 256) };
    gpu.launch("gemm", dimensions, &arguments![m as i32, n as i32, k as i32, a, b, c])?;
    Ok(gpu.download(c, m * n))
}

fn gemm_expected(sizes: &[usize]) -> Vec<f64> {
    let [m, n, k] = take(sizes);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let one = |row: usize, column: usize| {
        (0..k).map(|i| f64::from(a[row * k + i]) * f64::from(b[i * n + column])).sum()
    };
    (0..m * n).map(|i| one(i / n, i % n)).collect()
}

fn convolution(gpu: &mut Gpu, sizes: &[usize]) -> Run {
    let [samples, channels, outputs, height, width] = take(sizes);
    let input = gpu.upload(&numbers(samples * channels * height * width, 3));
    let (weights, bias) = (gpu.upload(&numbers(outputs * channels * 9, 4)), gpu.upload(&numbers(outputs, 5)));
    let count = samples * outputs * height * width;
    let output = gpu.zeros::<f32>(count);
    let tiles = width.div_ceil(16) * height.div_ceil(16);
    // One row of blocks more than needed, which has no work.
    let grid = [tiles as u32, outputs as u32 / 8 + 1, samples as u32];
    let sizes = [channels, outputs, height, width].map(|size| size as i32);
    gpu.launch(
        "convolution",
        Dimensions { grid, ..Dimensions::linear(1, 256) },
        &arguments![sizes[0], sizes[1], sizes[2], sizes[3], input, weights, bias, output],
    )?;
    Ok(gpu.download(output, count))
}

fn convolution_expected(sizes: &[usize]) -> Vec<f64> {
    let [samples, channels, outputs, height, width] = take(sizes);
    let input = numbers(samples * channels * height * width, 3);
    let (weights, bias) = (numbers(outputs * channels * 9, 4), numbers(outputs, 5));
    let mut output = Vec::new();
    for (sample, out) in (0..samples).flat_map(|sample| (0..outputs).map(move |out| (sample, out))) {
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let mut sum = f64::from(bias[out]);
            for (channel, tap) in (0..channels).flat_map(|channel| (0..9).map(move |tap| (channel, tap))) {
                let (row, column) = ((y + tap / 3).wrapping_sub(1), (x + tap % 3).wrapping_sub(1));
                if row < height && column < width {
                    let value = input[((sample * channels + channel) * height + row) * width + column];
                    sum += f64::from(value) * f64::from(weights[(out * channels + channel) * 9 + tap]);
                }
            }
            output.push(sum);
        }
    }
    output
}

fn batch_norm(gpu: &mut Gpu, sizes: &[usize]) -> Run {
    let [samples, channels, positions] = take(sizes);
    let values = gpu.upload(&numbers(samples * channels * positions, 6));
    let (mean, variance) = (gpu.zeros::<f32>(channels), gpu.zeros::<f32>(channels));
    gpu.launch(
        "batch_norm_statistics",
        Dimensions::linear(channels as u32, 96),
        &arguments![samples as i32, channels as i32, positions as i32, values, mean, variance],
    )?;
    Ok([gpu.download(mean, channels), gpu.download(variance, channels)].concat())
}

fn batch_norm_expected(sizes: &[usize]) -> Vec<f64> {
    let [samples, channels, positions] = take(sizes);
    let values = numbers(samples * channels * positions, 6);
    let of_channel = |channel: usize| {
        let mine = (0..values.len()).filter(|i| i / positions % channels == channel);
        let mine: Vec<_> = mine.map(|i| f64::from(values[i])).collect();
        let mean = mine.iter().sum::<f64>() / mine.len() as f64;
        (mean, mine.iter().map(|value| value * value).sum::<f64>() / mine.len() as f64 - mean * mean)
    };
    let (mean, variance): (Vec<_>, Vec<_>) = (0..channels).map(of_channel).unzip();
    [mean, variance].concat()
}

fn labels(rows: usize, classes: usize) -> Vec<i32> {
    (0..rows).map(|row| (row * 31 % classes) as i32).collect()
}

fn softmax(gpu: &mut Gpu, sizes: &[usize]) -> Run {
    let [rows, classes] = take(sizes);
    let (logits, labels) = (gpu.upload(&numbers(rows * classes, 7)), gpu.upload(&labels(rows, classes)));
    let (losses, gradient) = (gpu.zeros::<f32>(rows), gpu.zeros::<f32>(rows * classes));
    gpu.launch(
        "softmax_cross_entropy",
        Dimensions::linear(rows as u32, 128),
        &arguments![classes as i32, 0.5_f32, logits, labels, losses, gradient],
    )?;
    Ok([gpu.download(losses, rows), gpu.download(gradient, rows * classes)].concat())
}

fn softmax_expected(sizes: &[usize]) -> Vec<f64> {
    let [rows, classes] = take(sizes);
    let (logits, labels) = (numbers(rows * classes, 7), labels(rows, classes));
    let (mut losses, mut gradient) = (Vec::new(), Vec::new());
    for (row, label) in logits.chunks(classes).zip(labels) {
        let sum: f64 = row.iter().map(|value| f64::from(*value).exp()).sum();
        losses.push(sum.ln() - f64::from(row[label as usize]));
        for (class, value) in row.iter().enumerate() {
            let target = if class == label as usize { 1.0 } else { 0.0 };
            gradient.push(0.5 * (f64::from(*value).exp() / sum - target));
        }
    }
    [losses, gradient].concat()
}

fn gelu(gpu: &mut Gpu, kernel: &str, sizes: &[usize]) -> Run {
    let [elements] = take(sizes);
    let inputs: Vec<_> = numbers(elements, 8).iter().map(|value| value * 6.0).collect();
    let (input, output) = (gpu.upload(&inputs), gpu.zeros::<f32>(elements));
    gpu.launch(kernel, Dimensions::linear(4, 256), &arguments![elements as i32, input, output])?;
    Ok(gpu.download(output, elements))
}

/// Computes the error function by its power series, which converges on these inputs.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn gelu_expected(sizes: &[usize]) -> Vec<f64> {
    let [elements] = take(sizes);
    let inputs = numbers(elements, 8).into_iter().map(|value| f64::from(value * 6.0));
    inputs.map(|x| 0.5 * x * (1.0 + erf(x * f64::from(0.707_106_78_f32)))).collect()
}

fn gelu_tanh_expected(sizes: &[usize]) -> Vec<f64> {
    let [elements] = take(sizes);
    let inputs = numbers(elements, 8).into_iter().map(|value| f64::from(value * 6.0));
    inputs.map(|x| 0.5 * x * (1.0 + (0.797_884_56 * (x + 0.044_715 * x * x * x)).tanh())).collect()
}

fn sgd(gpu: &mut Gpu, sizes: &[usize]) -> Run {
    let [elements] = take(sizes);
    let [parameters, gradient, velocity] = [9, 10, 11].map(|seed| gpu.upload(&numbers(elements, seed)));
    let quarters = elements as i32 / 4;
    let rates = [0.1_f32, 0.9, 0.01];
    gpu.launch(
        "sgd",
        Dimensions::linear(3, 96),
        &arguments![quarters, rates[0], rates[1], rates[2], parameters, gradient, velocity],
    )?;
    Ok([gpu.download(parameters, elements), gpu.download(velocity, elements)].concat())
}

fn sgd_expected(sizes: &[usize]) -> Vec<f64> {
    let [elements] = take(sizes);
    let [parameters, gradient, velocity] = [9, 10, 11].map(|seed| numbers(elements, seed));
    let velocity: Vec<_> = (0..elements)
        .map(|i| 0.9 * f64::from(velocity[i]) + f64::from(gradient[i]) + 0.01 * f64::from(parameters[i]))
        .collect();
    let parameters: Vec<_> = (0..elements).map(|i| f64::from(parameters[i]) - 0.1 * velocity[i]).collect();
    [parameters, velocity].concat()
}

/// Returns inputs whose first value is the maximum of its window.
fn pooled(count: usize) -> Vec<f32> {
    let mut input = numbers(count, 12);
    input[0] = 2.0;
    input
}

fn max_pool(gpu: &mut Gpu, sizes: &[usize]) -> Run {
    let [planes, height, width] = take(sizes);
    let (rows, columns) = (height.div_ceil(2), width.div_ceil(2));
    let input = gpu.upload(&pooled(planes * height * width));
    let gradient = gpu.upload(&numbers(planes * rows * columns, 13));
    let result = gpu.zeros::<f32>(planes * height * width);
    let integers = [planes, height, width, rows, columns].map(|size| size as i32);
    gpu.launch(
        "max_pool_backward",
        Dimensions::linear(4, 64),
        &arguments![integers[0], integers[1], integers[2], integers[3], integers[4], input, gradient, result],
    )?;
    Ok(gpu.download(result, planes * height * width))
}

fn max_pool_expected(sizes: &[usize]) -> Vec<f64> {
    let [planes, height, width] = take(sizes);
    let (rows, columns) = (height.div_ceil(2), width.div_ceil(2));
    let (input, gradient) = (pooled(planes * height * width), numbers(planes * rows * columns, 13));
    let mut result = vec![0.0; input.len()];
    for (i, gradient) in gradient.iter().enumerate() {
        let (plane, y, x) = (i / columns / rows, i / columns % rows * 2, i % columns * 2);
        let window = (0..9)
            .map(|tap| (y + tap / 3, x + tap % 3))
            .filter(|(row, column)| *row < height && *column < width);
        let place = window
            .map(|(row, column)| (plane * height + row) * width + column)
            .reduce(|best, place| if input[place] > input[best] { place } else { best });
        result[place.unwrap()] += f64::from(*gradient);
    }
    result
}

fn dropout(gpu: &mut Gpu, sizes: &[usize]) -> Run {
    let [elements] = take(sizes);
    let (input, output) = (gpu.upload(&numbers(elements, 14)), gpu.zeros::<f32>(elements));
    gpu.launch(
        "dropout",
        Dimensions::linear(8, 128),
        &arguments![elements as i64, 42_u64, 0.75_f32, input, output],
    )?;
    Ok(gpu.download(output, elements))
}

fn dropout_expected(sizes: &[usize]) -> Vec<f64> {
    let [elements] = take(sizes);
    let kept = |i: usize| {
        let z = 42_u64.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 40) as f32 / 16_777_216.0 < 0.75
    };
    let input = numbers(elements, 14).into_iter().enumerate();
    input.map(|(i, value)| if kept(i) { f64::from(value) / 0.75 } else { 0.0 }).collect()
}

fn bytes(count: usize) -> Vec<u8> {
    numbers(count, 15).iter().map(|value| (value * 128.0 + 128.0) as u8).collect()
}

fn histogram(gpu: &mut Gpu, sizes: &[usize]) -> Run {
    let [count, threads] = take(sizes);
    let (values, counts) = (gpu.upload(&bytes(count)), gpu.zeros::<u32>(256));
    gpu.launch(
        "histogram",
        Dimensions::linear(3, threads as u32),
        &arguments![count as i32, values, counts],
    )?;
    Ok(gpu.download::<u32>(counts, 256).into_iter().map(|count| count as f32).collect())
}

fn histogram_expected(sizes: &[usize]) -> Vec<f64> {
    let [count, _] = take(sizes);
    let mut counts = vec![0.0; 256];
    for byte in bytes(count) {
        counts[usize::from(byte)] += 1.0;
    }
    counts
}

/// Iterates over all kernels and sizes.
fn cases() -> impl Iterator<Item = (&'static Case, &'static [usize])> {
    CASES.iter().flat_map(|case| case.sizes.iter().map(move |sizes| (case, *sizes)))
}

#[test]
fn kernels_match_plain_loops() {
    for (case, sizes) in cases() {
        println!("{} {sizes:?}", case.kernel);
        for mut gpu in [Gpu::new(PTX), Gpu::plain(PTX)] {
            let found = (case.run)(&mut gpu, sizes).unwrap_or_else(|error| panic!("{error}"));
            assert_close(&found, &(case.expected)(sizes), case.tolerance);
        }
    }
}

#[test]
fn kernels_pass_all_checks_in_any_order() {
    for (case, sizes) in cases() {
        let in_order = (case.run)(&mut Gpu::new(PTX), sizes).unwrap();
        for seed in 0..8 {
            let mut gpu = Gpu::new(PTX);
            gpu.options = options(seed);
            let found = (case.run)(&mut gpu, sizes).unwrap_or_else(|error| panic!("{error}"));
            if case.kernel == "max_pool_backward" {
                // Atomic additions are done in another order.
                let in_order: Vec<_> = in_order.iter().copied().map(f64::from).collect();
                assert_close(&found, &in_order, 1e-6);
            } else {
                assert_all(&found, &in_order);
            }
        }
    }
}

/// Returns options with all checks, in an order shuffled by `seed`.
pub(crate) fn options(seed: u64) -> Options {
    let mut options = Options::default();
    (options.seed, options.check_races, options.check_uninitialised) = (Some(seed), true, true);
    options
}
