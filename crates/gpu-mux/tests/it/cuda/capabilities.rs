//! Queries of capabilities, and the errors for missing ones.

use std::num::NonZeroUsize;

use cuda_emulator::{Emulator, Setting};
use gpu_mux::cuda::{
    Context, CudaDevice, CudaLibrary, DeviceOptions, Error, Gate, GreenContext, Priority, Result, Stream,
    TimingRuns,
};
use gpu_mux::{Lane, Policy};

use super::kernels::{kernel, launch};
use super::{assert_no_misuse_or_leaks, library, on_emulated_device};

#[test]
fn a_new_driver_has_everything() {
    on_emulated_device(|_, context| {
        let found = context.capabilities()?;
        assert_eq!((found.driver_version, found.architecture, found.multiprocessors), (13_000, (9, 0), 132));
        assert_eq!(found.priority_levels, 6);
        assert!(found.node_priority && found.stream_memory_operations && found.green_contexts);
        assert!(!context.device_name()?.is_empty());
        Ok(())
    });
}

/// Requests a technique that is missing, and returns the error. Nothing is leaked.
fn lacks(prepare: impl FnOnce(&Emulator), ask: impl FnOnce(&Context) -> Result<()>) -> String {
    let emulator = Emulator::new().unwrap();
    prepare(&emulator);
    let context = Context::open(&library(), 0).unwrap();
    let error = ask(&context).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    context.close().unwrap();
    assert_no_misuse_or_leaks(&emulator);
    error.to_string()
}

fn gate(context: &Context) -> Result<()> {
    Gate::new(context, &Stream::new(context, Priority::Foreground)?).map(drop)
}

fn green(context: &Context) -> Result<()> {
    GreenContext::new(context, 16).map(drop)
}

fn default_device(context: &Context) -> Result<()> {
    CudaDevice::new(context, Policy::default(), DeviceOptions::default()).map(drop)
}

#[test]
fn a_technique_that_the_driver_lacks_is_an_error_that_names_it() {
    let old = |version| move |emulator: &Emulator| emulator.set(Setting::DriverVersion, version);
    let without_operations = |emulator: &Emulator| emulator.set(Setting::StreamMemoryOperations, 0);
    assert!(lacks(without_operations, gate).starts_with("a gate"));
    assert!(lacks(old(12_020), green).starts_with("a green context"));
    assert!(
        lacks(|emulator| emulator.remove_function("cuGreenCtxCreate"), green).contains("cuGreenCtxCreate")
    );
    assert!(
        lacks(|emulator| emulator.set(Setting::GreatestPriority, 0), default_device)
            .starts_with("stream priority")
    );
    assert!(lacks(old(11_060), default_device).starts_with("priority in captured graphs"));
}

/// A failing query of a technique that no policy requests does not make the device unusable.
#[test]
fn failed_capability_query_means_not_supported() {
    for code in [1, 101, 800, 914, 915] {
        on_emulated_device(|emulator, context| {
            context.capabilities()?;
            let place =
                emulator.log().iter().position(|call| call.contains("cuDeviceGetDevResource")).unwrap();
            let once = emulator.calls();
            context.capabilities()?;
            let round = emulator.calls() - once;
            emulator.fail_call(once + round + (place as u64 + 1 - (once - round)), code);
            assert!(!context.capabilities()?.green_contexts);
            assert!(emulator.log().last().is_some_and(|call| call.contains("cuDeviceGetDevResource")));
            default_device(context)
        });
    }
}

/// CUDA 11.6 has graphs but no node priorities, and refuses the flag that requests them.
#[test]
fn graphs_without_priorities_run_on_a_driver_that_has_none() {
    on_emulated_device(|emulator, _| {
        emulator.set(Setting::DriverVersion, 11_060);
        let context = Context::open(&library(), 0)?;
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

#[test]
fn older_driver_has_no_green_contexts() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::DriverVersion, 12_020);
    let context = Context::open(&library(), 0).unwrap();
    let found = context.capabilities().unwrap();
    assert!(found.node_priority && found.stream_memory_operations && !found.green_contexts);
    context.close().unwrap();
    assert_no_misuse_or_leaks(&emulator);
}

#[test]
fn a_green_context_has_multiprocessors_of_its_own() {
    on_emulated_device(|_, context| {
        let green = GreenContext::new(context, 16)?;
        assert!((16..132).contains(&green.multiprocessors()));
        let stream = Stream::within(&green, Priority::Background)?;
        drop(green);
        stream.synchronize()?;
        for wrong in [0, 133] {
            assert!(matches!(GreenContext::new(context, wrong), Err(Error::Invalid(_))));
        }
        Ok(())
    });
}

#[test]
fn missing_driver_is_a_one_line_error_with_a_remedy() {
    let line = |error: Error| {
        let line = error.to_string();
        assert!(!line.contains('\n') && matches!(error, Error::Unavailable(_)), "{line}");
        line
    };
    let nowhere = CudaLibrary::open_first_of(&["libnothing-cuda.so".into()]).unwrap_err();
    let nowhere = line(nowhere);
    assert!(nowhere.contains("libnothing-cuda.so") && nowhere.contains("GPU_MUX_CUDA"), "{nowhere}");

    let file = [std::env::temp_dir().join(format!("gpu-mux-{}", std::process::id()))];
    std::fs::write(&file[0], "not a library").unwrap();
    let unusable = line(CudaLibrary::open_first_of(&file).unwrap_err());
    std::fs::remove_file(&file[0]).unwrap();
    assert!(unusable.contains("cannot be used as CUDA's driver"), "{unusable}");

    // A path that exists and is not a file: the loader's reason is kept.
    let folder = line(CudaLibrary::open_first_of(&[std::env::temp_dir()]).unwrap_err());
    assert!(folder.contains("cannot be used as CUDA's driver"), "{folder}");

    // A different library: all missing functions are named.
    let another = line(CudaLibrary::open_first_of(&["libc.so.6".into()]).unwrap_err());
    assert!(another.contains("cuInit") && another.contains("cuGetErrorName"), "{another}");
}

#[test]
fn missing_and_nonexistent_devices_are_errors() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 0);
    let none = CudaLibrary::open_first_of(&[Emulator::library().unwrap()]).unwrap_err();
    assert!(none.to_string().contains("CUDA_ERROR_NO_DEVICE"), "{none}");
    emulator.set(Setting::Devices, 1);
    let error = Context::open(&library(), 1).unwrap_err();
    assert_eq!(error, Error::Invalid("device 1 was requested and there are 1, counted from 0".to_owned()));
}

#[test]
fn closing_a_context_in_use_is_an_error() {
    let emulator = Emulator::new().unwrap();
    let context = Context::open(&library(), 0).unwrap();
    let stream = Stream::new(&context, Priority::Background).unwrap();
    assert_eq!(context.close(), Err(Error::StillInUse { owners: 1 }));
    drop(stream);
    assert_no_misuse_or_leaks(&emulator);
}

#[test]
fn destructor_errors_are_reported_later() {
    let emulator = Emulator::new().unwrap();
    let context = Context::open(&library(), 0).unwrap();
    let stream = Stream::new(&context, Priority::Background).unwrap();
    // The context is current, so only the destroy function is called.
    emulator.fail_call(emulator.calls() + 2, 999);
    drop(stream);
    let Err(Error::Call { call, code, .. }) = context.check() else { panic!("the error is lost") };
    assert_eq!((call, code), ("cuStreamDestroy_v2", 999));
    assert_eq!(context.check(), Ok(()));
    context.close().unwrap();
    assert_no_misuse_or_leaks(&emulator);
}
