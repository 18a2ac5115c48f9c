//! Orders of the elements of images on emulated GPUs: which one a job has, and that files do not
//! depend on it.

use std::path::Path;
use std::time::Duration;

use cuda_emulator::{Emulator, Setting};
use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::runtime::ImageOrder;
use deeppool::train::{
    BackgroundConfig, CheckpointConfig, CheckpointEvery, Length, TrainConfig, TrainReport, Weights,
    evaluate_on_gpus, train_on_gpus,
};
use layer_engine::{ImageLayout, KernelChoice, Precision};
use layer_graph::{Conv2d, LayerGraph, LayerKind, Shape, zoo};
use safetensors::SafeTensors;
use tempfile::TempDir;

use crate::emulated::on_emulated_gpus;

const BATCH: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(600);
const LAYOUTS: [ImageLayout; 2] = [ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast];

fn training_of(net: &LayerGraph, gpus: usize, precision: Precision) -> LoweredTraining<'_> {
    let placement = Placement::first_ranks(net, gpus, &vec![gpus; net.layers().count() - 1]).unwrap();
    LoweredTraining::new(net, placement, BATCH, LowerOptions::default().with_precision(precision))
}

fn checkpoints(folder: &Path) -> CheckpointConfig {
    CheckpointConfig::new(folder).with_every(CheckpointEvery::Iterations(4)).with_resume(true)
}

/// Returns the tensors of the newest checkpoint of a folder, by name.
fn tensors(folder: &Path, iteration: u64) -> Vec<(String, Vec<f32>)> {
    let file = folder.join(format!("iteration-{iteration:010}/rank-0.safetensors"));
    let bytes = std::fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let mut all: Vec<_> = file
        .iter()
        .map(|(name, view)| (name.to_owned(), view.data().chunks_exact(4).map(value).collect()))
        .collect();
    all.sort_unstable_by(|(a, _): &(String, Vec<f32>), (b, _)| a.cmp(b));
    all
}

/// With a learning rate so small that it changes no parameter, not even biases of zero, the ones
/// in checkpoints are equal, and velocities agree by elements.
#[test]
fn checkpoints_do_not_depend_on_the_order() {
    on_emulated_gpus("gpu_image_order::checkpoints_do_not_depend_on_the_order", 2, |emulator| {
        let net = zoo::model("digits-cnn").unwrap();
        let data = Dataset::synthetic_for(&net, 40, 0).unwrap();
        for (precision, gpus, limit) in [(Precision::Tf32, 1, 1e-2_f32), (Precision::Bf16, 2, 5e-2)] {
            let training = training_of(&net, gpus, precision);
            let folders = LAYOUTS.map(|_| TempDir::new().unwrap());
            let run = |layout, folder: &TempDir, iterations, learning_rate| {
                let config = TrainConfig::new(&data, &training)
                    .with_length(Length::Iterations(iterations))
                    .with_learning_rate(learning_rate)
                    .with_checkpoint(Some(checkpoints(folder.path())))
                    .with_image_layout(Some(layout));
                train_on_gpus(&config, TIMEOUT, &|_| {}).unwrap()
            };
            for (layout, folder) in LAYOUTS.into_iter().zip(&folders) {
                run(layout, folder, 4, 1e-60);
            }
            let [first, last] = folders.each_ref().map(|folder| tensors(folder.path(), 4));
            assert!(first.len() > 10 && first.len() == last.len());
            let mut velocities = 0;
            for ((name, first), (other, last)) in first.iter().zip(&last) {
                assert_eq!(name, other);
                if name.ends_with(".velocity") {
                    let norm =
                        |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
                    let difference = norm(&mut first.iter().zip(last).map(|(a, b)| a - b));
                    let size = norm(&mut first.iter().copied());
                    assert!(difference <= limit * size, "{name}, {precision:?}: {difference} of {size}");
                    assert!(size > 0.0);
                    velocities += 1;
                } else {
                    assert_eq!(first, last, "{name}");
                }
            }
            assert!(velocities >= 6);
            // Each run goes on in the other order.
            let [last, first] = folders.each_ref();
            let resumed = [
                run(ImageLayout::ChannelsFirst, first, 8, 0.03),
                run(ImageLayout::ChannelsLast, last, 8, 0.03),
            ];
            for TrainReport { first_iteration, losses, .. } in &resumed {
                assert_eq!((*first_iteration, losses.len()), (4, 4));
            }
            for (a, b) in resumed[0].losses.iter().zip(&resumed[1].losses) {
                assert!((a - b).abs() <= f64::from(limit) * b.abs(), "{precision:?}: {a} and {b}");
            }
            let weights = Weights::of_checkpoint(first.path(), |_| {}).unwrap();
            let alone = training_of(&net, 1, precision);
            let accuracies = LAYOUTS.map(|layout| {
                let config = TrainConfig::new(&data, &alone);
                let config = config.with_initial(Some(&weights)).with_image_layout(Some(layout));
                evaluate_on_gpus(&config, TIMEOUT).unwrap().score()
            });
            assert!((accuracies[0] - accuracies[1]).abs() <= 0.01, "{accuracies:?}");
        }
        assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
        assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());
    });
}

