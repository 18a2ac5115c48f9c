//! Files that cannot be read or written: UTF-16 text, values that are not finite, and folders that
//! nobody can write to.

use std::fs;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::command::{deeppool, refused, succeed};

#[test]
fn text_in_utf_16_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let wide: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(path.join("wide.json"), wide).unwrap();
    let plan = "--gpus 2 --batch 8";
    for command in [
        "plan --problem wide.json".to_owned(),
        format!("plan --graph wide.json --device a100 {plan}"),
        format!("plan --hf wide.json --sequence 8 --device a100 {plan}"),
        format!("plan --model digits-cnn --device wide.json {plan}"),
        format!("plan --model digits-cnn --device a100 --link wide.json {plan}"),
        format!("plan --model digits-cnn --profile wide.json {plan}"),
        "plan --model digits-cnn --device a100 --gpus 2 --to-accuracy wide.json".to_owned(),
        "simulate --model digits-cnn --plan wide.json".to_owned(),
        "lower --model digits-cnn --plan wide.json -o x.json".to_owned(),
        "fit --profile wide.json -o x.json".to_owned(),
        "import-profile --model vgg16 --from wide.json --device a100 -o x.json".to_owned(),
    ] {
        refused(path, &command, "wide.json: the text is UTF-16: save it as UTF-8");
    }
}

/// Returns a safetensors file of the given tensors: name, type, dimensions and bytes.
fn safetensors(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let begin = data.len();
        data.extend(bytes);
        let place = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]});
        header.insert((*name).to_owned(), place);
    }
    let header = serde_json::Value::from(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

#[test]
fn held_out_samples_and_weights_that_are_not_finite_are_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let part = |bad: Option<(usize, f32)>| {
        let value = |place: usize| match bad {
            Some((sample, value)) if sample == place / 64 => value,
            _ => 0.5,
        };
        (0..4 * 64).flat_map(|place| value(place).to_le_bytes()).collect::<Vec<u8>>()
    };
    let labels: Vec<u8> = (0..4_i64).flat_map(i64::to_le_bytes).collect();
    let write = |train, test, extra: bool| {
        let inputs: &[usize] = &[4, 1, 8, 8];
        let mut tensors = vec![
            ("train.inputs", "F32", inputs, part(train)),
            ("train.labels", "I64", &[4][..], labels.clone()),
            ("test.inputs", "F32", inputs, part(test)),
            ("test.labels", "I64", &[4][..], labels.clone()),
        ];
        if extra {
            tensors.push(("valid.labels", "I64", &[4][..], labels.clone()));
        }
        fs::write(path.join("data"), safetensors(&tensors)).unwrap();
    };
    succeed(path, "export --model digits-cnn -o weights");
    let eval = "eval --model digits-cnn --data safetensors:data --weights weights --batch 2";
    let train = "train --model digits-cnn --data safetensors:data --ranks 1 --batch 2 --iterations 1";
    for (of_train, of_test, expected) in [
        (None, Some((2, f32::NAN)), "data: tensor `test.inputs`: 1 of 4 samples have values that are not"),
        (None, Some((3, f32::INFINITY)), "first sample 3 (inf in feature 0)"),
        (Some((1, f32::NEG_INFINITY)), None, "`train.inputs`: 1 of 4 samples"),
    ] {
        write(of_train, of_test, false);
        refused(path, eval, expected);
        refused(path, train, expected);
    }
    write(None, None, true);
    refused(path, eval, "1 of 5 tensors are not of a data set, such as `valid.labels`");
    write(None, None, false);
    succeed(path, eval);

    let weights = fs::read(path.join("weights")).unwrap();
    let end = weights.len() - 4;
    fs::write(path.join("bad"), [&weights[..end], &f32::NAN.to_le_bytes()].concat()).unwrap();
    for command in [eval.replace("--weights weights", "--weights bad"), format!("{train} --init bad")] {
        refused(path, &command, "has an element that is infinite or NaN");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn results_that_cannot_be_written_are_refused_before_the_work() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let train = "train --model vgg16 --data synthetic --ranks 2 --batch 8 --epochs 9";
    // Nobody can create files in this folder, not even root.
    for command in [
        "plan --model resnet-152 --device a100 --gpus 512 --batch 4096 -o /proc/sys/plan.json".to_owned(),
        "epochs --model digits-cnn --data digits --batches 16 --target 0.99 -o /proc/sys/c.json".to_owned(),
        "profile --model vgg16 --engine cpu -o /proc/sys/p.json".to_owned(),
        format!("{train} --metrics /proc/sys/m.json"),
        format!("{train} --trace /proc/sys/t.json"),
        format!("{train} --checkpoint /proc/sys/run"),
    ] {
        let started = Instant::now();
        let output = deeppool(path, &command);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.lines().count() == 1, "{command}: {errors}");
        assert!(errors.contains("/proc/sys"), "{command}: {errors}");
        assert!(started.elapsed() < Duration::from_secs(5), "{command}: {:?}", started.elapsed());
    }
}
