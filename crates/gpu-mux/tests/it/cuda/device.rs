//! The device: order, dependencies, durations, failures.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use cuda::{Buffer, Error, Result, Stream, TimingRuns};
use cuda_emulator::Setting;
use gpu_mux::cuda::{CudaDevice, DeviceOptions, Work};
use gpu_mux::{Device, Finished, JobId, Lane, Policy, Tasklet};

use super::kernels::kernel;
use super::on_emulated_device;
use super::tasklets::{all_finished, device, id, us, work};

#[test]
fn tasklets_of_a_lane_run_in_order_and_are_timed_by_the_device() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        for (number, time) in [30, 10, 20].into_iter().enumerate() {
            let layer = kernel(context, &format!("layer_{time}us"))?;
            device.launch(&Tasklet::new(JobId::FOREGROUND, number as u64), work(&layer))?;
        }
        let finished = all_finished(&mut device, 3)?;
        let expected = [(0, 30), (1, 10), (2, 20)];
        let expected = expected
            .map(|(number, time)| Finished { tasklet: id(JobId::FOREGROUND, number), took: us(time) });
        assert_eq!(finished, expected);
        assert_eq!(emulator.kernels().len(), 3);
        Ok(())
    });
}

#[test]
fn only_wait_blocks() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let long = kernel(context, "long_900ms")?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&long))?;
        assert_eq!(device.finished()?, None);
        // The host's clock is real, and a wait does not exceed its time limit.
        device.wait(Some(device.now() + us(100)))?;
        assert_eq!(device.finished()?, None);
        assert!(emulator.now() < Duration::from_millis(900));
        emulator.advance(Duration::from_millis(900));
        assert_eq!(all_finished(&mut device, 1)?.len(), 1);
        device.wait(None)
    });
}

#[test]
fn a_tasklet_waits_on_the_device_for_the_one_it_is_after() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let (receive, layer) = (kernel(context, "receive_80us")?, kernel(context, "layer_10us")?);
        let first = Tasklet::new(JobId::FOREGROUND, 0).receiving();
        let second = Tasklet::new(JobId::FOREGROUND, 1).after(first.id);
        device.launch(&first, work(&receive))?;
        device.launch(&second, work(&layer))?;
        let finished = all_finished(&mut device, 2)?;
        assert_eq!(finished.iter().map(|finished| finished.took).collect::<Vec<_>>(), [us(80), us(10)]);
        let run = emulator.kernels();
        assert!(run[0].name == "receive_80us" && run[1].started >= run[0].ended, "{run:?}");

        // A finished tasklet is not waited for.
        device.launch(&Tasklet::new(JobId::FOREGROUND, 2).after(first.id), work(&layer))?;
        all_finished(&mut device, 1).map(drop)
    });
}

#[test]
fn every_background_job_has_a_stream_of_its_own() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let layer = kernel(context, "layer_10us")?;
        for job in 0..3 {
            device.launch(&Tasklet::new(JobId::background(job), 0), work(&layer))?;
        }
        all_finished(&mut device, 3)?;
        let mut streams: Vec<_> = emulator.kernels().into_iter().map(|kernel| kernel.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        assert_eq!(streams.len(), 3);
        Ok(())
    });
}

#[test]
fn nothing_is_created_once_the_queues_have_been_filled() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions { gate: true, background_multiprocessors: None })?;
        let layer = kernel(context, "layer_10us")?;
        let round = |number: u64, device: &mut CudaDevice| -> Result<()> {
            for offset in 0..4 {
                device.launch(&Tasklet::new(JobId::FOREGROUND, number + offset), work(&layer))?;
                device.launch(&Tasklet::new(JobId::BACKGROUND, number + offset), work(&layer))?;
            }
            all_finished(device, 8).map(drop)
        };
        round(0, &mut device)?;
        let before = emulator.log().len();
        (1..10).try_for_each(|number| round(4 * number, &mut device))?;
        let creations: Vec<_> = emulator
            .log()
            .into_iter()
            .skip(before)
            .filter(|call| call.contains("Create") || call.contains("Alloc"))
            .collect();
        assert_eq!(creations, [""; 0]);
        Ok(())
    });
}

