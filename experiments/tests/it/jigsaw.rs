//! Scheduling policies of a cluster.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

fn command(out: &std::path::Path, gpus: &str, more: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["jigsaw", "--jobs", "60", "--seeds", "1", "--gpus", gpus, "--loads", "1,20", "--out"])
        .arg(out)
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn policies_share_gpus_as_defined() {
    let folder = tempfile::tempdir().unwrap();
    // Uses the synthetic jobs only, which need no files.
    let output = command(folder.path(), "16", &["--json", "--traces", "nowhere"]);
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
    // A partition is one of burst parallelism's choices.
    assert!(figure("burst", 20.0, "efficiency") >= 0.99 * figure("partition", 20.0, "efficiency"));
    // Under fifo, late jobs take longer than on 1/n of the cluster.
    assert!(figure("fifo", 20.0, "rho_mean") > figure("srtf", 20.0, "rho_mean"));
    let crossovers = report["crossovers"].as_array().unwrap();
    assert_eq!(crossovers.len(), 9 * 2, "nine comparisons, by completion times and by efficiency");
    for found in crossovers {
        match (found["pays_from"].as_f64(), found["pays_to"].as_f64()) {
            (Some(from), Some(to)) => {
                assert!((0.25..=1024.0).contains(&from) && (from..=1024.0).contains(&to), "{found}");
            }
            (None, None) => {}
            _ => panic!("{found}"),
        }
    }
    assert!(figure("jigsaw", 20.0, "efficiency") >= figure("iteration-level", 20.0, "efficiency"));
    assert!(figure("srtf", 20.0, "mean_jct_s") < figure("fifo", 20.0, "mean_jct_s"));
    let csv = std::fs::read_to_string(folder.path().join("jigsaw.csv")).unwrap();
    assert_eq!(csv::Reader::from_reader(csv.as_bytes()).deserialize::<Value>().count(), rows.len());
    for figure in ["jigsaw.svg", "jigsaw-schedule.svg", "jigsaw-completions.svg"] {
        assert!(std::fs::read_to_string(folder.path().join(figure)).unwrap().contains("published: Philly"));
    }
}

/// Uses small trace files in place of the published ones.
#[test]
fn measured_pairs_replace_the_assumed_cost_of_sharing() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = "arrival_s,model,batch,gpus,steps\n".to_owned() + &"0,LM,5,1,100000\n".repeat(30);
    let speeds = "gpu_type,model,batch,gpus,steps_per_s\nv100,LM,5,1,10\n";
    let pairs =
        "gpus,model_a,batch_a,model_b,batch_b,a_alone,b_alone,a_shared,b_shared\n1,LM,5,LM,5,10,10,8,8\n";
    for (name, text) in [("gavel_alone.csv", speeds), ("gavel_v100_pairs.csv", pairs)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    pack(&folder.path().join("gavel_msr_seed0.csv.gz"), &jobs);
    let traces = folder.path().to_str().unwrap().to_owned();
    let output = command(folder.path(), "8", &["--traces", &traces]);
    let text = String::from_utf8(output.stdout).unwrap();
    for said in [
        "on V100 and of jobs on one GPU each only",
        "In 0 pairs one of the two is as fast as alone",
        "By bisection over load it pays by",
    ] {
        assert!(text.contains(said), "{text}");
    }
    let report = std::fs::read_to_string(folder.path().join("jigsaw.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let measured = report["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 2, "pairs from 1 and from 1.5 on");
    for row in measured {
        let (efficiency, sum) = (row["efficiency_ratio"].as_f64().unwrap(), row["least"].as_f64().unwrap());
        // With 30 jobs on 8 GPUs, most GPUs have a pair that does the work of 1.6 GPUs.
        assert!((1.4..1.61).contains(&efficiency) && [1.0, 1.5].contains(&sum), "{row}");
    }
    std::fs::write(folder.path().join("gavel_v100_pairs.csv"), pairs.replace("10,10,8,8", "10,10,8,y"))
        .unwrap();
    let output = command(folder.path(), "8", &["--traces", &traces]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let message =
        "gavel_v100_pairs.csv: line 2, column 9 (`b_shared`): `y`, expected steps a second from 0 on";
    assert!(output.status.code() == Some(2) && stderr.contains(message), "{stderr}");
}

/// Writes a compressed file.
fn pack(path: &std::path::Path, text: &str) {
    let file = std::fs::File::create(path).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    packed.finish().unwrap();
}

/// Runs the experiment on the traces of a folder with at most 200 jobs at one load. Returns its
/// stderr, and the rows of the CSV for a trace.
fn rows_of(folder: &std::path::Path, trace: &str) -> (String, Vec<Vec<String>>) {
    let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["jigsaw", "--jobs", "200", "--seeds", "1", "--gpus", "8", "--loads", "2", "--out"])
        .args([folder, std::path::Path::new("--traces"), folder])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let csv = std::fs::read_to_string(folder.join("jigsaw.csv")).unwrap();
    assert!(!csv.contains("NaN") && !csv.contains("inf"), "{csv}");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows = reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect::<Vec<_>>());
    (stderr, rows.filter(|row| row[0] == trace).collect())
}

/// Column of the number of finished jobs.
const JOBS: usize = 6;

