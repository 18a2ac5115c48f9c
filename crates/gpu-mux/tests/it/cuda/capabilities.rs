//! Errors for techniques that a policy requests and the driver or the device lacks.

use std::num::NonZeroUsize;

use cuda::{Context, Error, Result, Stream, TimingRuns};
use cuda_emulator::{Emulator, Setting};
use gpu_mux::cuda::{CudaDevice, DeviceOptions};
use gpu_mux::{Lane, Policy};

use super::kernels::{kernel, launch};
use super::{assert_no_misuse_or_leaks, on_emulated_device, open};

fn default_device(context: &Context) -> Result<()> {
    CudaDevice::new(context, Policy::default(), DeviceOptions::default()).map(drop)
}

#[test]
fn a_technique_that_the_driver_lacks_is_an_error_that_names_it() {
    for (setting, value, technique) in [
        (Setting::GreatestPriority, 0, "stream priority"),
        (Setting::DriverVersion, 11_060, "priority in captured graphs"),
    ] {
        let emulator = Emulator::new().unwrap();
        emulator.set(setting, value);
        let context = open().unwrap();
        let error = default_device(&context).unwrap_err();
        assert!(
            matches!(error, Error::Unsupported { technique: named, .. } if named == technique),
            "{error:?}"
        );
        context.close().unwrap();
        assert_no_misuse_or_leaks(&emulator);
    }
}

/// A failing query of a technique that no policy requests does not make the device unusable.
#[test]
fn failed_query_of_green_contexts_does_not_matter_without_them() {
    on_emulated_device(|emulator, context| {
        default_device(context)?;
        let log = emulator.log();
        let place = log.iter().rposition(|call| call.contains("cuDeviceGetDevResource")).unwrap();
        let before = emulator.calls();
        default_device(context)?;
        let round = emulator.calls() - before;
        emulator.fail_call(before + round + (place as u64 + 1 - (before - round)), 801);
        default_device(context)?;
        let failed = |call: &String| call.contains("cuDeviceGetDevResource") && call.contains("injected");
        assert!(emulator.log().iter().any(failed));
        Ok(())
    });
}

/// CUDA 11.6 has graphs but no node priorities, and refuses the flag that requests them.
#[test]
fn graphs_without_priorities_run_on_a_driver_that_has_none() {
    on_emulated_device(|emulator, _| {
        emulator.set(Setting::DriverVersion, 11_060);
        let context = open()?;
        let policy = Policy { stream_priority: false, ..Policy::default() };
        let mut device = CudaDevice::new(&context, policy, DeviceOptions::default())?;
        let layer = kernel(&context, "layer_10us")?;
        let enqueue = move |stream: &Stream| launch(&layer, stream);
        let prepared = device.prepare_foreground(
            Lane::Compute,
            TimingRuns::without_side_effects(NonZeroUsize::MIN),
            enqueue,
        )?;
        assert!(prepared.work.is_graph());
        drop((device, prepared));
        context.close()
    });
}
