//! The `coll-bench` command as its users see it: what it prints, writes and refuses.

use std::process::{Command, Output};
use std::time::Duration;

use collectives::{BenchReport, Collective, LinkModel};
use tempfile::TempDir;

/// As little as can be measured.
const QUICK: &str = "--rounds 2 --samples 1 --min-time 100us --backend threads";

fn coll_bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coll-bench")).args(arguments.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn succeed(arguments: &str) -> String {
    let output = coll_bench(arguments);
    assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{arguments}: quiet in a pipe");
    text(&output.stdout)
}

#[track_caller]
fn refused(arguments: &str, expected: &str) {
    let output = coll_bench(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
    assert!(message.contains(expected), "{arguments}: {message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{arguments}: {message}");
    assert!(output.stdout.is_empty(), "{arguments}");
}

#[test]
fn every_operation_is_measured_and_written_as_one_json_object() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("measured.json");
    let ops = Collective::ALL.map(Collective::name).join(",");
    let printed = succeed(&format!(
        "{QUICK} --ranks 2 --op {ops} --sizes 1000,4KiB --wait yield,park --json -o {}",
        file.display()
    ));
    assert_eq!(printed, std::fs::read_to_string(&file).unwrap());
    let report = BenchReport::load(&file).unwrap();
    assert!(report.machine.cores > 0 && !report.machine.processor.is_empty());
    // A barrier has one size.
    assert_eq!(report.rows.len(), (6 * 2 + 1) * 2);
    for row in &report.rows {
        assert_eq!((row.backend.as_str(), row.ranks, row.samples), ("threads", 2, 2), "{row:?}");
        assert!(row.time_us > 0.0 && row.iterations >= 2, "{row:?}");
        assert!(row.time_p10_us <= row.time_us && row.time_us <= row.time_p90_us, "{row:?}");
        assert!(matches!(row.wait.as_deref(), Some("yield" | "park")), "{row:?}");
        let bus_factor = match row.op {
            Collective::AllReduce | Collective::Broadcast | Collective::Send => 1.0,
            Collective::Barrier => {
                assert_eq!((row.bytes, row.bus_bandwidth_gb_s), (0, None));
                continue;
            }
            _ => 0.5,
        };
        assert!([1000, 4096].contains(&row.bytes), "{row:?}");
        let expected = bus_factor * row.bytes as f64 / row.time_us / 1e3;
        let bandwidth = row.bus_bandwidth_gb_s.unwrap();
        assert!((bandwidth / expected - 1.0).abs() < 1e-9, "{row:?}");
        assert_eq!(row.copy_us.is_some(), row.op == Collective::AllReduce, "{row:?}");
        assert_eq!(row.copy_bound_share.is_some(), row.op == Collective::AllReduce, "{row:?}");
    }
}

#[test]
fn buffers_are_whole_elements_for_each_rank() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("three.json");
    succeed(&format!(
        "{QUICK} --ranks 3,2 --op all-gather,send,all-reduce --sizes 1KiB --wait park -o {}",
        file.display()
    ));
    let rows = BenchReport::load(&file).unwrap().rows;
    let measured: Vec<_> = rows.iter().map(|row| (row.op, row.ranks, row.bytes)).collect();
    let expected = [
        (Collective::AllReduce, 2, 1024),
        (Collective::AllReduce, 3, 1024),
        (Collective::AllGather, 2, 1024),
        (Collective::AllGather, 3, 1020),
        // Between two ranks, and once, whatever the group sizes.
        (Collective::Send, 2, 1024),
    ];
    assert_eq!(measured, expected);
}

#[test]
fn tables_name_the_test_and_the_units() {
    let shown = succeed(&format!("{QUICK} --ranks 2 --op all-reduce,barrier --sizes 4KiB --wait yield"));
    for expected in [
        "# coll-bench: all-reduce, sum of f32, 2 ranks, ",
        " cores\n",
        "median (us)  p10 (us)  p90 (us)  bus (GB/s)  copy (us)  copy/this",
        " 4 KiB  threads  yield  ",
        "# coll-bench: barrier, 2 ranks, ",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn without_mpi_it_says_how_to_have_it() {
    for backend in ["mpi", "open-mpi", "threads,mpi"] {
        refused(
            &format!("--ranks 2 --backend {backend}"),
            "built without MPI: install Open MPI and libclang",
        );
    }
}

#[cfg(feature = "mpi")]
#[test]
fn processes_take_turns_with_threads() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("both.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_coll-bench"));
    command.args("--rounds 2 --samples 1 --min-time 100us --ranks 3 --wait yield".split_whitespace());
    command.args(["--op", &Collective::ALL.map(Collective::name).join(","), "--sizes", "4KiB"]);
    command.args(["--backend", "threads,open-mpi,mpi", "-o", &file.display().to_string()]);
    // As `mpirun` wants it told where everybody is root.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let output = command.output().unwrap();
    if text(&output.stderr).contains("there is no `mpirun` in PATH") {
        println!("SKIPPED: there is no mpirun");
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("copy/this  open-mpi/this"), "{}", text(&output.stdout));
    let rows = BenchReport::load(&file).unwrap().rows;
    assert_eq!(rows.len(), 3 * Collective::ALL.len());
    for row in &rows {
        let is_peer = row.backend == "open-mpi";
        assert_eq!(row.wait.as_deref(), if is_peer { None } else { Some("yield") }, "{row:?}");
        assert_eq!(row.speedup_over_open_mpi.is_none(), is_peer, "{row:?}");
        assert_eq!((row.samples, row.ranks), (2, if row.op == Collective::Send { 2 } else { 3 }), "{row:?}");
        assert!(row.speedup_over_open_mpi.is_none_or(|speedup| speedup > 0.0), "{row:?}");
    }
}

