//! Published training throughputs and their predictions.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use layer_graph::zoo;
use layer_profile::DeviceModel;
use serde_json::Value;

use crate::command::{assert_refused, run};
use crate::figures::records;
use crate::svg::elements;

const HEADER: &str = "\
# a comment, in which \"quotes do not matter
network,framework,task,gpu,gpu_mem_gb,machine,nodes,gpus,precision,compiler,batch_per_gpu,grad_accum,\
seq_len,throughput,unit,step_ms,implied_tflops,flags,container,ref,note
";

/// A row of ResNet-50 on V100: framework, machine, GPUs, batch, micro-batches, throughput, flags.
type Row = (&'static str, &'static str, usize, usize, usize, f64, &'static str);

/// Writes a table of rows into a new folder.
fn table(rows: &[Row]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut text = HEADER.to_owned();
    for (framework, machine, gpus, batch, micro_batches, throughput, flags) in rows {
        writeln!(
            text,
            "resnet50_v1.5,{framework},,V100,16,{machine},1,{gpus},FP32,,{batch},{micro_batches},,\
             {throughput},images/s,,,{flags},,,"
        )
        .unwrap();
    }
    std::fs::write(folder.path().join("deeplearningexamples.csv"), text).unwrap();
    folder
}

/// Runs the experiment on a folder. Returns its text, and the records of questions and of rows.
fn published(data: &Path, out: &Path) -> (String, [Vec<HashMap<String, String>>; 2]) {
    let text = run(out, &["published", "--data", data.to_str().unwrap()]);
    (text, ["published-questions.csv", "published-rows.csv"].map(|name| records(&out.join(name))))
}

/// Returns the verdicts of questions by batch, GPUs and throughput.
fn verdicts(rows: &[Row]) -> Vec<(String, String)> {
    let (data, out) = (table(rows), tempfile::tempdir().unwrap());
    let (_, [questions, _]) = published(data.path(), out.path());
    let mut verdicts: Vec<(String, String)> = questions
        .iter()
        .map(|row| (format!("{}x{}", row["gpus"], row["batch"]), row["verdict"].clone()))
        .collect();
    verdicts.sort();
    verdicts
}

fn expected(verdicts: &[(&str, &str)]) -> Vec<(String, String)> {
    verdicts.iter().map(|(question, verdict)| ((*question).to_owned(), (*verdict).to_owned())).collect()
}

#[test]
fn fastest_row_of_a_question_counts_once() {
    let data = table(&[
        ("PyTorch", "DGX-1", 1, 64, 1, 300.0, ""),
        ("PyTorch", "DGX-1", 1, 64, 1, 310.0, ""),
        ("PyTorch", "DGX-1", 1, 64, 1, 900.0, "above_peak"),
        ("PyTorch", "DGX-1", 8, 64, 1, 2400.0, ""),
        ("PyTorch", "DGX-2", 1, 64, 1, 320.0, ""),
        ("PyTorch", "DGX-1", 1, 64, 4, 315.0, ""),
    ]);
    let out = tempfile::tempdir().unwrap();
    let (text, [questions, rows]) = published(data.path(), out.path());
    assert!(text.contains("5 published rows in one host answer 4 questions; 4 are compared"), "{text}");
    assert!(text.contains("Missing files: lambda_tensorflow.csv, "), "{text}");
    assert_eq!(rows.len(), 6, "all rows are listed");
    assert_eq!(rows[2]["unused"], "flagged by the source");
    assert_eq!((rows[5]["line"].as_str(), rows[5]["accumulation"].as_str()), ("8", "4"));
    let find = |gpu: &str, gpus: &str, accumulation: &str| {
        let mut found = questions
            .iter()
            .filter(|row| row["gpu"] == gpu && row["gpus"] == gpus && row["accumulation"] == accumulation);
        found.next().unwrap()
    };
    let number = |row: &HashMap<String, String>, field: &str| row[field].parse::<f64>().unwrap();
    let (one, eight, accumulated) = (find("V100", "1", "1"), find("V100", "8", "1"), find("V100", "1", "4"));
    assert!((number(one, "published_samples_per_s") - 310.0).abs() < 1e-9);
    assert_eq!(one["line"], "4");
    // One GPU without accumulation takes the sum of its layers.
    let network = zoo::model("resnet-50").unwrap();
    let time =
        DeviceModel::named("v100").unwrap().profile(&network, &[64]).unwrap().network_time(64).unwrap();
    let rate = |update: f64| {
        64.0 / ((time.forward + time.backward).as_secs_f64() + update * time.update.as_secs_f64())
    };
    for (row, update) in [(one, 1.0), (accumulated, 0.25)] {
        let predicted = number(row, "predicted_samples_per_s");
        assert!(
            (predicted / rate(update) - 1.0).abs() < 1e-6,
            "{row:?}: {predicted}, expected {}",
            rate(update)
        );
        let error = predicted / number(row, "published_samples_per_s") - 1.0;
        assert!((number(row, "error") - error).abs() < 1e-12, "{row:?}");
    }
    let of_gpu = number(eight, "predicted_samples_per_s") / 8.0;
    assert!(of_gpu <= rate(1.0) * (1.0 + 1e-9) && of_gpu > 0.5 * rate(1.0), "{of_gpu}");
    // The split: one GPU that is not of a DGX-2 is fitted.
    let fitted = |row: &HashMap<String, String>| row["fitted"] == "true";
    assert!(fitted(one) && fitted(accumulated) && !fitted(eight));
    assert!(!fitted(find("V100 (DGX-2)", "1", "1")));
    // The figure has a point for each question, and one a series in the legend.
    let svg = std::fs::read_to_string(out.path().join("published.svg")).unwrap();
    assert_eq!(elements(&svg, "<circle", "").len(), 4 + 4);
}

/// The slow suite is found by its best throughput of any batch, and its questions are left out.
#[test]
fn questions_of_slow_suites_are_left_out() {
    let of_tensorflow = |throughput| {
        verdicts(&[
            ("PyTorch", "DGX-1", 1, 64, 1, 300.0, ""),
            ("TensorFlow", "DGX-1", 1, 128, 1, throughput, ""),
            ("TensorFlow", "DGX-1", 1, 256, 1, throughput - 1.0, ""),
        ])
    };
    let slow = expected(&[("1x128", "slow"), ("1x256", "slow"), ("1x64", "compared")]);
    assert_eq!(of_tensorflow(250.0), slow, "0.83 of the throughput of PyTorch");
    // Above 0.85, a larger batch is still not dominated within a factor of 1.1.
    let good = expected(&[("1x128", "compared"), ("1x256", "compared"), ("1x64", "compared")]);
    assert_eq!(of_tensorflow(280.0), good, "0.93 of the throughput of PyTorch");
}

#[test]
fn questions_that_others_dominate_are_left_out() {
    let verdict = |row: Row| {
        let found = verdicts(&[row, ("PyTorch", "DGX-1", 4, 32, 1, 1200.0, "")]);
        let key = format!("{}x{}", row.2, row.3);
        found.into_iter().find(|(question, _)| *question == key).unwrap().1
    };
    // The other question has 300 images/s a GPU.
    assert_eq!(verdict(("PyTorch", "DGX-1", 1, 64, 1, 260.0, "")), "dominated", "larger batch, fewer GPUs");
    assert_eq!(verdict(("PyTorch", "DGX-2", 1, 64, 1, 260.0, "")), "dominated", "faster GPU");
    assert_eq!(verdict(("PyTorch", "DGX-1", 1, 64, 1, 280.0, "")), "compared", "within a factor of 1.1");
    assert_eq!(verdict(("PyTorch", "DGX-1", 1, 16, 1, 260.0, "")), "compared", "smaller batch");
    assert_eq!(verdict(("PyTorch", "DGX-1", 8, 64, 1, 2080.0, "")), "compared", "more GPUs");
}

#[test]
fn invalid_tables_are_refused() {
    let refused = |row: &str, message: &str| {
        let folder = table(&[("PyTorch", "DGX-1", 1, 64, 1, 300.0, "")]);
        let path = folder.path().join("deeplearningexamples.csv");
        let text = std::fs::read_to_string(&path).unwrap() + row + "\n";
        std::fs::write(&path, text).unwrap();
        let data = folder.path().to_str().unwrap();
        assert_refused(&["published", "--data", data], message);
    };
    let row = "resnet50_v1.5,PyTorch,,V100,16,DGX-1,1,GPUS,PRECISION,,64,1,,RATE,images/s,,,,,,";
    let with = |from: &str, to: &str| {
        let row = row.replace(from, to);
        row.replace("GPUS", "1").replace("PRECISION", "FP32").replace("RATE", "300")
    };
    let at = |what: &str| format!("deeplearningexamples.csv: line 4, {what}");
    refused(&with("GPUS", "two"), &at("column 8 (`gpus`): `two`, expected a whole number from 1"));
    refused(&with("GPUS", "0"), &at("column 8 (`gpus`): `0`, expected a whole number from 1"));
    refused(&with("RATE", "-3"), &at("column 14 (`throughput`): `-3`, expected a number above 0"));
    refused(&with("RATE", "inf"), &at("column 14 (`throughput`): `inf`, expected a number above 0"));
    refused(&with("PRECISION", "INT4"), &at("column 9 (`precision`): `INT4`"));
    refused("resnet50_v1.5,PyTorch,,V100", &at("column 19 (`container`): the line ends before it"));
    let below_a_comment = "# two lines\n\n".to_owned() + &with("GPUS", "two");
    refused(&below_a_comment, "deeplearningexamples.csv: line 6, column 8 (`gpus`): `two`");

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("dlperf_v100.csv"), "# about\nnetwork,framework\n").unwrap();
    let message = "dlperf_v100.csv: line 2, column 3 (`precision`): no such column in the header";
    assert_refused(&["published", "--data", folder.path().to_str().unwrap()], message);
}

