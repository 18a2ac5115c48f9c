//! Queries of capabilities, and the errors for missing ones.

use std::time::Duration;

use cuda::{Context, Driver, Error, Event, GATE, Gate, GreenContext, Priority, Result, Stream};
use cuda_emulator::{Emulator, Setting};

use super::kernels::{kernel, launch};
use super::{assert_no_misuse_or_leaks, driver, on_emulated_device, open};

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
    let context = open();
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

#[test]
fn a_technique_that_the_driver_lacks_is_an_error_that_names_it() {
    let old = |version| move |emulator: &Emulator| emulator.set(Setting::DriverVersion, version);
    let without_operations = |emulator: &Emulator| emulator.set(Setting::StreamMemoryOperations, 0);
    assert!(lacks(without_operations, gate).starts_with(GATE));
    assert!(lacks(old(12_020), green).starts_with("a green context"));
    assert!(
        lacks(|emulator| emulator.remove_function("cuGreenCtxCreate"), green).contains("cuGreenCtxCreate")
    );
    let priority = lacks(old(11_060), |context| {
        let stream = Stream::new(context, Priority::Background)?;
        let layer = kernel(context, "layer_10us")?;
        stream.capture(|stream| launch(&layer, stream))?.set_priority(Priority::Foreground)
    });
    assert!(priority.starts_with("a priority of nodes"), "{priority}");
}

/// A failing query of a technique that is not requested does not make the device unusable.
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
            Stream::new(context, Priority::Background).map(drop)
        });
    }
}

/// CUDA 11.6 has graphs but no node priorities, and refuses the flag that requests them.
#[test]
fn graphs_without_priorities_run_on_a_driver_that_has_none() {
    on_emulated_device(|emulator, _| {
        emulator.set(Setting::DriverVersion, 11_060);
        let context = open();
        let stream = Stream::new(&context, Priority::Background)?;
        let layer = kernel(&context, "layer_10us")?;
        let graph = stream.capture(|stream| launch(&layer, stream))?.instantiate()?;
        graph.launch(&stream)?;
        stream.synchronize()?;
        assert_eq!(emulator.kernels().len(), 1);
        drop((stream, layer, graph));
        context.close()
    });
}

#[test]
fn older_driver_has_no_green_contexts() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::DriverVersion, 12_020);
    let context = open();
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
        assert!(!line.contains('\n') && matches!(error, Error::Unavailable { .. }), "{line}");
        line
    };
    let nowhere = Driver::open_first_of(&["libnothing-cuda.so".into()]).unwrap_err();
    let nowhere = line(nowhere);
    assert!(nowhere.contains("libnothing-cuda.so") && nowhere.contains("CUDA_DRIVER_LIBRARY"), "{nowhere}");

    let file = [std::env::temp_dir().join(format!("cuda-{}", std::process::id()))];
    std::fs::write(&file[0], "not a library").unwrap();
    let unusable = line(Driver::open_first_of(&file).unwrap_err());
    std::fs::remove_file(&file[0]).unwrap();
    assert!(unusable.contains("cannot be used as CUDA's driver"), "{unusable}");

    // A path that exists and is not a file: the loader's reason is kept.
    let folder = line(Driver::open_first_of(&[std::env::temp_dir()]).unwrap_err());
    assert!(folder.contains("cannot be used as CUDA's driver"), "{folder}");

    // A different library: all missing functions are named.
    let another = line(Driver::open_first_of(&["libc.so.6".into()]).unwrap_err());
    assert!(another.contains("cuInit") && another.contains("cuGetErrorName"), "{another}");
}

#[test]
fn missing_and_nonexistent_devices_are_errors() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 0);
    let none = driver().unwrap_err();
    assert!(none.to_string().contains("CUDA_ERROR_NO_DEVICE"), "{none}");
    emulator.set(Setting::Devices, 1);
    let error = driver().unwrap().context(1).unwrap_err();
    assert_eq!(error, Error::NoDevice { ordinal: 1, devices: 1 });
}

#[test]
fn closing_a_context_in_use_is_an_error() {
    let emulator = Emulator::new().unwrap();
    let context = open();
    let stream = Stream::new(&context, Priority::Background).unwrap();
    assert_eq!(context.close(), Err(Error::StillInUse { owners: 1 }));
    drop(stream);
    assert_no_misuse_or_leaks(&emulator);
}

#[test]
fn destructor_errors_are_reported_later() {
    let emulator = Emulator::new().unwrap();
    let context = open();
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

#[test]
fn negative_event_duration_is_an_error() {
    on_emulated_device(|emulator, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let (first, second) = (Event::timed(&stream)?, Event::timed(&stream)?);
        stream.record(&first)?;
        emulator.advance(Duration::from_micros(10));
        stream.record(&second)?;
        assert_eq!(second.since(&first)?, Duration::from_micros(10));
        assert!(matches!(first.since(&second), Err(Error::Invalid(_))));
        Ok(())
    });
}

#[test]
fn sticky_errors_are_distinguished() {
    // The codes of cuda.h: out of memory, invalid handle, unknown; then ECC, NVLink, contained,
    // illegal address, launch timeout, context destroyed, assertion, launch failed, tensor memory
    // leak, MPS terminated, external device.
    let codes = [2, 400, 999, 214, 220, 226, 700, 702, 709, 710, 719, 721, 810, 911];
    let spoilt = codes.into_iter().filter(|&code| {
        let emulator = Emulator::new().unwrap();
        let context = open();
        emulator.fail_call(emulator.calls() + 2, code);
        let error = context.synchronize().unwrap_err();
        drop(context);
        error.is_sticky()
    });
    assert_eq!(spoilt.collect::<Vec<_>>(), codes[3..]);
}