#[test]
fn a_device_that_is_dropped_waits_for_its_work() {
    on_emulated_device(|emulator, context| {
        // Without a gate: freeing its memory with the device would also wait.
        let mut device = device(context, DeviceOptions::default())?;
        let layer = kernel(context, "layer_10us")?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&layer))?;
        device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&layer))?;
        drop(device);
        assert_eq!(emulator.kernels().len(), 2);
        Ok(())
    });
}

#[test]
fn a_background_launch_that_fails_leaves_the_foreground_alone() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let layer = kernel(context, "layer_10us")?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&layer))?;
        let broken = Work::enqueue(|_| Err(Error::Invalid("broken".to_owned())));
        let refused = device.launch(&Tasklet::new(JobId::BACKGROUND, 0), broken);
        assert_eq!(refused, Err(Error::Invalid("broken".to_owned())));
        device.launch(&Tasklet::new(JobId::FOREGROUND, 1), work(&layer))?;
        assert_eq!(all_finished(&mut device, 2)?.len(), 2);
        assert_eq!(emulator.kernels().len(), 2);
        Ok(())
    });
}

#[test]
fn preparation_follows_the_policy() {
    on_emulated_device(|emulator, context| {
        let once = TimingRuns::without_side_effects(NonZeroUsize::MIN);
        let layers = super::kernels::kernels(context, &["a_100us", "b_200us", "c_300us"])?;
        let rounds = move |stream: &Stream| super::kernels::launch_all(&layers, stream);
        let graphs = Policy { background_piece: Some(us(300)), ..Policy::default() };
        let mut device = CudaDevice::new(context, graphs, DeviceOptions::default())?;
        let prepared = device.prepare_background(JobId::BACKGROUND, once, rounds.clone())?;
        let times = prepared.pieces.iter().map(|piece| piece.estimate);
        assert_eq!(times.collect::<Vec<_>>(), [us(300), us(300)]);
        let foreground = device.prepare_foreground(Lane::Compute, once, rounds.clone())?;
        assert!(foreground.work.is_graph());
        assert_eq!(foreground.estimate, us(600));
        drop(device);

        let mut device = CudaDevice::new(context, Policy::naive(), DeviceOptions::default())?;
        let prepared = device.prepare_background(JobId::BACKGROUND, once, rounds.clone())?;
        assert!(!prepared.pieces[0].work.is_graph());
        assert_eq!((prepared.pieces.len(), prepared.pieces[0].estimate), (1, us(600)));
        drop(device);

        let uncut = Policy { captured_graphs: false, ..graphs };
        let mut device = CudaDevice::new(context, uncut, DeviceOptions::default())?;
        let refused = device.prepare_background(JobId::BACKGROUND, once, rounds);
        assert!(matches!(refused, Err(Error::Invalid(_))));
        assert!(!emulator.kernels().is_empty());
        Ok(())
    });
}

#[test]
fn weights_are_restored_after_preparation_has_timed_work_that_changes_them() {
    on_emulated_device(|emulator, context| {
        let policy = Policy { background_piece: None, ..Policy::default() };
        let mut device = CudaDevice::new(context, policy, DeviceOptions::default())?;
        let weights = Arc::new(Buffer::from_slice(context, &[1.0_f32; 2])?);
        let (update, restored) = (Arc::clone(&weights), [&*weights]);
        let runs = TimingRuns::restoring(NonZeroUsize::MIN, &restored);
        let before = emulator.log().len();
        device.prepare_background(JobId::BACKGROUND, runs, move |stream| update.fill_bytes(stream, 0))?;
        assert!(emulator.log()[before..].iter().any(|call| call.contains("cuGraphLaunch")), "it was timed");
        assert_eq!(weights.to_vec(device.stream(JobId::BACKGROUND, Lane::Compute)?)?, [1.0; 2]);
        Ok(())
    });
}

#[test]
fn stream_priorities_follow_the_policy() {
    for (policy, urgent_first) in [(Policy::priority(), true), (Policy::naive(), false)] {
        on_emulated_device(|emulator, context| {
            emulator.set(Setting::QueryNs, 100);
            let mut device = CudaDevice::new(context, policy, DeviceOptions::default())?;
            let (piece, layer) = (kernel(context, "piece_10us")?, kernel(context, "layer_10us")?);
            for job in 0..2 {
                device.launch(&Tasklet::new(JobId::background(job), 0), work(&piece))?;
            }
            device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&layer))?;
            all_finished(&mut device, 3)?;
            let second = &emulator.kernels()[1].name;
            assert_eq!(second == "layer_10us", urgent_first, "{:?}", emulator.kernels());
            Ok(())
        });
    }
}

