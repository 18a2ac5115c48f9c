//! Policies for a cluster.

use std::process::Command;

use serde_json::Value;

fn command(out: &std::path::Path, more: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["jigsaw", "--jobs", "60", "--seeds", "1", "--gpus", "16", "--loads", "1,20", "--out"])
        .arg(out)
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn spb_saves_no_gpu_time_without_sharing_and_some_with() {
    let folder = tempfile::tempdir().unwrap();
    // Without traces: what is there on every machine.
    let output = command(folder.path(), &["--json", "--traces", "nowhere"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap();
    let figure = |policy: &str, load: f64, field: &str| {
        let mut rows = rows.iter().filter(|row| row["policy"] == policy && row["load"] == load);
        number(rows.next().unwrap(), field)
    };
    assert!(rows.iter().all(|row| row["trace"] == "synthetic" && number(row, "jobs") > 50.0));
    for policy in ["fifo", "srtf", "las", "max-min", "finish-time"] {
        assert!((figure(policy, 20.0, "efficiency") - 1.0).abs() < 1e-6, "{policy} shares nothing");
    }
    assert!(figure("jigsaw", 20.0, "efficiency") >= figure("iteration-level", 20.0, "efficiency"));
    assert!(figure("srtf", 20.0, "mean_jct_s") < figure("fifo", 20.0, "mean_jct_s"));
    let csv = std::fs::read_to_string(folder.path().join("jigsaw.csv")).unwrap();
    assert_eq!(csv::Reader::from_reader(csv.as_bytes()).deserialize::<Value>().count(), rows.len());
    for figure in ["jigsaw.svg", "jigsaw-schedule.svg", "jigsaw-completions.svg"] {
        assert!(std::fs::read_to_string(folder.path().join(figure)).unwrap().contains("published: Philly"));
    }
}

#[test]
fn wrong_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |more: &[&str], message: &str| {
        let output = command(folder.path(), more);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && stderr.contains(message), "{stderr}");
    };
    std::fs::write(
        folder.path().join("gavel_alone.csv"),
        "gpu_type,model,batch,gpus,steps_per_s\nv100,LM,5,x,1\n",
    )
    .unwrap();
    let traces = folder.path().to_str().unwrap().to_owned();
    refused(&["--traces", &traces], "gavel_alone.csv: line 2, column 4 (`gpus`): `x`");
    let output =
        Command::new(env!("CARGO_BIN_EXE_experiments")).args(["jigsaw", "--gpus", "12"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("hosts of 8 GPUs"));
}