/// Sets the virtual durations by which the orders differ: flattening is a copy with channels first,
/// and reorders elements with channels last.
fn set_times(emulator: &Emulator, first: Duration, last: Duration) {
    emulator.set_kernel_time("copy_rows", first);
    emulator.set_kernel_time("reorder_rows", last);
}

/// Returns the order that a job on the given number of GPUs takes, whose background job runs on all
/// of them.
fn chosen_order(gpus: usize, precision: Precision) -> ImageOrder {
    let net = zoo::model("digits-cnn").unwrap();
    let data = Dataset::digits().unwrap();
    let training = training_of(&net, gpus, precision);
    let config = TrainConfig::new(&data, &training)
        .with_length(Length::Iterations(1))
        .with_background([BackgroundConfig::new(&net, &data, 2)])
        .with_kernels(Some(KernelChoice::Fastest));
    train_on_gpus(&config, TIMEOUT, &|_| {}).unwrap().image_order.unwrap()
}

#[test]
fn the_fastest_order_is_chosen_for_each_precision() {
    let name = "gpu_image_order::the_fastest_order_is_chosen_for_each_precision";
    on_emulated_gpus(name, 1, |emulator| {
        emulator.set(Setting::KernelNs, 1_000_000);
        let [short, long] = [1, 10].map(Duration::from_millis);
        set_times(emulator, long, short);
        let last = chosen_order(1, Precision::Bf16);
        let [of_first, of_last] = last.times.unwrap();
        assert!(last.layout == ImageLayout::ChannelsLast && of_first > of_last, "{last:?}");
        // The choice is kept, and each precision has its own.
        set_times(emulator, short, long);
        assert_eq!(chosen_order(1, Precision::Bf16), last);
        let first = chosen_order(1, Precision::Tf32);
        let [of_first, of_last] = first.times.unwrap();
        assert!(first.layout == ImageLayout::ChannelsFirst && of_first < of_last, "{first:?}");
    });
}

#[test]
fn ranks_that_time_both_orders_take_the_one_of_the_first_rank() {
    let name = "gpu_image_order::ranks_that_time_both_orders_take_the_one_of_the_first_rank";
    on_emulated_gpus(name, 2, |emulator| {
        emulator.set(Setting::KernelNs, 1_000_000);
        // Emulated GPUs have one clock: times of one include work of the other, and differ from run
        // to run. Which order is faster is therefore not known here.
        let order = chosen_order(2, Precision::Bf16);
        assert!(order.times.is_some(), "{order:?}");
        assert_eq!(chosen_order(2, Precision::Bf16), order);
    });
}

#[test]
fn a_layer_without_kernels_with_channels_last_keeps_channels_first() {
    let name = "gpu_image_order::a_layer_without_kernels_with_channels_last_keeps_channels_first";
    on_emulated_gpus(name, 1, |_| {
        let mut net = LayerGraph::new("softmax-of-images", Shape::image(2, 4, 4)).unwrap();
        let conv = net.add("conv", Conv2d::new(8, 3).padding(1), [net.input()]).unwrap();
        let softmax = net.add("softmax", LayerKind::Softmax, [conv]).unwrap();
        let flat = net.add("flat", LayerKind::Flatten, [softmax]).unwrap();
        let head = net.add("head", layer_graph::Linear::new(3), [flat]).unwrap();
        net.add("loss", LayerKind::CROSS_ENTROPY, [head]).unwrap();
        let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
        let training = training_of(&net, 1, Precision::Bf16);
        let config = TrainConfig::new(&data, &training).with_length(Length::Iterations(1));
        let config = config.with_kernels(Some(KernelChoice::Fastest));
        let order = train_on_gpus(&config, TIMEOUT, &|_| {}).unwrap().image_order.unwrap();
        assert_eq!((order.layout, order.times), (ImageLayout::ChannelsFirst, None));
        assert!(order.reason.contains("`softmax`"), "{}", order.reason);
        let forced = config.with_image_layout(Some(ImageLayout::ChannelsLast));
        let error = train_on_gpus(&forced, TIMEOUT, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("`softmax`") && error.contains("channels last"), "{error}");
    });
}
