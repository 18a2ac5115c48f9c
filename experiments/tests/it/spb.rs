//! Partial backpropagation: training, and background throughput.

use std::collections::HashMap;

use crate::command::{assert_refused, run};
use crate::figures::records;
use crate::svg::{assert_on_one_scale, centres};

/// Checks that all results exist and are consistent. Accuracy after one epoch is not asserted.
#[test]
fn backpropagation_methods_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let table = run(folder.path(), &["spb", "--seeds", "1", "--epochs", "1", "--model", "vgg16"]);
    for expected in [
        "trained",
        "simulated",
        "SPB, K = 8",
        "frozen below",
        "skipped together",
        "skipped at random",
        "spb.csv",
    ] {
        assert!(table.contains(expected), "no {expected} in\n{table}");
    }
    let records = records(&folder.path().join("spb.csv"));
    let number = |record: &HashMap<String, String>, field: &str| record[field].parse::<f64>().unwrap();
    for model in ["digits-cnn", "digits-resnet"] {
        let of_model: Vec<_> = records.iter().filter(|record| record["model"] == model).collect();
        let compute: HashMap<&str, f64> =
            of_model.iter().map(|record| (record["way"].as_str(), number(record, "compute"))).collect();
        assert_eq!(compute.len(), 7);
        assert!((compute["skipped together, K = 4"] - compute["skipped at random, K = 4"]).abs() < 1e-12);
        assert!((compute["whole"] - 1.0).abs() < 1e-12);
        let falling = ["whole", "SPB, K = 2", "SPB, K = 4", "SPB, K = 8"].map(|way| compute[way]);
        assert!(falling.is_sorted_by(|a, b| a > b), "{falling:?}");
        // All methods have the same first samples and learn something from them.
        assert!(of_model.iter().all(|record| (0.2..0.99).contains(&number(record, "test_accuracy"))));

        let svg = std::fs::read_to_string(folder.path().join(format!("spb-{model}.svg"))).unwrap();
        let colors = ["#282828", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#787878", "#D55E00"];
        // The first mark is in the legend; each panel has one more.
        let across = of_model.iter().zip(colors).map(|(record, color)| {
            let drawn = centres(&svg, color);
            assert_eq!(drawn.len(), 3, "{color}");
            (drawn[2].0, number(record, "compute"))
        });
        assert_on_one_scale(&across.collect::<Vec<_>>());
    }
    let dp: Vec<_> = records.iter().filter(|record| record["mode"] == "dp+col").collect();
    assert!(dp.iter().all(|record| record["model"] == "vgg16"));
    let shares: Vec<f64> = dp.iter().map(|record| number(record, "computing_share")).collect();
    assert!((shares[0] - 1.0).abs() < 1e-12 && shares.is_sorted_by(|a, b| a > b), "{shares:?}");
    let background = dp.iter().map(|record| number(record, "background_samples_per_s"));
    assert!(background.collect::<Vec<_>>().is_sorted());
}

/// Trains the residual network on images of another shape, half of them dark and half bright.
#[test]
fn residual_network_adapts_to_the_shape_of_the_images() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("images");
    std::fs::create_dir(&data).unwrap();
    for (part, samples) in [("train", 64_u8), ("t10k", 32)] {
        let header = |magic: u8, dims: &[u8]| {
            let mut bytes = vec![0, 0, 8, magic];
            bytes.extend(dims.iter().flat_map(|&dim| [0, 0, 0, dim]));
            bytes
        };
        let mut images = header(3, &[samples, 12, 12]);
        images.extend((0..samples).flat_map(|sample| [200 * (sample % 2); 144]));
        let mut labels = header(1, &[samples]);
        labels.extend((0..samples).map(|sample| sample % 2));
        std::fs::write(data.join(format!("{part}-images-idx3-ubyte")), images).unwrap();
        std::fs::write(data.join(format!("{part}-labels-idx1-ubyte")), labels).unwrap();
    }
    let data = format!("mnist:{}", data.display());
    let options = ["spb", "--data", &data, "--seeds", "1", "--epochs", "2", "--model", "vgg16"];
    let table = run(folder.path(), &options);
    assert!(table.contains("mnist (64 samples to train and 32 to test)"), "{table}");
    let records = records(&folder.path().join("spb.csv"));
    let learned: Vec<_> = records.iter().filter(|record| !record["epoch"].is_empty()).collect();
    assert_eq!(learned.len(), 2 * 7);
    assert!(learned.iter().all(|record| record["model"] == "mnist-resnet"));
}

#[test]
fn invalid_options_are_refused_in_one_line() {
    assert_refused(&["spb", "--seeds", "0"], "from 1 to 100");
    assert_refused(&["spb", "--link", "nothing"], "nothing");
    assert_refused(&["spb", "--model", "resnet-50"], "vgg16, wrn-101-2, inception-v3");
    assert_refused(&["spb", "--data", "synthetic"], "digits, mnist:DIR or cifar10:DIR");
    assert_refused(&["spb", "--data", "mnist:nowhere"], "nowhere");
}
