//! Third-party kernels compiled by third parties: CUB by NVRTC, Numba and Triton.
//!
//! `tests/compilers/compile.sh FOLDER` compiles them to PTX. The tests read the folder named by the
//! environment variable `PTX_COMPILERS`.

use crate::gpu::{Gpu, Value, arguments, assert_all, assert_close, numbers};
use ptx_emulator::{Dimensions, LoadError, Memory, Module};
use std::path::PathBuf;

/// Returns the PTX in `FOLDER/name`, if it exists.
fn compiled(name: &str) -> Option<String> {
    let path = std::env::var_os("PTX_COMPILERS").map(|folder| PathBuf::from(folder).join(name));
    let text = path.and_then(|path| std::fs::read_to_string(path).ok());
    if text.is_none() {
        println!(
            "SKIPPED: {name}: PTX_COMPILERS does not name a folder with it, see tests/compilers/compile.sh"
        );
    }
    text
}

/// Returns a device with shuffled order and all checks. The kernels have no races.
fn device(ptx: &str, seed: u64) -> Gpu {
    let mut gpu = Gpu::new(ptx);
    gpu.options = crate::training::options(seed);
    gpu
}

const BLOCKS: usize = 3;
const TILE: usize = 512;

fn integers(count: usize, seed: u32) -> Vec<i32> {
    numbers(count, seed).iter().map(|value| (value * 1000.0) as i32).collect()
}

/// Runs a CUB kernel on `input` and returns its `out` results.
fn cub<T: Value, U: Value + Default>(gpu: &mut Gpu, kernel: &str, input: &[T], out: usize) -> Vec<U> {
    let (input, output) = (gpu.upload(input), gpu.zeros::<U>(out));
    gpu.run(kernel, Dimensions::linear(BLOCKS as u32, 128), &arguments![input, output]);
    gpu.download(output, out)
}

#[test]
fn cub_reductions_and_scans_match_reference() {
    let Some(ptx) = compiled("cub.ptx") else { return };
    let mut gpu = device(&ptx, 1);
    let floats = numbers(BLOCKS * 128, 1);
    let sums: Vec<f64> = floats.chunks(128).map(|block| block.iter().copied().map(f64::from).sum()).collect();
    assert_close(&cub(&mut gpu, "block_sum_f32", &floats, BLOCKS), &sums, 1e-6);
    let values = integers(BLOCKS * 128, 2);
    let sums: Vec<_> = values.chunks(128).map(|block| block.iter().sum::<i32>()).collect();
    assert_all(&cub::<_, i32>(&mut gpu, "block_sum_u32", &values, BLOCKS), &sums);
    let largest: Vec<_> = values.chunks(32).map(|warp| *warp.iter().max().unwrap()).collect();
    assert_all(&cub::<_, i32>(&mut gpu, "warp_max_s32", &values, BLOCKS * 4), &largest);
    let values = integers(BLOCKS * TILE, 3);
    let scan = |block: &[i32]| -> Vec<i32> {
        block.iter().scan(0, |sum, value| Some(std::mem::replace(sum, *sum + value))).collect()
    };
    let expected: Vec<_> = values.chunks(TILE).flat_map(scan).collect();
    assert_all(&cub::<_, i32>(&mut gpu, "exclusive_sum_s32", &values, BLOCKS * TILE), &expected);
    let doubles: Vec<f64> = values.iter().copied().map(f64::from).collect();
    let scan = |block: &[f64]| -> Vec<f64> {
        block
            .iter()
            .scan(0.0, |sum, value| {
                *sum += value;
                Some(*sum)
            })
            .collect()
    };
    let expected: Vec<_> = doubles.chunks(TILE).flat_map(scan).collect();
    assert_all(&cub::<_, f64>(&mut gpu, "inclusive_sum_f64", &doubles, BLOCKS * TILE), &expected);
}

/// Returns the values with each block's tile sorted.
fn sorted_tiles<T: Copy + Ord>(values: &[T]) -> Vec<T> {
    let mut sorted = values.to_vec();
    sorted.chunks_mut(TILE).for_each(<[T]>::sort_unstable);
    sorted
}

