//! Files of parameters: `deeppool export`, `train --init` and `eval`.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tempfile::TempDir;

use crate::command::{files, json, refused, succeed};

const TRAIN: &str = "train --model digits-cnn --data digits --batch 32 --json";

#[test]
fn runs_start_with_the_given_weights() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    assert!(
        succeed(path, "export --model digits-cnn --seed 5 -o seed5.safetensors").contains("wrote 12 tensors")
    );
    // The seed determines the order of samples, independent of the initial parameters.
    let drawn = json(path, &format!("{TRAIN} --ranks 2 --seed 5 --iterations 5"));
    let given = json(path, &format!("{TRAIN} --ranks 3 --seed 5 --iterations 5 --init seed5.safetensors"));
    succeed(path, "export --model digits-cnn -o seed0.safetensors");
    let other = json(path, &format!("{TRAIN} --ranks 2 --seed 5 --iterations 5 --init seed0.safetensors"));
    let first = |report: &serde_json::Value| report["losses"][0].as_f64().unwrap();
    assert!((first(&drawn) - first(&given)).abs() < 1e-5 * first(&drawn));
    assert!((first(&drawn) - first(&other)).abs() > 1e-3 * first(&drawn));
}

#[test]
fn trained_weights_are_exported_and_evaluated() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let report = json(path, &format!("{TRAIN} --ranks 2 --epochs 2 --checkpoint run"));
    let accuracy = &report["epochs"][1]["test_accuracy"];
    let eval = "eval --model digits-cnn --data digits --json";
    assert_eq!(&json(path, &format!("{eval} --checkpoint run"))["accuracy"], accuracy);
    succeed(path, "export --model digits-cnn --checkpoint run -o learned.safetensors");
    let by_file = json(path, &format!("{eval} --weights learned.safetensors --batch 50"));
    assert_eq!((&by_file["accuracy"], &by_file["samples"]), (accuracy, &360.into()));
    assert!(succeed(path, &eval.replace("--json", "--checkpoint run")).contains("held-out samples"));
}

#[test]
fn weights_of_another_network_are_errors_with_a_parameter() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    succeed(path, "export --model digits-cnn -o digits.safetensors");
    refused(
        path,
        "eval --model vgg11 --data synthetic --weights digits.safetensors",
        "digits.safetensors: tensor `features.0.weight` is missing",
    );
    refused(path, &format!("{TRAIN} --ranks 2 --init none.safetensors"), "none.safetensors: ");
    // The device has no end.
    refused(path, &format!("{TRAIN} --ranks 2 --init /dev/zero"), "/dev/zero: ");
    refused(path, "export --model digits-cnn --checkpoint nowhere -o x", "nowhere: there is no checkpoint");
    refused(path, "eval --model digits-cnn --data digits", "--weights");
    let mut cut = std::fs::read(path.join("digits.safetensors")).unwrap();
    cut.truncate(cut.len() / 2);
    std::fs::write(path.join("cut.safetensors"), cut).unwrap();
    refused(path, &format!("{TRAIN} --ranks 2 --init cut.safetensors"), "cut.safetensors: ");
    assert_eq!(files(path), ["cut.safetensors", "digits.safetensors"]);
}

/// PyTorch stores an integer counter for each batch normalisation.
#[test]
fn other_tensors_of_pytorch_are_ignored() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    succeed(path, "export --model digits-cnn -o own.safetensors");
    let own = std::fs::read(path.join("own.safetensors")).unwrap();
    let own = SafeTensors::deserialize(&own).unwrap();
    let counter = 7_i64.to_le_bytes();
    let counter = TensorView::new(Dtype::I64, Vec::new(), &counter).unwrap();
    let all = own.tensors().into_iter().chain([("conv1.num_batches_tracked".to_owned(), counter)]);
    std::fs::write(path.join("torch.safetensors"), safetensors::serialize(all, None).unwrap()).unwrap();
    let eval = "eval --model digits-cnn --data digits --json --weights";
    assert_eq!(
        json(path, &format!("{eval} own.safetensors"))["accuracy"],
        json(path, &format!("{eval} torch.safetensors"))["accuracy"]
    );
}