#[test]
fn missing_folder_is_refused_if_it_was_given() {
    let message = "the folder nowhere of published tables does not exist: give it with --data DIR";
    assert_refused(&["published", "--data", "nowhere"], message);
    assert_refused(&["published", "--data", "nowhere", "--fit", "models"], message);
    // Without the default folder, the numbers of the original remain. Programs of tests run in a
    // folder that is not beside the tables.
    let out = tempfile::tempdir().unwrap();
    if !Path::new("../shared/data/published").exists() {
        let text = run(out.path(), &["published"]);
        assert!(
            text.contains("left out because the folder ../shared/data/published does not exist"),
            "{text}"
        );
        assert!(text.contains("13.57") && !text.contains("Training throughput"), "{text}");
        assert_eq!(records(&out.path().join("published.csv")).len(), 11);
        assert!(!out.path().join("published-questions.csv").exists());
    }
}

/// Folder of the published tables beside the repository, if it exists.
fn tables() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/published");
    let is_there = folder.is_dir();
    if !is_there {
        println!("SKIPPED: no {}", folder.display());
    }
    is_there.then_some(folder)
}

/// The counts do not depend on device models.
#[test]
fn published_tables_are_compared_with_predictions() {
    let Some(data) = tables() else { return };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [text, again] = [0, 1].map(|run| published(&data, folders[run].path()).0);
    let text = text.replace(folders[0].path().to_str().unwrap(), "");
    assert_eq!(text, again.replace(folders[1].path().to_str().unwrap(), ""), "the second run differs");
    assert!(text.lines().count() <= 85, "{}", text.lines().count());
    let read = |name: &str| folders.each_ref().map(|folder| std::fs::read(folder.path().join(name)).unwrap());
    for name in ["published-questions.csv", "published-rows.csv", "published.json", "published.svg"] {
        let [first, second] = read(name);
        assert!(first == second, "{name} of the second run differs");
    }
    let line = "1085 published rows in one host answer 356 questions; 241 are compared.";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("Slow: 77 questions") && text.contains("Dominated: 38 questions"), "{text}");
    let report: Value = serde_json::from_slice(&read("published.json")[0]).unwrap();
    let training = &report["training"];
    assert_eq!(training["missing"].as_array().unwrap().len(), 0);
    let fitted = training["fitted"].as_array().unwrap();
    assert!(fitted.len() > 30 && fitted.iter().all(|row| row["step_s"].as_f64().unwrap() > 0.0));
    let questions = training["questions"].as_array().unwrap();
    let predicted = questions.iter().filter(|row| row["error"].is_f64()).count();
    let without = questions.iter().filter(|row| row["reason"].is_string()).count();
    assert!(predicted > 150 && predicted + without == questions.len(), "{predicted} and {without}");
    assert_eq!(report["errors"][0]["group"], "held out");
}