#[test]
fn a_device_can_be_moved_to_the_thread_that_drives_it() {
    on_emulated_device(|_, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let layer = kernel(context, "layer_10us")?;
        let moved = std::thread::spawn(move || {
            device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&layer))?;
            all_finished(&mut device, 1)
        });
        assert_eq!(moved.join().unwrap()?.len(), 1);
        Ok(())
    });
}

#[test]
fn finished_tasklets_are_returned_in_launch_order() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let layer = kernel(context, "layer_10us")?;
        device.launch(&Tasklet::new(JobId::BACKGROUND, 0), work(&layer))?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0).on(Lane::Communication), work(&layer))?;
        device.launch(&Tasklet::new(JobId::FOREGROUND, 1), work(&layer))?;
        emulator.advance(us(100));
        let finished = all_finished(&mut device, 3)?.into_iter().map(|finished| finished.tasklet);
        let launched = [id(JobId::BACKGROUND, 0), id(JobId::FOREGROUND, 0), id(JobId::FOREGROUND, 1)];
        assert_eq!(finished.collect::<Vec<_>>(), launched);
        Ok(())
    });
}

#[test]
fn dependency_on_a_later_tasklet_is_an_error() {
    on_emulated_device(|_, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let layer = kernel(context, "layer_10us")?;
        for later in [id(JobId::FOREGROUND, 1), id(JobId::background(7), 0)] {
            let refused = device.launch(&Tasklet::new(JobId::FOREGROUND, 0).after(later), work(&layer));
            let Err(Error::Invalid(line)) = refused else { panic!("{refused:?}") };
            assert!(line.contains("not been launched yet"), "{line}");
        }
        device.launch(&Tasklet::new(JobId::FOREGROUND, 0), work(&layer))
    });
}

#[test]
fn end_times_are_on_the_device_clock() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        emulator.set(Setting::QueryNs, 500_000);
        assert_eq!(device.last_end()?, None);
        let times = ["layer_10us", "layer_30ms", "layer_15us", "layer_50ms", "layer_7us"];
        for (number, name) in times.iter().enumerate() {
            let job = if number % 2 == 0 { JobId::FOREGROUND } else { JobId::BACKGROUND };
            device.launch(&Tasklet::new(job, number as u64), work(&kernel(context, name)?))?;
        }
        let mut ends = Vec::new();
        while ends.len() < times.len() {
            match device.finished()? {
                Some(finished) => ends.push((finished.tasklet.number, device.last_end()?.unwrap())),
                None => device.wait(None)?,
            }
        }
        // A late report to the host does not change the end time; events of several streams are on
        // one time axis.
        ends.sort_unstable_by_key(|(_, end)| *end);
        let run = emulator.kernels();
        let gaps = run.windows(2).map(|run| run[1].ended.abs_diff(run[0].ended));
        for (ends, gap) in ends.windows(2).zip(gaps) {
            assert!(ends[1].1.abs_diff(ends[0].1).abs_diff(gap) < us(1), "{ends:?} {gap:?}");
        }
        Ok(())
    });
}

/// CUDA returns times in single precision, whose rounding error grows with time.
#[test]
fn device_clock_stays_exact_after_a_long_time() {
    on_emulated_device(|emulator, context| {
        let mut device = device(context, DeviceOptions::default())?;
        let layer = kernel(context, "layer_10us")?;
        let mut end = |number| -> Result<_> {
            device.launch(&Tasklet::new(JobId::FOREGROUND, number), work(&layer))?;
            emulator.advance(us(15));
            assert!(device.finished()?.is_some());
            Ok(device.last_end()?.unwrap())
        };
        end(0)?;
        emulator.advance(Duration::from_secs(1000));
        let (first, second) = (end(1)?, end(2)?);
        let run = emulator.kernels();
        let gap = run[2].ended.abs_diff(run[1].ended);
        assert!(second.abs_diff(first).abs_diff(gap) < us(1), "{first:?}, {second:?} and not {gap:?}");
        Ok(())
    });
}
