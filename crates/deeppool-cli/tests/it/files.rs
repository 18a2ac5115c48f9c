//! Files as inputs and outputs: ONNX networks, published layer times, links, devices and pipes.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{self, json, succeed, warned};

/// ONNX file made with the Python package `onnx`: a convolution of four channels over 1x8x8 with
/// its ReLU, global pooling, a linear layer to ten classes, and softmax, with an open batch.
const NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.onnx");

/// Layer times of the network at two batch sizes, in the format of the original DeepPool.
const TIMES: &str = r#"
conv2d{"in_channels":1,"kernel_size":3,"out_channels":4,"padding":1,"stride":1}[32][1,8,8]   0.080   80   1
ReLU2d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}[32][4,8,8]                     0.200   40   160
adAvgPool2d{"output_height":1,"output_width":1}[32][4,8,8]                                   0.060   20   40
flatten{"kernel_size":1}[32][4,1,1]                                                          0.010   5    5
linear{"bias":true,"in_features":4,"out_features":10}[32]4                                   0.013   13   0
SUM(avg)  0.363
conv2d{"in_channels":1,"kernel_size":3,"out_channels":4,"padding":1,"stride":1}[8][1,8,8]    0.040   40   1
ReLU2d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}[8][4,8,8]                      0.100   20   80
adAvgPool2d{"output_height":1,"output_width":1}[8][4,8,8]                                    0.030   10   20
flatten{"kernel_size":1}[8][4,1,1]                                                           0.010   5    5
linear{"bias":true,"in_features":4,"out_features":10}[8]4                                    0.010   10   0
SUM(avg)  0.190
"#;

/// Returns a folder with both files.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::copy(NETWORK, folder.path().join("small.onnx")).unwrap();
    std::fs::write(folder.path().join("small.prof"), TIMES).unwrap();
    folder
}

/// Checks as [`command::refused`], and that the message contains `expected` once.
fn refused(folder: &Path, arguments: &str, expected: &str) {
    let errors = command::refused(folder, arguments, expected);
    assert_eq!(errors.matches(expected).count(), 1, "{arguments}: {errors}");
}

