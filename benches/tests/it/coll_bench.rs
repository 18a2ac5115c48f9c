//! Tests of the `coll-bench` command: output, files and errors.

#[cfg(feature = "mpi")]
use std::process::Output;
use std::time::Duration;

use benches::coll::{CollOperation, CollReport};
use collectives::{CollectiveKind, LinkModel};
use tempfile::TempDir;

use crate::command::{Bench, text};

/// The shortest measurement.
const QUICK: &str = "--rounds 2 --samples 1 --min-time 100us --backend threads";

const BENCH: Bench = Bench(env!("CARGO_BIN_EXE_coll-bench"));

#[test]
fn every_operation_is_measured_and_written_as_json() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("measured.json");
    let ops = CollectiveKind::ALL.map(CollectiveKind::name).join(",");
    let printed = BENCH.succeed_with_warning(
        "of 14 operations, 0 have a size that is rounded down to whole elements for each rank, and 1 are",
        &format!(
            "{QUICK} --ranks 2 --op {ops} --sizes 1000,4KiB --wait yield,park --json -o {}",
            file.display()
        ),
    );
    assert_eq!(printed, std::fs::read_to_string(&file).unwrap());
    let report = CollReport::load(&file).unwrap();
    assert!(report.machine.cores > 0 && !report.machine.processor.is_empty());
    // A barrier has one size.
    assert_eq!(report.rows.len(), (6 * 2 + 1) * 2);
    for row in &report.rows {
        assert_eq!((row.backend.as_str(), row.ranks, row.samples), ("threads", 2, 2), "{row:?}");
        assert!(row.time_us > 0.0 && row.iterations >= 2, "{row:?}");
        assert!(row.time_p10_us <= row.time_us && row.time_us <= row.time_p90_us, "{row:?}");
        assert!(matches!(row.wait.as_deref(), Some("yield" | "park")), "{row:?}");
        let CollOperation::Collective(op) = row.op else { panic!("{row:?} was not asked for") };
        let bus_factor = match op {
            CollectiveKind::AllReduce | CollectiveKind::Broadcast | CollectiveKind::Send => 1.0,
            CollectiveKind::Barrier => {
                assert_eq!((row.bytes, row.bus_bandwidth_gb_s), (0, None));
                continue;
            }
            _ => 0.5,
        };
        assert!([1000, 4096].contains(&row.bytes), "{row:?}");
        let expected = bus_factor * row.bytes as f64 / row.time_us / 1e3;
        let bandwidth = row.bus_bandwidth_gb_s.unwrap();
        assert!((bandwidth / expected - 1.0).abs() < 1e-9, "{row:?}");
        assert_eq!(row.copy_us.is_some(), op == CollectiveKind::AllReduce, "{row:?}");
        assert_eq!(row.copy_bound_share.is_some(), op == CollectiveKind::AllReduce, "{row:?}");
        assert_eq!(row.strided_copy_us, None, "{row:?}");
    }
}

#[test]
fn redistributions_are_compared_with_both_copies() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("measured.json");
    // A matrix of three ranks has 1023 columns.
    let shown = BENCH.succeed_with_warning(
        "of 4 operations, 2 have a size that is rounded down to whole elements for each rank, and 0 are",
        &format!(
            "{QUICK} --ranks 2,3 --op redistribution --sizes 4KiB,8KiB --wait park -o {}",
            file.display()
        ),
    );
    let heading = "# coll-bench: redistribution of a matrix from rows to columns, f32, 3 ranks, ";
    for expected in [heading, "bus (GB/s)  copy (us)  copy/this  strided (us)\n"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let rows = CollReport::load(&file).unwrap().rows;
    let measured: Vec<_> = rows.iter().map(|row| (row.op, row.ranks, row.bytes)).collect();
    let sizes = [(2, 4096), (2, 8192), (3, 4092), (3, 8184)];
    assert_eq!(measured, sizes.map(|(ranks, bytes)| (CollOperation::Redistribution, ranks, bytes)));
    for row in &rows {
        let positive = |us: Option<f64>| us.is_some_and(|us| us > 0.0);
        assert!(positive(row.copy_us) && positive(row.strided_copy_us), "{row:?}");
        assert!(positive(row.copy_bound_share) && positive(row.bus_bandwidth_gb_s), "{row:?}");
    }
    // Times of redistributions are not those of a collective.
    BENCH.refused(&format!("fit {}", file.display()), "the files hold no such measurements");
}

