//! Measurement on an emulated driver, whose kernels take 10 us for any arguments.

use std::time::Duration;

use ::cuda::Driver;
use cuda_emulator::{Emulator, Setting};
use gpu_mux::{Policy, Workload};

use super::{Extent, kernels, measure_on};
use crate::mux::MuxReport;
use crate::mux::task::{BenchTask, GpuOptions};

const WORKLOAD: &str = r#"{"schema": "deeppool/workload/v1", "name": "a few layers",
 "foreground": {"samples": 32, "steps": [
   {"name": "a", "lane": "compute", "kernels": [{"time_us": 10, "share": 1, "memory": 0.3}]},
   {"name": "all-reduce", "lane": "communication", "after": 0, "transfer_us": 5, "partners_us": 100},
   {"name": "b", "lane": "compute", "after": 1, "kernels": [{"time_us": 20, "share": 0.5, "memory": 0}]}]},
 "background": {"samples": 8, "steps": [
   {"name": "c", "lane": "compute", "kernels": [{"time_us": 50, "share": 1, "memory": 0.3},
                                                 {"time_us": 400, "share": 0.2, "memory": 0.9}]}]}}"#;

/// Returns PTX of kernels with the same names and arguments and empty bodies.
fn ptx() -> String {
    let arguments = [".u32 .u32 .u64 .u64 .u64", ".u64 .u64 .u32 .u64 .u64 .u64", ""];
    let kernel = |(name, arguments): (&str, &str)| {
        let arguments = arguments.split_whitespace().enumerate();
        let arguments: Vec<_> =
            arguments.map(|(index, kind)| format!(".param {kind} {name}_{index}")).collect();
        format!(".visible .entry {name}({})\n{{\n ret;\n}}\n", arguments.join(", "))
    };
    let kernels = kernels::NAMES.into_iter().zip(arguments).map(kernel).collect::<String>();
    format!(".version 8.0\n.target sm_90\n.address_size 64\n{kernels}")
}

/// Shorter than the first launches.
const ONE_ROUND: Duration = Duration::from_nanos(1);

fn measure_on_emulator(
    emulator: &Emulator,
    policies: &[(String, Policy)],
    iterations: usize,
) -> anyhow::Result<MuxReport> {
    emulator.set(Setting::QueryNs, 5_000);
    let context = Driver::open_first_of(&[Emulator::library()?])?.context(0)?;
    let workload = Workload::from_json(WORKLOAD)?;
    let options = GpuOptions { gate: true, background_multiprocessors: Some(64) };
    let task = BenchTask { policies, iterations };
    let extent = Extent { memory_bytes: 1 << 16, load: ONE_ROUND };
    measure_on(context, |_| Ok(ptx()), &extent, &workload, options, &task)
}

fn presets() -> Vec<(String, Policy)> {
    Policy::presets().into_iter().map(|(name, policy)| (name.to_owned(), policy)).collect()
}

#[test]
fn every_policy_is_measured_without_leaks() {
    let (emulator, policies) = (Emulator::new().unwrap(), presets());
    let report = measure_on_emulator(&emulator, &policies, 5).unwrap();

    assert_eq!(emulator.misuse(), [""; 0]);
    assert_eq!(emulator.leaks(), [""; 0]);
    assert!(!report.modelled && report.device.ends_with("CUDA 13.0"), "{}", report.device);
    assert_eq!(report.rows.len(), policies.len());
    for row in &report.rows {
        assert!(row.foreground_us > 0.0 && row.foreground_alone_us > 0.0, "{row:?}");
        assert!(row.background_alone_samples_per_s > 0.0, "{row:?}");
        assert!(row.foreground_alone_drift.is_some_and(f64::is_finite), "{row:?}");
        assert!(row.idle_us >= 0.0 && (0.0..=1.0).contains(&row.background_share_of_idle), "{row:?}");
    }
    assert!(report.rows.iter().any(|row| row.background_pieces > 0));
    let calibration = report.calibration.unwrap();
    assert_eq!(calibration.chains.len(), 8);
    // The emulator runs a kernel of 400 us in 10 us, which is reported.
    assert!(calibration.kernel_time_errors.is_some_and(|off| off.total > 0.5 && off.max > 0.9));
    assert!(calibration.sharing.unwrap().memory_slowdown > 0.0);
}

#[test]
fn an_error_ends_the_measurement_without_leaks() {
    let policies = [("default".to_owned(), Policy::default())];
    let calls = {
        let emulator = Emulator::new().unwrap();
        measure_on_emulator(&emulator, &policies, 1).unwrap();
        emulator.calls()
    };
    // The number of queries for completion varies, so the last calls are not tested.
    for call in (1..calls * 3 / 4).step_by(calls as usize / 16) {
        let emulator = Emulator::new().unwrap();
        emulator.fail_call(call, 999);
        match measure_on_emulator(&emulator, &policies, 1) {
            Err(error) => {
                assert!(format!("{error:#}").contains("CUDA_ERROR_UNKNOWN"), "call {call}: {error:#}");
            }
            // Only the query for green contexts may fail.
            Ok(_) => {
                assert!(emulator.log()[call as usize - 1].contains("cuDeviceGetDevResource"), "call {call}");
            }
        }
        emulator.advance(Duration::from_secs(1));
        assert_eq!(emulator.leaks(), [""; 0], "call {call}");
    }
}