/// Devices and links are written to and not replaced.
#[cfg(unix)]
#[test]
fn results_go_to_files_links_pipes_and_standard_output() {
    let folder = TempDir::new().unwrap();
    let plan = "plan --model digits-cnn --device cpu-core --gpus 2 --batch 8";
    succeed(folder.path(), &format!("{plan} -o plan.json"));
    let expected = std::fs::read(folder.path().join("plan.json")).unwrap();

    let output = command::deeppool(folder.path(), &format!("{plan} -o -"));
    assert!(output.status.success() && output.stdout == expected, "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("digits-cnn"), "the table is somewhere else");

    std::fs::write(folder.path().join("file.json"), "old").unwrap();
    std::os::unix::fs::symlink("file.json", folder.path().join("link.json")).unwrap();
    succeed(folder.path(), &format!("{plan} -o link.json"));
    assert!(folder.path().join("link.json").symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read(folder.path().join("file.json")).unwrap(), expected);

    for device in ["/dev/null", "/dev/full"] {
        command::deeppool(folder.path(), &format!("{plan} -o {device}"));
        assert!(!std::fs::metadata(device).unwrap().is_file(), "{device}");
    }
    let full = command::deeppool(folder.path(), &format!("{plan} -o /dev/full"));
    assert_eq!(full.status.code(), Some(1), "{full:?}");
    let profile = "profile --model digits-cnn --device a100 --batches 1";
    assert!(command::deeppool(folder.path(), &format!("{profile} -o /dev/null")).status.success());
    let measured = "profile --model digits-cnn --engine cpu --batches 1 -o /dev/null";
    assert!(command::deeppool(folder.path(), measured).status.success());
    assert!(!Path::new("/dev/null.partial").exists());

    refused(folder.path(), &format!("{plan} -o - --json"), "standard output");
    refused(folder.path(), &format!("{plan} -o same --dot same"), "two results");
    refused(folder.path(), &format!("{plan} -o none/plan.json"), "the folder `none` does not exist");
    refused(folder.path(), &format!("{plan} -o ."), "a folder");
}

#[test]
fn onnx_networks_are_listed_planned_simulated_and_trained() {
    let folder = folder();
    let folder = folder.path();
    let models = json(folder, "models --onnx small.onnx --json");
    let [model] = models["models"].as_array().unwrap().as_slice() else { panic!("one model") };
    assert_eq!((model["name"].as_str(), model["layers"].as_u64()), (Some("small"), Some(6)));
    assert_eq!(model["parameters"], 4 * 9 + 4 + 40 + 10);

    let plan =
        json(folder, "plan --onnx small.onnx --device cpu-core --gpus 4 --batch 32 -o plan.json --json");
    assert_eq!(plan["model"], "small");
    let names: Vec<_> =
        plan["layers"].as_array().unwrap().iter().map(|layer| layer["name"].clone()).collect();
    assert_eq!(names, ["conv", "relu", "pool", "flatten", "fc", "loss"]);
    let simulated = json(folder, "simulate --onnx small.onnx --plan plan.json --json");
    assert_eq!((simulated["model"].as_str(), simulated["gpus"].as_u64()), (Some("small"), Some(4)));

    succeed(folder, "profile --onnx small.onnx --device a100 --batches 1,8,32 -o profile.json");
    succeed(folder, "plan --onnx small.onnx --profile profile.json --gpus 4 --batch 32");
    let trained =
        json(folder, "train --onnx small.onnx --data digits --ranks 2 --batch 32 --epochs 1 --json");
    assert_eq!(trained["model"], "small");
}

#[test]
fn invalid_networks_are_one_line_errors() {
    let folder = folder();
    let folder = folder.path();
    let plan = "--device cpu-core --gpus 4 --batch 32";
    refused(
        folder,
        &format!("plan {plan}"),
        "give --model NAME, --onnx FILE, --pt2 FILE, --graph FILE or --hf FILE",
    );
    refused(folder, &format!("plan --model vgg16 --onnx small.onnx {plan}"), "cannot be used with");
    refused(folder, &format!("plan --onnx none.onnx {plan}"), "none.onnx: ");
    refused(folder, &format!("simulate --onnx small.prof {plan}"), "small.prof: not an ONNX model");
    refused(folder, "plan --onnx small.onnx --problem problem.json", "cannot be used with");
    refused(folder, "models --onnx small.prof", "not an ONNX model");
    let bytes = std::fs::read(folder.join("small.onnx")).unwrap();
    let place = bytes.windows(4).position(|word| word == b"Relu").unwrap();
    std::fs::write(folder.join("elu.onnx"), [&bytes[..place], b"Celu", &bytes[place + 4..]].concat())
        .unwrap();
    refused(folder, "models --onnx elu.onnx", "operator `Celu` (node `relu`) is not supported");
}

#[test]
fn published_layer_times_are_imported() {
    let folder = folder();
    let folder = folder.path();
    let import = "import-profile --onnx small.onnx --from small.prof --device a100 -o profile.json";
    let (shown, warnings) = warned(folder, import);
    let modelled = "small.prof: no times of 1 of 6 layers, and no backward times of 1: they are modelled, ";
    assert!(warnings.len() == 1 && warnings[0].starts_with(modelled), "{warnings:?}");
    for expected in ["forward and backward of loss", "backward of fc", "wrote profile.json"] {
        assert!(shown.contains(expected), "{shown}");
    }
    let imported: Value = serde_json::from_str(&warned(folder, &format!("{import} --json")).0).unwrap();
    assert_eq!(imported["modelled"].as_array().unwrap().len(), 1);
    assert_eq!(imported["profile"]["origin"], "imported");
    let plan = succeed(folder, "plan --onnx small.onnx --profile profile.json --gpus 4 --batch 32");
    assert!(plan.contains("a100, imported") && plan.contains("not in the published file"), "{plan}");

    let other = "import-profile --model vgg16 --from small.prof --device a100 -o other.json";
    refused(folder, other, "small.prof: line 8: expected a row for layer `features.0` of `vgg16`");
    refused(folder, &import.replace("small.prof", "none.prof"), "none.prof: ");
    refused(folder, &import.replace("a100", "b200"), "known devices");
    refused(folder, &import.replace("profile.json", "no/such.json"), "does not exist");
    assert!(!folder.join("other.json").exists());
}
