//! Failing work.

use std::sync::Arc;

use cuda::{Error, GreenContext, Priority, Stream};
use cuda_emulator::{Emulator, Setting};
use gpu_mux::cuda::{DeviceOptions, Work};
use gpu_mux::{Device, JobId, Tasklet};

use super::kernels::{kernel, launch};
use super::tasklets::{all_finished, device, work};
use super::{on_emulated_device, open};

#[test]
fn partially_launched_work_is_kept_until_the_stream_is_idle() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let layer = kernel(context, "layer_10us")?;
        let owned = Arc::new(7);
        let still_there = Arc::downgrade(&owned);
        let broken = Work::enqueue(move |stream| {
            assert_eq!(*owned, 7);
            launch(&layer, stream)?;
            Err(Error::Invalid("broken".to_owned()))
        });
        assert!(device.launch(&Tasklet::new(JobId::BACKGROUND, 0), broken).is_err());
        // Nothing is in flight as far as the device knows, but a kernel runs.
        device.wait(None)?;
        assert!(still_there.upgrade().is_some() && emulator.kernels().is_empty());
        device.synchronize()?;
        assert!(still_there.upgrade().is_none() && emulator.kernels().len() == 1);
        Ok(())
    });
}

/// A background kernel that, for example, reads an invalid address. The foreground fails too, and
/// nothing hangs.
#[test]
fn crashing_kernel_ends_all_work_with_a_sticky_error() {
    let emulator = Emulator::new().unwrap();
    let context = open().unwrap();
    let options = DeviceOptions { gate: true, background_multiprocessors: Some(16) };
    let mut device = device(&context, options).unwrap();
    let (bad, layer) = (kernel(&context, "fail_10us").unwrap(), kernel(&context, "layer_50us").unwrap());
    device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&bad)).unwrap();
    device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&layer)).unwrap();
    let error = all_finished(&mut device, 2).unwrap_err();
    assert!(error.is_sticky(), "{error}");
    let refused = device.launch(&Tasklet::new(JobId::FOREGROUND, 1), work(&layer)).unwrap_err();
    assert!(refused.is_sticky(), "{refused}");
    drop((device, bad, layer));
    assert!(context.close().is_err_and(|error| error.is_sticky()));
    assert_eq!(emulator.leaks(), [""; 0]);
    assert_eq!(emulator.misuse(), [""; 0]);
}

#[test]
fn green_contexts_without_foreign_events_are_reported_as_lacking() {
    on_emulated_device(|emulator, context| {
        emulator.set(Setting::CrossContextEvents, 0);
        let options = DeviceOptions { gate: false, background_multiprocessors: Some(16) };
        let mut device = device(context, options)?;
        let layer = kernel(context, "layer_10us")?;
        let refused = device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&layer));
        let Err(Error::Unsupported { technique, reason }) = refused else { panic!("{refused:?}") };
        assert_eq!(technique, "a green context");
        assert!(reason.contains("cuEventRecord"), "{reason}");
        // The foreground's streams belong to the device's own context.
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&layer))?;
        all_finished(&mut device, 1)?;
        let green = GreenContext::new(context, 16)?;
        Stream::within(&green, Priority::Background).map(drop)
    });
}
