//! The gate between the foreground's stream and the background's.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use cuda::{Buffer, Context, Error, Kernel, Result, Stream, TimingRuns};
use cuda_emulator::Emulator;
use gpu_mux::cuda::{CudaDevice, DeviceOptions, Work};
use gpu_mux::{Device, JobId, Policy, Tasklet};

use super::kernels::{kernel, kernels, launch, launch_all};
use super::on_emulated_device;
use super::tasklets::{all_finished, device, us, work};

const GATE: DeviceOptions = DeviceOptions { gate: true, background_multiprocessors: None };

/// A device on which only the gate gives the foreground precedence.
fn without_priorities(context: &Context) -> Result<CudaDevice> {
    CudaDevice::new(context, Policy { stream_priority: false, ..Policy::default() }, GATE)
}

fn names(emulator: &Emulator) -> Vec<String> {
    emulator.kernels().into_iter().map(|kernel| kernel.name).collect()
}

#[test]
fn background_that_is_in_flight_waits_until_the_foreground_has_nothing_to_compute() {
    on_emulated_device(|emulator, context| {
        let mut device = without_priorities(context)?;
        let (first, piece, second) =
            (kernel(context, "first_50us")?, kernel(context, "piece_20us")?, kernel(context, "second_50us")?);
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&first))?;
        device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&piece))?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 1), work(&second))?;
        all_finished(&mut device, 3)?;
        assert_eq!(names(emulator), ["first_50us", "second_50us", "piece_20us"]);
        Ok(())
    });
}

#[test]
fn background_passes_while_the_foreground_waits_for_communication() {
    on_emulated_device(|emulator, context| {
        let mut device = without_priorities(context)?;
        let (layer, piece) = (kernel(context, "layer_50us")?, kernel(context, "piece_20us")?);
        let (receive, last) = (kernel(context, "receive_100us")?, kernel(context, "last_50us")?);
        let first = Tasklet::new(JobId::FOREGROUND, 0);
        let second = Tasklet::new(JobId::FOREGROUND, 1).receiving().after(first.id);
        let third = Tasklet::new(JobId::FOREGROUND, 2).after(second.id);
        device.launch(&first, work(&layer))?;
        device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&piece))?;
        device.launch(&second, work(&receive))?;
        device.launch(&third, work(&last))?;
        device.launch(&Tasklet::new(JobId::BACKGROUND, 1), work(&piece))?;
        all_finished(&mut device, 5)?;
        assert_eq!(names(emulator), ["layer_50us", "piece_20us", "receive_100us", "piece_20us", "last_50us"]);
        Ok(())
    });
}

#[test]
fn gate_is_open_while_the_foreground_is_idle() {
    on_emulated_device(|_, context| {
        let mut device = device(context, DeviceOptions { gate: true, background_multiprocessors: Some(32) })?;
        assert!(device.background_multiprocessors().is_some_and(|count| (32..132).contains(&count)));
        let layer = kernel(context, "layer_10us")?;
        for number in 0..3 {
            device.launch(&Tasklet::new(JobId::FOREGROUND, number), work(&layer))?;
            all_finished(&mut device, 1)?;
            device.launch(&Tasklet::new(JobId::BACKGROUND, number), work(&layer))?;
            all_finished(&mut device, 1)?;
        }
        Ok(())
    });
}

#[test]
fn preparing_work_opens_the_gate() {
    on_emulated_device(|_, context| {
        let mut device = device(context, GATE)?;
        let layer = kernel(context, "layer_10us")?;
        let layers = kernels(context, &["a_10us", "b_10us"])?;
        let shut = |device: &mut CudaDevice, number| {
            device.launch(&Tasklet::new(JobId::FOREGROUND, number), work(&layer))?;
            device.launch(&Tasklet::new(JobId::BACKGROUND, number), work(&layer))
        };
        shut(&mut device, 0)?;
        let once = TimingRuns::without_side_effects(NonZeroUsize::MIN);
        let prepared = layers.clone();
        let enqueue = move |stream: &Stream| launch_all(&prepared, stream);
        device.prepare_background(JobId::BACKGROUND, once, enqueue.clone())?;
        shut(&mut device, 1)?;
        device.prepare_foreground(gpu_mux::Lane::Compute, once, enqueue)?;
        all_finished(&mut device, 4).map(drop)
    });
}

/// Work of one kernel that holds the last reference to a memory allocation.
fn owner(context: &Context, kernel: &Kernel) -> Result<Work> {
    let (kernel, memory) = (kernel.clone(), Arc::new(Buffer::<u64>::zeros(context, 8)?));
    Ok(Work::enqueue(move |stream| {
        assert_eq!(memory.size_bytes(), 64);
        launch(&kernel, stream)
    }))
}

#[test]
fn memory_is_not_freed_while_the_gate_is_shut() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, GATE)?;
        let layer = kernel(context, "layer_10us")?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), owner(context, &layer)?)?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 1), work(&layer))?;
        device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&layer))?;
        emulator.advance(us(15));
        assert!(device.finished()?.is_some());
        assert!(!freed(emulator));
        all_finished(&mut device, 2)?;
        // The device is idle now, and a wait may block.
        device.wait(None)?;
        assert!(freed(emulator));
        Ok(())
    });
}

fn freed(emulator: &Emulator) -> bool {
    emulator.log().iter().any(|call| call.contains("cuMemFree"))
}

#[test]
fn freeing_finished_work_does_not_wait_for_background() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let (layer, long) = (kernel(context, "layer_10us")?, kernel(context, "long_900ms")?);
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), owner(context, &layer)?)?;
        device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&long))?;
        emulator.advance(us(15));
        assert!(device.finished()?.is_some());
        assert!(emulator.now() < Duration::from_millis(1), "{:?}", emulator.now());
        assert!(!freed(emulator));
        device.synchronize()?;
        assert!(freed(emulator));
        all_finished(&mut device, 1).map(drop)
    });
}

#[test]
fn memory_can_be_freed_after_a_failed_launch() {
    on_emulated_device(|_, context| {
        let mut device = device(context, GATE)?;
        let layer = kernel(context, "layer_10us")?;
        let memory = Buffer::<u64>::zeros(context, 8)?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&layer))?;
        device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&layer))?;
        let broken = Work::enqueue(|_| Err(Error::Invalid("broken".to_owned())));
        assert!(device.launch(&Tasklet::new(JobId::BACKGROUND, 1), broken).is_err());
        // This waits for the work in front of the gate.
        drop(memory);
        all_finished(&mut device, 2).map(drop)
    });
}

#[test]
fn a_gate_needs_a_hardware_queue_for_each_stream() {
    if std::env::var_os("CUDA_DEVICE_MAX_CONNECTIONS").is_some() {
        return println!("SKIPPED: CUDA_DEVICE_MAX_CONNECTIONS is set");
    }
    on_emulated_device(|_, context| {
        let mut device = device(context, GATE)?;
        let layer = kernel(context, "layer_10us")?;
        for job in 0..4 {
            device.launch(&Tasklet::new(JobId::background(job), 0), work(&layer))?;
        }
        let refused = device.launch(&Tasklet::new(JobId::background(4), 0), work(&layer));
        let Err(Error::Unsupported { technique, reason }) = refused else { panic!("{refused:?}") };
        assert!(
            technique.contains("gate") && reason.contains("CUDA_DEVICE_MAX_CONNECTIONS to 9"),
            "{reason}"
        );
        all_finished(&mut device, 4).map(drop)
    });
}
