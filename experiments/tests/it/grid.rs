//! Sweeps: one experiment for all combinations of the values in a file.

use std::path::Path;
use std::process::{Command, Output};

fn sweep(file: &str, folder: &Path, more: &[&str]) -> Output {
    let path = folder.join("sweep.toml");
    std::fs::write(&path, file).unwrap();
    Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["throughput", "--sweep"])
        .arg(&path)
        .arg("--out")
        .arg(folder.join("out"))
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn sweep_writes_one_csv_and_a_folder_for_each_combination() {
    let folder = tempfile::tempdir().unwrap();
    let file = "model = 'digits-cnn'\namplification = [1.2, 2]\n[[points]]\ngpus = 2\nbatch = [16, 32]\n\
                [[points]]\ngpus = 4\nbatch = 64\n";
    let output = sweep(file, folder.path(), &["--device", "h100"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let out = folder.path().join("out");
    let csv = std::fs::read_to_string(out.join("throughput.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(header[..4], ["--model", "--amplification", "--gpus", "--batch"]);
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let asked = [("2", "16"), ("2", "32"), ("4", "64")].into_iter();
    let mut points: Vec<[&str; 3]> = Vec::new();
    for (gpus, batch) in asked {
        points.extend(["1.2", "2"].map(|limit| [limit, gpus, batch]));
    }
    assert_eq!(records.len(), 10 * points.len());
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    for point in &points {
        let [limit, gpus, batch] = point;
        let of_point: Vec<_> =
            records.iter().filter(|record| record.iter().skip(1).take(3).eq(point.iter().copied())).collect();
        assert_eq!(of_point.len(), 10, "{point:?}");
        // The records equal those of the combination's folder.
        let alone =
            format!("model=digits-cnn,amplification={limit},gpus={gpus},batch={batch}/throughput.csv");
        let alone = std::fs::read_to_string(out.join(alone)).unwrap();
        for (record, line) in of_point.into_iter().zip(alone.lines().skip(1)) {
            assert_eq!(record.iter().skip(4).collect::<Vec<_>>().join(","), line);
            assert_eq!((&record[column("gpus")], &record[column("batch")]), (*gpus, *batch));
            assert_eq!(&record[column("device")], "h100");
        }
    }
}

#[test]
fn invalid_files_are_refused_in_one_line_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    for (file, more, says) in [
        ("gpu = [2]", &[][..], "`gpu` is not an option of throughput: expected one of model"),
        ("out = 'elsewhere'", &[], "`out` is not an option"),
        ("gpus = [2", &[], "line 1"),
        ("gpus = []", &[], "no values"),
        ("", &[], "no values"),
        ("gpus = [2, 0]", &[], "gpus 0"),
        ("gpus = true", &[], "not boolean"),
        ("points = 3", &[], "[[points]]"),
        ("gpus = 4\n[[points]]\ngpus = 2", &[], "`gpus` is set above"),
        ("gpus = [2, 2]", &[], "two combinations are equal"),
        ("model = ['vgg16', 'vgg61']\nbatch = 8", &[], "vgg61"),
        ("gpus = [2, 4]", &["--gpus", "8"], "on the command line"),
        ("link = 'dgx-a100'\ngpus = [8, 16]", &[], "dgx-a100"),
    ] {
        let output = sweep(file, folder.path(), more);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains(says), "{file}: {stderr}");
        assert!(!folder.path().join("out").exists(), "{file}");
    }
}
