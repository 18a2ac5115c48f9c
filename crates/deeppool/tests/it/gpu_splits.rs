//! Training of split layers on emulated GPUs, connected by the emulated NCCL.

use std::time::Duration;

use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining};
use deeppool::train::{Length, TrainConfig, train, train_on_gpus};
use layer_engine::{ImageLayout, KernelChoice, Precision, Sgd};
use layer_graph::zoo;

use crate::emulated::on_emulated_gpus;
use crate::random_splits::{difference, split_digits_placement};

#[test]
fn losses_of_split_layers_on_gpus_match_those_of_processors() {
    let name = "gpu_splits::losses_of_split_layers_on_gpus_match_those_of_processors";
    let network = zoo::model("digits-cnn").unwrap();
    let data = Dataset::digits().unwrap();
    on_emulated_gpus(name, 4, |emulator| {
        for gpus in [2, 4] {
            let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: Some(1.0) };
            let options = LowerOptions::default().with_optimizer(optimizer).with_micro_batches(2);
            let placement = split_digits_placement(&network, gpus);
            let training = LoweredTraining::new(&network, placement, 8, options);
            let config = TrainConfig::new(&data, &training).with_length(Length::Iterations(5));
            let processors = train(&config, &|_| {}).unwrap().losses;
            let ways = [
                (KernelChoice::Own, ImageLayout::ChannelsFirst),
                (KernelChoice::Vendor, ImageLayout::ChannelsFirst),
            ];
            for (kernels, layout) in ways {
                let config = config.clone().with_kernels(Some(kernels)).with_image_layout(Some(layout));
                let report = train_on_gpus(&config, Duration::from_secs(600), &|_| {}).unwrap();
                let found = difference(&processors, &report.losses);
                println!("{gpus} GPUs, {kernels:?}, {layout:?}: {found:.1e}");
                assert!(found <= 1e-4, "{gpus} GPUs, {kernels:?}, {layout:?}: {found:.1e}");
            }
        }
        let options = LowerOptions::default().with_precision(Precision::Tf32);
        let training = LoweredTraining::new(&network, split_digits_placement(&network, 2), 8, options);
        let config = TrainConfig::new(&data, &training).with_length(Length::Iterations(1));
        let report = train_on_gpus(&config, Duration::from_secs(600), &|_| {}).unwrap();
        assert_eq!(report.image_order.unwrap().reason, "layers are split");
        let last = config.with_image_layout(Some(ImageLayout::ChannelsLast));
        let error = train_on_gpus(&last, Duration::from_secs(600), &|_| {}).unwrap_err();
        assert!(error.to_string().contains("split layers"), "{error}");
        assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
        assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());
    });
}
