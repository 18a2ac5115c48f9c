//! Invariants of the device's internal state, checked after every event.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use super::bandwidth::stretch;
use super::stream::Phase;
use super::{DeviceParameters, Kernel, Partners, VirtualDevice, VirtualWork};
use crate::{Device, JobId, Lane, Tasklet, TaskletId};

const STREAMS: [(JobId, Lane); 4] = [
    (JobId::FOREGROUND, Lane::Compute),
    (JobId::FOREGROUND, Lane::Communication),
    (JobId::BACKGROUND, Lane::Compute),
    (JobId::BACKGROUND, Lane::Communication),
];

fn jobs() -> impl Strategy<Value = JobId> {
    prop_oneof![Just(JobId::FOREGROUND), Just(JobId::BACKGROUND)]
}

fn work() -> impl Strategy<Value = VirtualWork> {
    let kernel = (1..200_u64, 1..=20_u32, 0..=10_u32, 1..5_u32).prop_map(|(us, share, memory, waves)| {
        let (share, memory) = (f64::from(share) / 20.0, f64::from(memory) / 10.0);
        let kernel = Kernel::new(Duration::from_micros(us), share, memory).unwrap();
        kernel.in_waves(NonZeroU32::new(waves).unwrap())
    });
    let compute = (prop::collection::vec(kernel, 0..6), any::<bool>())
        .prop_map(|(kernels, captured)| VirtualWork::Compute { kernels: kernels.into(), captured });
    let communication = (1..300_u64, 0..300_u64).prop_map(|(us, after)| VirtualWork::Communication {
        transfer: Duration::from_micros(us),
        partners: if after % 2 == 0 {
            Partners::Ready
        } else {
            Partners::After(Duration::from_micros(after))
        },
    });
    prop_oneof![3 => compute, 1 => communication]
}

/// Launches: pause before each, job, work, and how many launches of the job back it waits for.
fn launches() -> impl Strategy<Value = Vec<(u64, JobId, VirtualWork, usize)>> {
    prop::collection::vec((0..150_u64, jobs(), work(), 0..6_usize), 1..40)
}

/// Creates a tasklet on the lane of the work.
fn tasklet(job: JobId, number: usize, work: &VirtualWork, after: Option<TaskletId>) -> Tasklet {
    let lane = match work {
        VirtualWork::Compute { .. } => Lane::Compute,
        VirtualWork::Communication { .. } => Lane::Communication,
    };
    Tasklet::new(job, number as u64).on(lane).after(after)
}

fn check(device: &VirtualDevice) {
    let state = &device.state;
    let running: Vec<_> = state.streams.iter().filter_map(|stream| stream.running.as_ref()).collect();
    let given: u32 = running.iter().map(|running| running.given).sum();
    assert_eq!(given + state.free, state.hardware.multiprocessors, "the number of multiprocessors changed");
    assert!(running.iter().all(|running| running.given <= running.wanted));
    // A kernel has no multiprocessors only between two waves, with all of the next wave left.
    assert!(running.iter().filter(|running| running.given == 0).all(|running| {
        let waves = running.wave * f64::from(running.waves_left);
        running.waves_left > 0 && running.wave > 0.0 && (running.left - waves).abs() < 1e-6
    }));
    let kept_short = running.iter().any(|running| running.given < running.wanted);
    assert!(!kept_short || state.free == 0, "a kernel waits although multiprocessors are free");
    let working: Vec<_> = running.iter().filter(|running| running.phase == Phase::Working).collect();
    let used: f64 = working.iter().map(|running| running.memory * running.rate).sum();
    assert!(used <= 1.0 + 1e-6, "{used} of the memory's bandwidth is used");
    // All running kernels are slowed by the same memory factor, or by none.
    if used < 1.0 - 1e-6 {
        assert!(working.iter().all(|running| (running.rate - running.part()).abs() < 1e-9));
    }
    assert!(
        working.iter().all(|running| running.rate <= running.part() * stretch(running.memory, 1.0) + 1e-9)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn invariants_hold_after_every_event(launches in launches(), priorities: bool, queues in 1..4_u32) {
        let parameters = DeviceParameters { hardware_queues: queues, ..DeviceParameters::a100() };
        let mut device = VirtualDevice::with_priorities(parameters, priorities).unwrap();
        let mut ids: Vec<Tasklet> = Vec::new();
        let mut ended: Vec<(TaskletId, Duration)> = Vec::new();
        for (number, (pause, job, work, back)) in launches.iter().enumerate() {
            let until = device.now() + Duration::from_micros(*pause);
            while device.now() < until {
                device.wait(Some(until)).unwrap();
                check(&device);
                while let Some(finished) = device.finished().unwrap() {
                    ended.push((finished.tasklet, finished.took));
                }
            }
            // Only an earlier tasklet of the same job, so that there is no cycle.
            let mut earlier = ids.iter().rev().filter(|other| other.id.job == *job);
            let after = earlier.nth(*back).map(|other| other.id);
            let tasklet = tasklet(*job, number, work, after);
            ids.push(tasklet);
            device.launch(&tasklet, work.clone()).unwrap();
        }
        while device.next_event().is_some() {
            device.wait(None).unwrap();
            check(&device);
            while let Some(finished) = device.finished().unwrap() {
                ended.push((finished.tasklet, finished.took));
            }
        }
        prop_assert_eq!(ended.len(), launches.len(), "every tasklet must end once");
        for stream in STREAMS {
            let of_stream = |tasklet: &&Tasklet| (tasklet.id.job, tasklet.lane) == stream;
            let launched: Vec<TaskletId> = ids.iter().filter(of_stream).map(|tasklet| tasklet.id).collect();
            let order: Vec<_> = ended.iter().map(|(id, _)| *id).filter(|id| launched.contains(id)).collect();
            prop_assert_eq!(order, launched, "a stream keeps its order");
        }
        for (id, took) in &ended {
            let place = ids.iter().position(|tasklet| tasklet.id == *id).unwrap();
            prop_assert!(*took >= launches[place].2.time(), "nothing is faster than alone");
        }
        let occupancy = device.occupancy();
        let states = super::ForegroundState::ALL;
        let accounted: Duration = states.iter().map(|&state| occupancy.time(state)).sum();
        prop_assert_eq!(accounted, device.now());
    }
}