#[test]
fn sizes_are_rounded_down_to_whole_elements_for_each_rank() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("three.json");
    BENCH.succeed_with_warning(
        "of 6 operations, 1 have a size that is rounded down to whole elements for each rank, and 1 are",
        &format!(
            "{QUICK} --ranks 3,2 --op all-gather,send,all-reduce --sizes 1KiB --wait park -o {}",
            file.display()
        ),
    );
    let rows = CollReport::load(&file).unwrap().rows;
    let measured: Vec<_> = rows.iter().map(|row| (row.op, row.ranks, row.bytes)).collect();
    let expected = [
        (CollectiveKind::AllReduce, 2, 1024),
        (CollectiveKind::AllReduce, 3, 1024),
        (CollectiveKind::AllGather, 2, 1024),
        (CollectiveKind::AllGather, 3, 1020),
        // A send is measured once, between two ranks, for all group sizes.
        (CollectiveKind::Send, 2, 1024),
    ];
    let collective = |(op, ranks, bytes)| (CollOperation::Collective(op), ranks, bytes);
    assert_eq!(measured, expected.map(collective));
}

#[test]
fn tables_contain_operation_and_units() {
    let shown =
        BENCH.succeed(&format!("{QUICK} --ranks 2 --op all-reduce,barrier --sizes 4KiB --wait yield"));
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

#[test]
fn tables_note_that_spinning_ranks_yield_on_too_few_cores() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let note = "# more ranks than cores: ranks that spin give their core away";
    let printed = |ranks: usize, wait: &str| {
        BENCH.succeed(&format!("{QUICK} --ranks {ranks} --sizes 4KiB --wait {wait}"))
    };
    assert!(printed(cores + 1, "spin").contains(note));
    assert!(!printed(cores + 1, "park").contains(note));
    if cores > 1 {
        assert!(!printed(2, "spin").contains(note));
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_names_the_remedy() {
    for backend in ["mpi", "open-mpi", "threads,mpi"] {
        BENCH.refused(
            &format!("--ranks 2 --backend {backend}"),
            "built without MPI: install Open MPI and libclang",
        );
    }
}

#[cfg(feature = "mpi")]
#[test]
fn processes_are_measured_beside_threads() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("both.json");
    let mut command = BENCH.command();
    command.args("--rounds 2 --samples 1 --min-time 100us --ranks 3 --wait yield".split_whitespace());
    let ops = CollectiveKind::ALL.map(CollectiveKind::name).join(",") + ",redistribution";
    command.args(["--op", &ops, "--sizes", "4KiB"]);
    command.args(["--backend", "threads,open-mpi,mpi", "-o", &file.display().to_string()]);
    // Required by `mpirun` if the user is root.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let output = command.output().unwrap();
    if text(&output.stderr).contains("there is no `mpirun` in PATH") {
        println!("SKIPPED: there is no mpirun");
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("copy/this  open-mpi/this"), "{}", text(&output.stdout));
    let rows = CollReport::load(&file).unwrap().rows;
    assert_eq!(rows.len(), 3 * (CollectiveKind::ALL.len() + 1));
    for row in &rows {
        let is_peer = row.backend == "open-mpi";
        assert_eq!(row.wait.as_deref(), if is_peer { None } else { Some("yield") }, "{row:?}");
        assert_eq!(row.speedup_over_open_mpi.is_none(), is_peer, "{row:?}");
        assert_eq!(
            (row.samples, row.ranks),
            (2, if row.op == CollOperation::Collective(CollectiveKind::Send) { 2 } else { 3 }),
            "{row:?}"
        );
        assert!(row.speedup_over_open_mpi.is_none_or(|speedup| speedup > 0.0), "{row:?}");
    }
}

#[cfg(feature = "mpi")]
#[test]
fn a_missing_mpirun_is_reported_with_the_searched_path() {
    let mut command = BENCH.command();
    let output = command.args(["--backend", "open-mpi"]).env("PATH", "/nowhere").output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("there is no `mpirun` in PATH (/nowhere)"), "{message}");
}