#[test]
fn cub_sorts_and_histograms_match_reference() {
    let Some(ptx) = compiled("cub.ptx") else { return };
    for seed in 0..3 {
        let mut gpu = device(&ptx, seed);
        let values = integers(BLOCKS * TILE, 4);
        // The kernel reads one key past the last one without using it.
        gpu.options.check_uninitialised = false;
        assert_all(
            &cub::<_, i32>(&mut gpu, "merge_sort_s32", &values, BLOCKS * TILE),
            &sorted_tiles(&values),
        );
        gpu.options.check_uninitialised = true;
        let words: Vec<u32> = values.iter().map(|value| *value as u32).collect();
        assert_all(&cub::<_, u32>(&mut gpu, "radix_sort_u32", &words, BLOCKS * TILE), &sorted_tiles(&words));
        let keys = numbers(BLOCKS * TILE, 5);
        let places: Vec<i32> = (0..keys.len() as i32).collect();
        let [keys_at, places_at] = [gpu.upload(&keys), gpu.upload(&places)];
        let [sorted_at, order_at] = [gpu.zeros::<f32>(keys.len()), gpu.zeros::<i32>(keys.len())];
        gpu.run(
            "radix_sort_pairs_f32",
            Dimensions::linear(BLOCKS as u32, 128),
            &arguments![keys_at, places_at, sorted_at, order_at],
        );
        let (sorted, order) =
            (gpu.download::<f32>(sorted_at, keys.len()), gpu.download::<i32>(order_at, keys.len()));
        assert!(sorted.chunks(TILE).all(|block| block.is_sorted_by(|a, b| a >= b)));
        assert_all(&order.iter().map(|place| keys[*place as usize]).collect::<Vec<_>>(), &sorted);
        let bytes: Vec<u8> =
            numbers(BLOCKS * TILE, 6).iter().map(|value| (value * 100.0 + 100.0) as u8).collect();
        let mut counts = vec![0_u32; 256];
        for byte in &bytes {
            counts[usize::from(*byte)] += 1;
        }
        for kernel in ["histogram_atomic", "histogram_sort"] {
            assert_all(&cub::<_, u32>(&mut gpu, kernel, &bytes, 256), &counts);
        }
    }
}

