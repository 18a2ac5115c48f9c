//! Tests of the `mux-bench` command: output, files and errors.

use std::process::Stdio;

use benches::mux::{Calibration, Chain, MuxReport};
use gpu_mux::{Device, DeviceParameters, JobId, Kernel, ParametersFile, Tasklet, VirtualDevice, VirtualWork};
use tempfile::TempDir;

use crate::command::{Bench, text};

const BENCH: Bench = Bench(env!("CARGO_BIN_EXE_mux-bench"));

#[test]
fn every_preset_and_technique_has_a_row() {
    let table = BENCH.succeed("--iterations 3");
    for name in ["naive", "deeppool", "default", "+ captured graphs", "modelled, in virtual time", "BG/idle"]
    {
        assert!(table.contains(name), "{name}: {table}");
    }
}

#[test]
fn results_are_printed_written_and_drawn() {
    let folder = TempDir::new().unwrap();
    let (json, svg) = (folder.path().join("found.json"), folder.path().join("found.svg"));
    let policies = "--policy default --policy priority --policy naive";
    let arguments = format!(
        "--device virtual {policies} --iterations 5 --json --out {} --svg {}",
        json.display(),
        svg.display()
    );
    let printed = BENCH.succeed(&arguments);
    assert_eq!(printed, std::fs::read_to_string(&json).unwrap());
    assert_eq!(printed, BENCH.succeed(&arguments), "the output is deterministic");
    assert!(printed.contains("\"schema\": \"deeppool/mux-bench/v1\""));
    let report = MuxReport::load(&json).unwrap();
    assert!(report.modelled && report.parameters == Some(DeviceParameters::a100()));
    let names: Vec<_> = report.rows.iter().map(|row| row.policy.as_str()).collect();
    assert_eq!(names, ["default", "priority", "naive"]);
    for row in &report.rows {
        assert!(row.modelled && row.iterations == 5, "{row:?}");
        assert!(row.foreground_slowdown >= 1.0 && row.foreground_slowdown_p99 >= 1.0, "{row:?}");
        assert!((0.0..=1.0).contains(&row.background_share_of_idle), "{row:?}");
        assert!(row.background_samples_per_s <= row.background_alone_samples_per_s, "{row:?}");
    }
    let slowdown: Vec<_> = report.rows.iter().map(|row| row.foreground_slowdown).collect();
    assert!(slowdown[0] < slowdown[1] && slowdown[1] < slowdown[2], "{slowdown:?}");
    let image = std::fs::read_to_string(svg).unwrap();
    assert!(image.starts_with("<svg") && image.contains("naive"));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for arguments in [&["--iterations", "1"][..], &["--iterations", "1", "--json"], &["--help"]] {
        let mut command = BENCH.command();
        let mut bench =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(bench.stdout.take());
        let output = bench.wait_with_output().unwrap();
        let message = text(&output.stderr);
        assert!(output.status.success() && message.is_empty(), "{arguments:?}: {message}");
    }
}

#[test]
fn bad_input_is_one_line_with_the_cause() {
    BENCH.refused("--policy best", "no policy \"best\": there are \"naive\", ");
    BENCH.refused("--iterations 0", "--iterations");
    BENCH.refused("--workload /nowhere/w.json", "/nowhere/w.json: ");
    BENCH.refused("--parameters /nowhere/p.json", "/nowhere/p.json: ");
    BENCH.refused("--out /nowhere/out.json", "/nowhere/out.json: the folder `/nowhere` does not exist");
    BENCH.refused("fit /nowhere/m.json", "/nowhere/m.json: ");
    BENCH.refused("--device cpu --ranks 100000", "--ranks 100000: at most ");
    BENCH.refused("--device cpu --ranks 0", "--ranks");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("virtual.json");
    BENCH.succeed(&format!("--policy default --iterations 1 --json --out {}", file.display()));
    BENCH.refused(&format!("fit {}", file.display()), "no calibration in it");
    let (both, folder) = (folder.path().join("both"), folder.path().display());
    BENCH.refused(&format!("--out {folder}/both --svg {folder}/./both"), "two results go here");
    assert!(!both.exists());
}