#[test]
fn every_job_of_a_short_philly_trace_is_simulated_or_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "timestamp,duration,num_gpus\n".to_owned();
    for job in 0..200 {
        let gpus = [1, 2, 8, 3, 1, 1, 1, 1, 1, if job < 50 { 65 } else { 1 }][job % 10];
        writeln!(text, "2017-10-03 {:02}:{:02}:00,{},{gpus}", job / 60, job % 60, 600 + job).unwrap();
    }
    pack(&folder.path().join("philly_jobs.csv.gz"), &text);
    let (stderr, rows) = rows_of(folder.path(), "Philly");
    assert!(stderr.contains("Philly: left out 5 of 200 drawn jobs: 5 on more than 8 GPUs"), "{stderr}");
    assert!(!rows.is_empty() && rows.iter().all(|row| row[JOBS] == "195"), "{rows:?}");
}

#[test]
fn gavels_jobs_without_throughput_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let speeds = "gpu_type,model,batch,gpus,steps_per_s\nv100,LM,5,1,10\nv100,LM,5,32,99\nk80,LM,5,1,2\n\
                  v100,LM,7,1,0\n";
    std::fs::write(folder.path().join("gavel_alone.csv"), speeds).unwrap();
    let mut jobs = "arrival_s,model,batch,gpus,steps\n".to_owned();
    for job in 0..50 {
        let what = ["LM,5,1", "LM,5,2", "GPT,5,1", "LM,5,1", "LM,5,32"][job % 5];
        writeln!(jobs, "{},{what},1000", job * 60).unwrap();
    }
    pack(&folder.path().join("gavel_msr_seed0.csv.gz"), &jobs);
    let (stderr, rows) = rows_of(folder.path(), "Gavel");
    for line in [
        "Gavel: only 50 jobs for --jobs 200",
        "Gavel: left out 2 of 4 throughputs: 1 of 0 steps a second (such as `LM batch 7` on 1 GPUs), 1 of \
         other GPUs than V100",
        "Gavel: left out 30 of 50 drawn jobs: 10 of kinds without a throughput on V100 (such as `GPT batch \
         5`), 10 of kinds without a throughput on their number of V100 (such as `LM batch 5` on 2 GPUs), 10 \
         on more than 8 GPUs",
    ] {
        assert_eq!(stderr.matches(line).count(), 1, "{line}\n{stderr}");
    }
    assert!(!rows.is_empty() && rows.iter().all(|row| row[JOBS] == "20"), "{rows:?}");
}

#[test]
fn traces_without_a_usable_job_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().to_str().unwrap().to_owned();
    let out = folder.path().join("results");
    let refused = |more: &[&str], message: &str| {
        let output = command(&out, "8", &[&["--traces", &traces], more].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && stderr.contains(message), "{message}\n{stderr}");
        assert!(!out.exists(), "nothing is written");
    };
    let philly = folder.path().join("philly_jobs.csv.gz");
    pack(&philly, "timestamp,duration,num_gpus\n");
    refused(&[], "philly_jobs.csv.gz: it has no rows after the header");
    pack(&philly, "timestamp,duration,num_gpus\n2017-10-06 00:00:00,60,65\n");
    refused(&[], "Philly: left out 1 of 1 jobs: 1 on more than 8 GPUs (such as 65 GPUs): no job is left");
    refused(&["--skip-philly", "1"], "--skip-philly 1: Philly's trace has 1 jobs");
    pack(&philly, "timestamp,duration,num_gpus\n2017-02-30 00:00:00,60,1\n");
    refused(&[], "line 2, column 1 (`timestamp`): `2017-02-30 00:00:00`, expected a time");
    std::fs::remove_file(philly).unwrap();
    let speeds = folder.path().join("gavel_alone.csv");
    std::fs::write(&speeds, "gpu_type,model,batch,gpus,steps_per_s\nk80,LM,5,1,2\n").unwrap();
    refused(&[], "Gavel: left out 1 of 1 throughputs: 1 of other GPUs than V100 (such as `k80`)");
    std::fs::write(&speeds, "gpu_type,model,batch,gpus,steps_per_s\nv100,LM,5,1,1e-300\n").unwrap();
    refused(&[], "`LM batch 5` on 1 V100: 0.000");
    std::fs::write(&speeds, "gpu_type,model,batch,gpus,steps_per_s\nv100,LM,5,1,2\n").unwrap();
    let jobs = "arrival_s,model,batch,gpus,steps\n0,LM,5,1,10\n1,GPT,5,1,10\n";
    pack(&folder.path().join("gavel_reference_jobs.csv.gz"), jobs);
    refused(&[], "1 of 2 have no throughput on their number of V100");
}

#[test]
fn invalid_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |more: &[&str], message: &str| {
        let output = command(folder.path(), "8", more);
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
    for (option, count, expected) in [
        ("--gpus", "12", "hosts of 8 GPUs"),
        ("--jobs", "9", "expected a whole number from 10 to 1000000"),
        ("--jobs", "18446744073709551615", "expected a whole number from 10 to 1000000"),
        ("--seeds", "0", "expected a whole number from 1 to 1000"),
        ("--seeds", "1000000", "expected a whole number from 1 to 1000"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_experiments")).args(["jigsaw", option, count]).output();
        let output = output.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && stderr.contains(expected), "{option} {count}: {stderr}");
    }
}