/// Runs a short measurement with this script as `mpirun`.
#[cfg(feature = "mpi")]
fn with_mpirun(script: &str, arguments: &str) -> Output {
    use std::os::unix::fs::PermissionsExt;

    let folder = TempDir::new().unwrap();
    let mpirun = folder.path().join("mpirun");
    std::fs::write(&mpirun, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&mpirun, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = BENCH.command();
    command.args("--rounds 1 --samples 1 --min-time 100us --ranks 2 --sizes 4KiB --wait park".split(' '));
    command.args(arguments.split_whitespace()).env("PATH", folder.path()).output().unwrap()
}

#[cfg(feature = "mpi")]
#[test]
fn threads_are_measured_alone_if_mpirun_fails() {
    let script = "echo 'not as root' >&2; exit 1";
    let default = with_mpirun(script, "");
    let message = text(&default.stderr);
    assert!(default.status.success(), "{message}");
    assert!(text(&default.stdout).contains(" 4 KiB  threads  park"), "{}", text(&default.stdout));
    assert!(message.starts_with("threads only: ") && message.ends_with("not as root\n"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");

    let asked = with_mpirun(script, "--backend threads,open-mpi");
    let message = text(&asked.stderr);
    assert_eq!(asked.status.code(), Some(2), "{message}");
    assert!(message.contains("mpirun: not as root") && asked.stdout.is_empty(), "{message}");
}

#[cfg(feature = "mpi")]
#[test]
fn measurements_before_a_failure_are_printed() {
    let only_the_first = r#"case "$*" in *--version) ;; *) echo 'out of slots' >&2; exit 1 ;; esac"#;
    let output = with_mpirun(only_the_first, "");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(text(&output.stdout).contains(" 4 KiB  threads  park"), "{}", text(&output.stdout));
    assert!(message.ends_with("mpirun: out of slots\n"), "{message}");
}

#[test]
fn a_fit_recovers_the_link_of_exact_times() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    // An exactly measured link of 4 us, 2 us a step and 1 GB/s, with two wait strategies.
    let link = LinkModel::new("exact", Duration::from_micros(4), Duration::from_micros(2), 1e9).unwrap();
    let row = |ranks: usize, bytes: u64, wait: &str| {
        let time_us = link.all_reduce(ranks, bytes).as_secs_f64() * 1e6;
        format!(
            r#"{{"backend": "threads", "wait": "{wait}", "op": "all-reduce", "ranks": {ranks},
                "bytes": {bytes}, "time_us": {time_us}, "time_p10_us": 1,
                "time_p90_us": 2, "samples": 1, "iterations": 1}}"#
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

    let printed = BENCH.succeed(&format!("fit {two} {four} --name mine"));
    let heading = "# mine: fitted to 4 times of threads, park; error 0.0% (median)";
    assert!(printed.starts_with(heading), "{printed}");
    assert!(printed.contains("startup          4.00 us\nlatency          2.00 us a step\n"), "{printed}");
    assert!(printed.contains("bandwidth        1.00 GB/s\n"), "{printed}");

    BENCH.succeed(&format!("fit {two} {four} --name mine -o {}", file("link.json")));
    let read = |path| LinkModel::from_json(&std::fs::read_to_string(path).unwrap()).unwrap();
    let written = read(file("link.json"));
    // The name of the file may be any.
    BENCH.succeed(&format!("fit {two} {four} --name mine -o {}", file("link")));
    assert_eq!(read(file("link")), written);
    assert_eq!((written.name(), written.relative_error().map(|error| error < 1e-3)), ("mine", Some(true)));
    assert!(written.all_reduce(4, 4096).abs_diff(link.all_reduce(4, 4096)) < Duration::from_nanos(100));

    let fitted = BENCH.succeed(&format!("fit {two} {four} {spin} --wait spin --json"));
    let fitted: serde_json::Value = serde_json::from_str(&fitted).unwrap();
    assert!((fitted["bandwidth_bytes_per_s"].as_f64().unwrap() / 1e9 - 1.0).abs() < 1e-3, "{fitted}");
    assert!(fitted["worst_error"].as_f64().unwrap() < 1e-3, "{fitted}");
    assert_eq!(fitted["rows"].as_array().unwrap().len(), 4);

    BENCH.refused(
        &format!("fit {two} {four} {spin}"),
        "threads, park; threads, spin: choose one with --backend",
    );
    let elsewhere = std::fs::read_to_string(&two).unwrap().replace(r#""cores": 2"#, r#""cores": 64"#);
    std::fs::write(file("elsewhere.json"), elsewhere).unwrap();
    BENCH.refused(
        &format!("fit {four} {}", file("elsewhere.json")),
        &format!("elsewhere.json was measured on another machine (x, 64 cores) than {four} (x, 2 cores)"),
    );
    BENCH.refused(&format!("fit {two} {four} --backend mpi"), "no such measurements");
    BENCH.refused(&format!("fit {four}"), "at least 3 are needed");
    BENCH.refused(&format!("fit {}", file("none.json")), "none.json");
    BENCH.refused("fit", "required");
}

#[test]
fn fit_reads_the_files_that_the_command_writes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("measured.json").display().to_string();
    BENCH.succeed(&format!("{QUICK} --ranks 2,4 --sizes 4KiB,1MiB --wait park -o {file}"));
    // The quality of the fit is not tested.
    let output = BENCH.output(&format!("fit {file}"));
    let shown = text(&output.stdout) + &text(&output.stderr);
    assert!(shown.contains("times of threads, park") || shown.contains("no link can be fitted"), "{shown}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    BENCH.refused("--ranks 1", "fewer than 2 ranks");
    BENCH.refused("--ranks two", "invalid");
    BENCH.refused("--sizes 4KB", "4KiB, 64MiB or 65536");
    BENCH.refused("--sizes 0", "above 0");
    BENCH.refused("--sizes 3", "3 B are too few for all-reduce");
    BENCH.refused("--sizes 99999999999GiB", "above 0");
    BENCH.refused("--op all-reduce --sizes 8 --op all-gather --ranks 3", "give at least 12 B");
    BENCH.refused("--op redistribution --sizes 4095", "too few for redistribution among 4 ranks");
    BENCH.refused("--op scan", "there is no collective \"scan\"");
    BENCH.refused("--backend smoke-signals", "threads");
    BENCH.refused("--wait patiently", "spin, yield, park");
    BENCH.refused("--rounds 0", "--rounds has to be from 1 to 10000");
    BENCH.refused("--samples 0", "--samples has to be from 1 to 10000");
    BENCH.refused("--min-time 5", "60ms");
    BENCH.refused("--ranks 4611686018427387904 --op all-gather", "at most 1024 ranks");
    BENCH.refused("--ranks 1000000000000", "at most 1024 ranks");
    BENCH.refused("--sizes 10000000000GiB", "no memory for all-reduce of 10000000000 GiB among 4 ranks");
    BENCH.refused("--sizes 100000GiB --op send", "no memory for send");
}

#[test]
fn unwritable_files_are_refused_before_measuring() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    // The measurement itself would take far too long.
    let long = "--rounds 10000 -o";
    BENCH.refused(&format!("{long} {}", folder.path().display()), "this is a folder: give a file in it");
    BENCH.refused(&format!("{long} {}", path("no/such.json").display()), "does not exist: make it first");
    // The sizes are refused before or after the check of the file. No file is created or changed.
    std::fs::write(path("old.json"), "old").unwrap();
    for name in ["old.json", "new.json"] {
        let arguments = format!("--sizes 9GiB --backend mpi -o {}", path(name).display());
        assert_eq!(BENCH.output(&arguments).status.code(), Some(2));
    }
    assert_eq!(std::fs::read_to_string(path("old.json")).unwrap(), "old");
    assert!(!path("new.json").exists());
}

#[test]
fn results_are_printed_if_the_file_cannot_be_written() {
    let output = BENCH.output(&format!("{QUICK} --ranks 2 --sizes 4KiB --wait park -o /dev/full"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("# coll-bench: all-reduce"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("/dev/full: "), "{}", text(&output.stderr));
}

#[test]
fn a_dash_writes_to_standard_output_and_links_are_kept() {
    let measure = format!("{QUICK} --ranks 2 --sizes 4KiB --wait park");
    let output = BENCH.output(&format!("{measure} -o -"));
    assert!(text(&output.stderr).contains("# coll-bench: all-reduce"), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "deeppool/coll-bench/v1");
    BENCH.refused(&format!("{measure} --json -o -"), "--json prints to standard output");

    let folder = TempDir::new().unwrap();
    let (file, link) = (folder.path().join("file.json"), folder.path().join("link.json"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    BENCH.succeed(&format!("{measure} -o {}", link.display()));
    assert!(link.is_symlink() && CollReport::load(&file).is_ok());
}

#[test]
fn files_of_other_formats_are_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("report.json");
    let error = |content: &str| {
        std::fs::write(&file, content).unwrap();
        CollReport::load(&file).unwrap_err().to_string()
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
    let missing = CollReport::load(folder.path().join("none.json")).unwrap_err().to_string();
    assert!(missing.contains("none.json: "), "{missing}");
}

#[test]
fn help_contains_examples() {
    let help = BENCH.succeed("--help");
    assert!(help.contains("Examples:\n  coll-bench --ranks 4"), "{help}");
    assert!(help.contains("nccl-tests"), "{help}");
}