/// Returns the calibration that a GPU with these parameters would measure.
fn calibration_of(parameters: DeviceParameters) -> Calibration {
    let kernel = Kernel::new(std::time::Duration::from_micros(10), 1.0, 0.0).unwrap();
    let chain = |captured: bool, kernels: u32| {
        let mut device = VirtualDevice::new(parameters).unwrap();
        let work = VirtualWork::Compute { kernels: vec![kernel; kernels as usize].into(), captured };
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work).unwrap();
        let node = parameters.graph_node_time * kernels;
        let launch =
            if captured { parameters.graph_launch_time + node } else { parameters.launch_time * kernels };
        device.wait(None).unwrap();
        let us = |time: std::time::Duration| time.as_nanos() as f64 / 1e3;
        Chain { captured, kernels, launch_us: us(launch), total_us: us(device.now()) }
    };
    Calibration {
        multiprocessors: parameters.multiprocessors,
        hardware_queues: parameters.hardware_queues,
        kernel_us: 10.0,
        chains: [false, true]
            .into_iter()
            .flat_map(|captured| [1, 10, 100].map(|kernels| chain(captured, kernels)))
            .collect(),
        kernel_time_errors: None,
        sharing: None,
    }
}

#[test]
fn a_fit_recovers_the_parameters_of_exact_times() {
    let folder = TempDir::new().unwrap();
    let (from, to) = (folder.path().join("card.json"), folder.path().join("fitted.json"));
    let truth = DeviceParameters {
        multiprocessors: 132,
        launch_time: std::time::Duration::from_nanos(2_300),
        kernel_gap: std::time::Duration::from_nanos(1_100),
        ..DeviceParameters::a100()
    };
    let mut report = MuxReport::new("a card".to_owned(), false, "none".to_owned(), Vec::new());
    report.calibration = Some(calibration_of(truth));
    std::fs::write(&from, report.to_json()).unwrap();
    BENCH.succeed(&format!("fit {} --out {}", from.display(), to.display()));
    let fitted = ParametersFile::from_json(&std::fs::read_to_string(&to).unwrap()).unwrap();
    assert_eq!(fitted.device, "fitted to a card");
    assert_eq!(fitted.parameters, truth);
    // A run uses the fitted parameters.
    let run = BENCH.succeed(&format!("--policy default --iterations 1 --json --parameters {}", to.display()));
    assert!(run.contains("\"multiprocessors\": 132") && run.contains("fitted to a card"));
    let text = std::fs::read_to_string(&to).unwrap();
    for (field, cause) in [
        (r#""kernel_time": 0, "device""#, "kernel_time is 0, expected from 0.001 to 1000"),
        (r#""kernel_time": null, "device""#, "kernel_time: "),
    ] {
        std::fs::write(&to, text.replace(r#""device""#, field)).unwrap();
        BENCH.refused(&format!("--parameters {}", to.display()), cause);
    }
    std::fs::write(&to, text.replace(r#""multiprocessors""#, r#""jitter_us": -1, "multiprocessors""#))
        .unwrap();
    BENCH.refused(&format!("--parameters {}", to.display()), "expected a time of at least 0 us, got -1");
    std::fs::write(&to, text.replace("132", "0")).unwrap();
    BENCH.refused(&format!("--parameters {}", to.display()), "multiprocessors is 0, expected at least 1");

    report.calibration.as_mut().unwrap().kernel_us = 2.0;
    std::fs::write(&from, report.to_json()).unwrap();
    BENCH.refused(
        &format!("fit {}", from.display()),
        "kernel_us is 2, expected more than the host takes to launch",
    );
    report.calibration.as_mut().unwrap().chains.truncate(2);
    std::fs::write(&from, report.to_json()).unwrap();
    BENCH.refused(
        &format!("fit {}", from.display()),
        "captured chains is 0, expected at least two of different lengths",
    );
}

/// Measurement of all policies on an H200.
const H200: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../benchmarks/2026-11-26-nvidia-h200/mux-bench.json");

/// Workload of the measurement: that of an earlier link model.
const H200_WORKLOAD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../benchmarks/2026-11-26-nvidia-h200/workload.json");

/// The virtual device is fitted to the H200's launches and to its foreground alone. Nothing is
/// fitted to runs of both jobs.
#[test]
fn the_fitted_virtual_device_reproduces_the_policies_measured_on_an_h200() {
    let folder = TempDir::new().unwrap();
    let (fitted, modelled) = (folder.path().join("fitted.json"), folder.path().join("modelled.json"));
    BENCH.succeed(&format!("fit {H200} --workload {H200_WORKLOAD} --out {}", fitted.display()));
    let parameters = std::fs::read_to_string(&fitted).unwrap();
    let file = ParametersFile::from_json(&parameters).unwrap();
    assert!((1.07..1.08).contains(&file.kernel_time), "{parameters}");
    assert!((900..1_000).contains(&file.parameters.jitter.as_nanos()), "{parameters}");
    let run = format!(
        "--workload {H200_WORKLOAD} --parameters {} --iterations 1000 --out {}",
        fitted.display(),
        modelled.display()
    );
    BENCH.succeed(&run);
    let (measured, modelled) = (MuxReport::load(H200).unwrap(), MuxReport::load(&modelled).unwrap());
    assert_eq!(modelled.kernel_time, Some(file.kernel_time));
    assert_eq!(measured.rows.len(), modelled.rows.len());
    for (measured, modelled) in measured.rows.iter().zip(&modelled.rows) {
        let (policy, alone) = (&measured.policy, measured.foreground_alone_us);
        assert_eq!(policy, &modelled.policy);
        assert!((modelled.foreground_alone_us / alone - 1.0).abs() < 0.002, "{policy}");
        let error = (modelled.foreground_slowdown - measured.foreground_slowdown).abs();
        assert!(error < if policy == "naive" { 0.1 } else { 0.03 }, "{policy}: {error}");
        let error = (modelled.background_share_of_idle - measured.background_share_of_idle).abs();
        assert!(error < 0.1, "{policy}: share of idle {error}");
    }
}

#[test]
fn a_fit_refuses_a_foreground_that_the_workload_does_not_explain() {
    let folder = TempDir::new().unwrap();
    let (file, other) = (folder.path().join("card.json"), folder.path().join("workload.json"));
    let refused = |change: fn(&mut MuxReport), options: &str, cause: &str| {
        let mut report = MuxReport::load(H200).unwrap();
        change(&mut report);
        std::fs::write(&file, report.to_json()).unwrap();
        BENCH.refused(&format!("fit {}{options}", file.display()), cause);
    };
    refused(|report| report.workload.push('s'), "", "give its file with --workload");
    let workload = r#"{"schema": "deeppool/workload/v1", "name": "small",
        "foreground": {"samples": 1, "steps": [{"name": "a", "lane": "compute",
            "kernels": [{"time_us": 10, "share": 1, "memory": 0}]}]},
        "background": {"samples": 1, "steps": [{"name": "b", "lane": "compute",
            "kernels": [{"time_us": 10, "share": 1, "memory": 0}]}]}}"#;
    std::fs::write(&other, workload).unwrap();
    refused(
        |report| report.workload = "small".to_owned(),
        &format!(" --workload {}", other.display()),
        "kernels would take less than 0.5 or more than 2 times as long as in the workload",
    );
    refused(|report| report.rows[0].foreground_alone_p99_us = 0.0, "", "with a 99th percentile");
}

#[test]
fn a_missing_gpu_is_reported_in_one_line() {
    let mut command = BENCH.command();
    let output = command
        .args(["--device", "cuda"])
        .env("CUDA_DRIVER_LIBRARY", "/nowhere/libcuda.so")
        .output()
        .unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("/nowhere/libcuda.so") && message.trim_end().lines().count() == 1, "{message}");
    BENCH.refused("--device cuda --parameters card.json", "--parameters");
    BENCH.refused("--gate", "--gate has no meaning");
}

#[test]
fn ranks_on_threads_are_measured() {
    let folder = TempDir::new().unwrap();
    let json = folder.path().join("found.json");
    let policies = "--policy naive --policy default --policy artifact";
    let table = BENCH.succeed(&format!("--device cpu {policies} --iterations 7 --out {}", json.display()));
    assert!(
        table.contains("CPU: 2 ranks") && table.contains("default: foreground within 10% of alone"),
        "{table}"
    );
    assert!(table.contains("a thread has neither streams nor graphs"), "{table}");
    let report = MuxReport::load(&json).unwrap();
    assert!(!report.modelled && report.rows.len() == 3);
    for row in &report.rows {
        assert!(row.foreground_us > 0.0 && row.foreground_us <= row.foreground_p99_us, "{row:?}");
        assert!((0.0..=1.0).contains(&row.background_share_of_idle), "{row:?}");
        assert_eq!(row.iterations, 7);
    }
    assert!(
        report.rows[0].background_pieces > 0 && report.rows[0].over_long_pieces == 0,
        "uncut, and unbounded"
    );
    assert_eq!(report.rows[2].background_pieces, 0, "the ranks wait for communication only");
    let alone = BENCH.succeed("--device cpu --ranks 1 --policy artifact --iterations 1 --json");
    assert!(alone.contains("CPU: 1 ranks"), "{alone}");
}

#[test]
fn options_of_other_devices_are_refused() {
    BENCH.refused("--device cpu --workload w.json", "--workload");
    BENCH.refused("--device cpu --parameters p.json", "--parameters");
    BENCH.refused("--ranks 3", "--ranks");
}