/// Returns the arguments of a Numba array: two unused pointers, number of elements, element size,
/// address, shape and strides.
fn array(address: u64, element: usize, shape: &[usize]) -> Vec<Vec<u8>> {
    let mut strides = vec![element; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let numbers = [0, 0, shape.iter().product(), element].map(|number| number as u64);
    let sizes = shape.iter().chain(&strides).map(|number| *number as u64);
    numbers.into_iter().chain([address]).chain(sizes).map(Value::bytes).collect()
}

/// Returns the name of the only kernel in PTX of Numba or Triton.
fn only_kernel(gpu: &Gpu) -> String {
    gpu.module.kernels().next().unwrap().to_owned()
}

#[test]
fn numba_kernels_match_reference() {
    let Some(ptx) = compiled("saxpy.ptx") else { return };
    let mut gpu = device(&ptx, 1);
    let (x, y) = (numbers(1000, 1), numbers(1000, 2));
    let [x_at, y_at] = [gpu.upload(&x), gpu.upload(&y)];
    let run = |gpu: &Gpu, dimensions: Dimensions, parts: &[Vec<Vec<u8>>]| {
        gpu.run(&only_kernel(gpu), dimensions, &parts.concat());
    };
    run(
        &gpu,
        Dimensions::linear(4, 256),
        &[arguments![2.5_f32].to_vec(), array(x_at, 4, &[1000]), array(y_at, 4, &[1000])],
    );
    let expected: Vec<_> = x.iter().zip(&y).map(|(x, y)| 2.5_f64 * f64::from(*x) + f64::from(*y)).collect();
    assert_close(&gpu.download(y_at, 1000), &expected, 1e-6);

    let mut gpu = device(&compiled("matrix_product.ptx").unwrap(), 2);
    let (a, b) = (numbers(30 * 40, 3), numbers(40 * 35, 4));
    let [a_at, b_at, c_at] = [gpu.upload(&a), gpu.upload(&b), gpu.zeros::<f32>(30 * 35)];
    let dimensions = Dimensions { grid: [2, 3, 1], block: [16, 16, 1], dynamic_shared_bytes: 0 };
    run(&gpu, dimensions, &[array(a_at, 4, &[30, 40]), array(b_at, 4, &[40, 35]), array(c_at, 4, &[30, 35])]);
    let one = |i: usize| (0..40).map(|k| f64::from(a[i / 35 * 40 + k]) * f64::from(b[k * 35 + i % 35])).sum();
    assert_close(&gpu.download(c_at, 30 * 35), &(0..30 * 35).map(one).collect::<Vec<_>>(), 1e-6);

    let mut gpu = device(&compiled("block_sum.ptx").unwrap(), 3);
    let [x_at, sums] = [gpu.upload(&x), gpu.zeros::<f32>(8)];
    run(&gpu, Dimensions::linear(8, 128), &[array(x_at, 4, &[1000]), array(sums, 4, &[8])]);
    let expected: Vec<_> = x.chunks(128).map(|block| block.iter().copied().map(f64::from).sum()).collect();
    assert_close(&gpu.download(sums, 8), &expected, 1e-6);

    let mut gpu = device(&compiled("histogram.ptx").unwrap(), 4);
    let values: Vec<i32> = integers(1000, 5).into_iter().map(i32::abs).collect();
    let [values_at, counts_at] = [gpu.upload(&values), gpu.zeros::<i32>(10)];
    run(&gpu, Dimensions::linear(8, 128), &[array(values_at, 4, &[1000]), array(counts_at, 4, &[10])]);
    let expected: Vec<_> =
        (0..10).map(|bin| values.iter().filter(|value| **value % 10 == bin).count() as i32).collect();
    assert_all(&gpu.download(counts_at, 10), &expected);

    let mut gpu = device(&compiled("ballots.ptx").unwrap(), 5);
    let values = integers(256, 6);
    let [values_at, masks_at] = [gpu.upload(&values), gpu.zeros::<u32>(8)];
    run(&gpu, Dimensions::linear(2, 128), &[array(values_at, 4, &[256]), array(masks_at, 4, &[8])]);
    let mask = |warp: &[i32]| {
        warp.iter().enumerate().fold(0, |mask, (lane, value)| mask | u32::from(*value > 0) << lane)
    };
    assert_all(&gpu.download(masks_at, 8), &values.chunks(32).map(mask).collect::<Vec<_>>());
}

#[test]
fn triton_kernels_match_reference() {
    let Some(ptx) = compiled("vector_add.ptx") else { return };
    // All kernels have 128 threads. They are launched with sufficient shared memory and two
    // additional null pointers.
    let run = |gpu: &Gpu, blocks: usize, given: &[Vec<u8>]| {
        let dimensions =
            Dimensions { dynamic_shared_bytes: 16 << 10, ..Dimensions::linear(blocks as u32, 128) };
        gpu.run(&only_kernel(gpu), dimensions, &[given, &arguments![0_u64, 0_u64]].concat());
    };
    let mut gpu = device(&ptx, 1);
    let (x, y) = (numbers(1300, 1), numbers(1300, 2));
    let [x_at, y_at, out] = [gpu.upload(&x), gpu.upload(&y), gpu.zeros::<f32>(1300)];
    run(&gpu, 3, &arguments![x_at, y_at, out, 1300_i32]);
    assert_all(&gpu.download(out, 1300), &x.iter().zip(&y).map(|(x, y)| x + y).collect::<Vec<_>>());

    let mut gpu = device(&compiled("softmax.ptx").unwrap(), 2);
    let (columns, rows) = (260, 5);
    let [x_at, out] = [gpu.upload(&x), gpu.zeros::<f32>(1300)];
    run(&gpu, rows, &arguments![out, x_at, columns as i32]);
    let softmax = |row: &[f32]| -> Vec<f64> {
        let powers: Vec<_> = row.iter().map(|value| f64::from(*value).exp()).collect();
        powers.iter().map(|power| power / powers.iter().sum::<f64>()).collect()
    };
    assert_close(&gpu.download(out, 1300), &x.chunks(columns).flat_map(softmax).collect::<Vec<_>>(), 1e-5);

    let mut gpu = device(&compiled("column_sums.ptx").unwrap(), 3);
    let (columns, rows) = (50, 26);
    let [x_at, out] = [gpu.upload(&x), gpu.zeros::<f32>(columns)];
    run(&gpu, 2, &arguments![x_at, out, rows, columns as i32]);
    let sums =
        (0..columns).map(|column| x.iter().skip(column).step_by(columns).copied().map(f64::from).sum());
    assert_close(&gpu.download(out, columns), &sums.collect::<Vec<_>>(), 1e-6);

    let mut gpu = device(&compiled("running_sum.ptx").unwrap(), 4);
    let x = numbers(2048, 7);
    let [x_at, out] = [gpu.upload(&x), gpu.zeros::<f32>(2048)];
    run(&gpu, 2, &arguments![x_at, out]);
    let scan = |block: &[f32]| -> Vec<f64> {
        block
            .iter()
            .scan(0.0, |sum, value| {
                *sum += f64::from(*value);
                Some(*sum)
            })
            .collect()
    };
    assert_close(&gpu.download(out, 2048), &x.chunks(1024).flat_map(scan).collect::<Vec<_>>(), 1e-6);

    let tensor_cores = compiled("matrix_product_tensor_cores.ptx").unwrap();
    let error = Module::load(&tensor_cores, &mut Memory::new()).err().unwrap();
    let LoadError::Unsupported { form, .. } = error else { panic!("{error}") };
    assert!(["ldmatrix", "mma", "cp.async"].iter().any(|name| form.starts_with(name)), "{form}");
}