#[cfg(feature = "mpi")]
#[test]
fn without_mpirun_it_says_where_it_was_looked_for() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coll-bench"));
    let output = command.args(["--backend", "open-mpi"]).env("PATH", "/nowhere").output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("there is no `mpirun` in PATH (/nowhere)"), "{message}");
}

#[test]
fn what_was_measured_is_fitted() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    // A link of 4 us, 2 us a step and 1 GB/s, measured exactly, by two ways of waiting.
    let link = LinkModel::new("exact", Duration::from_micros(4), Duration::from_micros(2), 1e9).unwrap();
    let row = |ranks: usize, bytes: u64, wait: &str| {
        let time_us = link.all_reduce(ranks, bytes).as_secs_f64() * 1e6;
        format!(
            r#"{{"backend": "threads", "wait": "{wait}", "op": "all-reduce", "ranks": {ranks}, "bytes": {bytes},
                "time_us": {time_us}, "time_p10_us": 1, "time_p90_us": 2, "samples": 1, "iterations": 1}}"#
        )
    };
    let report = |name: &str, ranks: &[usize], wait: &str| {
        let sizes = [4096, 1 << 20];
        let rows: Vec<_> =
            ranks.iter().flat_map(|&ranks| sizes.map(|bytes| row(ranks, bytes, wait))).collect();
        let (machine, rows) = (r#"{"processor": "x", "cores": 2}"#, rows.join(","));
        let schema = "deeppool/coll-bench/v1";
        let json = format!(r#"{{"schema": "{schema}", "machine": {machine}, "rows": [{rows}]}}"#);
        std::fs::write(file(name), json).unwrap();
    };
    report("two.json", &[2], "park");
    report("four.json", &[4], "park");
    report("spin.json", &[2, 4], "spin");
    let [two, four, spin] = ["two.json", "four.json", "spin.json"].map(file);

    let shown = succeed(&format!("fit {two} {four} --name mine"));
    assert!(shown.starts_with("# mine: fitted to 4 times of threads, park; error 0.0% (median)"), "{shown}");
    assert!(shown.contains("startup          4.00 us\nlatency          2.00 us a step\n"), "{shown}");
    assert!(shown.contains("bandwidth        1.00 GB/s\n"), "{shown}");

    let fitted = succeed(&format!("fit {two} {four} {spin} --wait spin --json"));
    let fitted: serde_json::Value = serde_json::from_str(&fitted).unwrap();
    assert!((fitted["bandwidth_bytes_per_s"].as_f64().unwrap() / 1e9 - 1.0).abs() < 1e-3, "{fitted}");
    assert!(fitted["worst_error"].as_f64().unwrap() < 1e-3, "{fitted}");
    assert_eq!(fitted["rows"].as_array().unwrap().len(), 4);

    refused(&format!("fit {two} {four} {spin}"), "threads, park; threads, spin: choose one with --backend");
    refused(&format!("fit {two} {four} --backend mpi"), "no such measurements");
    refused(&format!("fit {four}"), "at least 3 of them");
    refused(&format!("fit {}", file("none.json")), "none.json");
    refused("fit", "required");
}

#[test]
fn what_the_command_writes_it_reads() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("measured.json").display().to_string();
    succeed(&format!("{QUICK} --ranks 2,4 --sizes 4KiB,1MiB --wait park -o {file}"));
    // Whatever the times: how well they fit is for people to judge.
    let output = coll_bench(&format!("fit {file}"));
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("times of threads, park") || said.contains("no link can be fitted"), "{said}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    refused("--ranks 1", "fewer than 2 ranks");
    refused("--ranks two", "invalid");
    refused("--sizes 4KB", "4KiB, 64MiB or 65536");
    refused("--sizes 0", "above 0");
    refused("--sizes 3", "3 B are too few for all-reduce");
    refused("--sizes 99999999999GiB", "above 0");
    refused("--op all-reduce --sizes 8 --op all-gather --ranks 3", "give at least 12 B");
    refused("--op scan", "there is no collective \"scan\"");
    refused("--backend smoke-signals", "threads");
    refused("--wait patiently", "spin, yield, park");
    refused("--rounds 0", "--rounds has to be at least 1");
    refused("--samples 0", "--samples has to be at least 1");
    refused("--min-time 5", "60ms");
    refused("-o nowhere/measured.json", "the folder `nowhere` does not exist");
}

#[test]
fn other_files_are_no_reports() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("report.json");
    let error = |content: &str| {
        std::fs::write(&file, content).unwrap();
        BenchReport::load(&file).unwrap_err().to_string()
    };
    assert!(error(r#"{"schema": "deeppool/plan/v1"}"#).contains("schema: expected the schema"));
    let machine = r#""machine": {"processor": "x", "cores": 2}"#;
    let schema = r#""schema": "deeppool/coll-bench/v1""#;
    let row = |op: &str| {
        format!("{{{schema}, {machine}, \"rows\": [{{\"backend\": \"threads\", \"op\": \"{op}\"}}]}}")
    };
    assert!(error(&row("all-reduce")).contains("rows[0]: missing field `ranks`"));
    assert!(error(&row("scan")).contains("rows[0].op: unknown variant `scan`"));
    assert!(error("").contains("report.json: "));
    let missing = BenchReport::load(folder.path().join("none.json")).unwrap_err().to_string();
    assert!(missing.contains("none.json: "), "{missing}");
}

#[test]
fn help_has_examples() {
    let help = succeed("--help");
    assert!(help.contains("Examples:\n  coll-bench --ranks 4"), "{help}");
    assert!(help.contains("nccl-tests"), "{help}");
}
