//! The virtual device through the `Device` interface.

use std::num::NonZeroU32;
use std::time::Duration;

use gpu_mux::{
    Awaits, Device, DeviceParameter, DeviceParameters, Driver, DriverError, Error, ForegroundState, JobId,
    Kernel, Lane, Partners, Policy, Tasklet, TaskletId, VirtualDevice, VirtualWork,
};

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

fn kernel(us: u64, share: f64) -> Kernel {
    Kernel::new(Duration::from_micros(us), share, 0.0).unwrap()
}

fn bare() -> DeviceParameters {
    DeviceParameters::a100().without_overheads()
}

fn background(number: u64) -> Tasklet {
    Tasklet::new(JobId::BACKGROUND, number)
}

fn foreground(number: u64) -> Tasklet {
    Tasklet::new(JobId::FOREGROUND, number)
}

/// Runs until there are no more events. Returns each finished tasklet, the time at which the host
/// saw it, and its duration.
fn run(device: &mut VirtualDevice) -> Vec<(TaskletId, Duration, Duration)> {
    let mut ends = Vec::new();
    while device.next_event().is_some() {
        device.wait(None).unwrap();
        while let Some(finished) = device.finished().unwrap() {
            ends.push((finished.tasklet, device.now(), finished.took));
        }
    }
    ends
}

#[test]
fn kernels_one_by_one_take_their_times_and_the_gaps() {
    let parameters = DeviceParameters::a100();
    let mut device = VirtualDevice::new(parameters).unwrap();
    device.launch(&foreground(0), VirtualWork::kernels(vec![kernel(100, 1.0); 4])).unwrap();
    let took = us(400) + parameters.kernel_gap * 3;
    let seen = parameters.launch_time + parameters.launch_latency + took + parameters.completion_latency;
    assert_eq!(run(&mut device), [(foreground(0).id, seen, took)]);
}

#[test]
fn short_kernels_one_by_one_are_bound_by_the_host_and_a_graph_is_not() {
    let parameters = DeviceParameters::a100();
    let short = vec![kernel(1, 0.1); 100];
    let took = |work| {
        let mut device = VirtualDevice::new(parameters).unwrap();
        device.launch(&foreground(0), work).unwrap();
        run(&mut device)[0].2
    };
    assert_eq!(took(VirtualWork::kernels(short.clone())), us(1) + parameters.launch_time * 99);
    assert_eq!(took(VirtualWork::graph(short)), us(100) + parameters.graph_node_gap * 99);
}

#[test]
fn host_launches_sequentially_and_sees_ends_afterwards() {
    let parameters = DeviceParameters::a100();
    let mut device = VirtualDevice::new(parameters).unwrap();
    device.launch(&foreground(0), VirtualWork::graph([kernel(10, 1.0)])).unwrap();
    device.launch(&background(0), VirtualWork::kernels(vec![kernel(1, 1.0); 100])).unwrap();
    let ends = run(&mut device);
    let first = parameters.graph_launch_time + parameters.graph_node_time;
    assert_eq!(ends[0].1, first + us(300), "the end of the first is seen when the last is launched");
    assert_eq!(ends[0].2, us(10));
}

#[test]
fn free_multiprocessors_go_to_the_stream_with_priority() {
    let other = Tasklet::new(JobId::background(1), 0);
    for (priorities, first) in [(true, foreground(0)), (false, other)] {
        let mut device = VirtualDevice::with_priorities(bare(), priorities).unwrap();
        // One that runs, another job that waits for it, and the foreground, launched last.
        device.launch(&background(0), VirtualWork::graph([kernel(50, 1.0)])).unwrap();
        device.wait(Some(us(1))).unwrap();
        device.launch(&other, VirtualWork::graph([kernel(50, 1.0)])).unwrap();
        device.wait(Some(us(2))).unwrap();
        device.launch(&foreground(0), VirtualWork::graph([kernel(50, 1.0)])).unwrap();
        let ends = run(&mut device);
        assert_eq!(ends[0].0, background(0).id, "a running kernel was interrupted");
        assert_eq!((ends[1].0, ends[1].1), (first.id, us(100)));
    }
}

#[test]
fn kernels_yield_to_priority_between_waves_only() {
    // A background kernel of five waves of 20 us each, and the foreground after 30 us.
    for (priorities, ends) in [(true, [us(50), us(110)]), (false, [us(110), us(100)])] {
        let mut device = VirtualDevice::with_priorities(bare(), priorities).unwrap();
        let waves = kernel(100, 1.0).in_waves(NonZeroU32::new(5).unwrap());
        device.launch(&background(0), VirtualWork::graph([waves])).unwrap();
        device.wait(Some(us(30))).unwrap();
        device.launch(&foreground(0), VirtualWork::graph([kernel(10, 1.0)])).unwrap();
        let mut seen = run(&mut device);
        seen.sort_by_key(|end| end.0.job);
        assert_eq!([seen[0].1, seen[1].1], ends, "priorities: {priorities}");
    }
}

#[test]
fn kernels_do_not_yield_to_equal_priority() {
    // The second background job waits for all five waves of the first.
    let mut device = VirtualDevice::new(bare()).unwrap();
    let waves = kernel(100, 1.0).in_waves(NonZeroU32::new(5).unwrap());
    device.launch(&background(0), VirtualWork::graph([waves])).unwrap();
    device.launch(&Tasklet::new(JobId::background(1), 0), VirtualWork::graph([kernel(10, 1.0)])).unwrap();
    assert_eq!(run(&mut device).iter().map(|end| end.1).collect::<Vec<_>>(), [us(100), us(110)]);
}

/// A kernel of 25 us behind two of 1 ms each on another stream comes 983 to 1,004 us late on an
/// H200 (`delay_us` of `mux-bench --device cuda`): it waits for the first and not for the second,
/// which became ready after it.
#[test]
fn a_kernel_waits_for_the_running_kernel_of_equal_priority_and_not_for_those_behind_it() {
    let mut device = VirtualDevice::with_priorities(bare(), false).unwrap();
    for number in 0..2 {
        let waves = kernel(1_000, 1.0).in_waves(NonZeroU32::new(40).unwrap());
        device.launch(&background(number), VirtualWork::graph([waves])).unwrap();
    }
    device.launch(&foreground(0), VirtualWork::graph([kernel(25, 1.0)])).unwrap();
    let ends: Vec<_> = run(&mut device).iter().map(|end| (end.0, end.1)).collect();
    let expected = [(background(0).id, us(1_000)), (foreground(0).id, us(1_025))];
    assert_eq!(ends[..2], expected);
    assert_eq!(ends[2], (background(1).id, us(2_025)));
}

#[test]
fn streams_of_equal_priority_alternate_kernel_by_kernel_in_any_launch_order() {
    let (short, long) = (VirtualWork::graph([kernel(10, 1.0)]), VirtualWork::graph([kernel(30, 1.0)]));
    for foreground_first in [false, true] {
        let mut device = VirtualDevice::with_priorities(bare(), false).unwrap();
        let launch = |device: &mut VirtualDevice, tasklet: fn(u64) -> Tasklet, work: &VirtualWork| {
            (0..4).for_each(|number| device.launch(&tasklet(number), work.clone()).unwrap());
        };
        if foreground_first {
            launch(&mut device, foreground, &short);
        }
        launch(&mut device, background, &long);
        if !foreground_first {
            launch(&mut device, foreground, &short);
        }
        let ends = run(&mut device);
        let of_foreground: Vec<_> =
            ends.iter().filter(|end| end.0.job.is_foreground()).map(|end| end.1).collect();
        let before = if foreground_first { 0 } else { 30 };
        assert_eq!(of_foreground, [0, 40, 80, 120].map(|time| us(time + before + 10)));
    }
}

#[test]
fn jitter_varies_durations_around_the_mean_and_is_deterministic() {
    let durations = |jitter: Duration| {
        let mut device = VirtualDevice::new(DeviceParameters { jitter, ..bare() }).unwrap();
        for number in 0..400 {
            device
                .launch(&background(number), VirtualWork::graph([kernel(50, 1.0), kernel(50, 0.5)]))
                .unwrap();
        }
        run(&mut device).iter().map(|end| end.2.as_secs_f64() * 1e6).collect::<Vec<_>>()
    };
    assert!(durations(Duration::ZERO).iter().all(|&took| (took - 100.0).abs() < 1e-9));
    let took = durations(us(2));
    assert_eq!(took, durations(us(2)));
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    let variance = took.iter().map(|took| (took - mean).powi(2)).sum::<f64>() / took.len() as f64;
    assert!((mean - 100.0).abs() < 0.3 && (variance.sqrt() - 2.0).abs() < 0.2, "{mean} {variance}");
    // A deviation is at most half of the first kernel.
    assert!(durations(us(1_000)).iter().all(|took| (75.0..=125.001).contains(took)));
}

#[test]
fn kernels_get_free_multiprocessors_and_more_when_others_end() {
    let mut device = VirtualDevice::new(DeviceParameters { multiprocessors: 100, ..bare() }).unwrap();
    device.launch(&background(0), VirtualWork::graph([kernel(50, 0.75)])).unwrap();
    device.launch(&foreground(0), VirtualWork::graph([kernel(50, 0.5)])).unwrap();
    // The foreground is dispatched first with half of the device; the background gets half of the
    // device of the three quarters that it wants.
    let ends = run(&mut device);
    assert_eq!((ends[0].0, ends[0].1), (foreground(0).id, us(50)));
    // 50 us at two thirds of its speed, and the remainder at full speed.
    let left = Duration::from_nanos((50_000.0 * (1.0 - 2.0 / 3.0_f64)).ceil() as u64);
    assert_eq!((ends[1].0, ends[1].1), (background(0).id, us(50) + left));
}

#[test]
fn memory_bandwidth_is_shared() {
    let mut device = VirtualDevice::new(bare()).unwrap();
    let copy = Kernel::new(us(60), 0.25, 1.0).unwrap();
    let sums = Kernel::new(us(60), 0.25, 0.0).unwrap();
    device.launch(&foreground(0), VirtualWork::graph([copy])).unwrap();
    device.launch(&background(0), VirtualWork::graph([copy])).unwrap();
    device.launch(&Tasklet::new(JobId::background(1), 0), VirtualWork::graph([sums])).unwrap();
    let ends = run(&mut device);
    assert_eq!(ends.iter().map(|end| end.1).collect::<Vec<_>>(), [us(60), us(120), us(120)]);
}

#[test]
fn launches_do_not_overtake_on_a_shared_hardware_queue() {
    let end_of_the_second_job = |hardware_queues| {
        let mut device = VirtualDevice::new(DeviceParameters { hardware_queues, ..bare() }).unwrap();
        device.launch(&background(0), VirtualWork::graph(vec![kernel(50, 0.1); 2])).unwrap();
        device.launch(&Tasklet::new(JobId::background(1), 0), VirtualWork::graph([kernel(50, 0.1)])).unwrap();
        let ends = run(&mut device);
        ends.iter().find(|end| end.0.job == JobId::background(1)).unwrap().1
    };
    assert_eq!(end_of_the_second_job(2), us(50));
    assert_eq!(end_of_the_second_job(1), us(100), "behind the second kernel of the first");
}

#[test]
fn empty_tasklets_do_not_let_later_launches_overtake() {
    let mut device = VirtualDevice::new(DeviceParameters { hardware_queues: 1, ..bare() }).unwrap();
    for number in 0..3 {
        let kernels = if number == 1 { Vec::new() } else { vec![kernel(50, 0.1)] };
        device.launch(&background(number), VirtualWork::graph(kernels)).unwrap();
    }
    let other = Tasklet::new(JobId::background(1), 0);
    device.launch(&other, VirtualWork::graph([kernel(50, 0.1)])).unwrap();
    let ends = run(&mut device);
    assert_eq!(
        ends.iter().find(|end| end.0 == other.id).unwrap().1,
        us(100),
        "behind the third of the first"
    );
}

#[test]
fn between_two_tasklets_of_a_stream_there_is_a_gap() {
    let parameters = DeviceParameters { kernel_gap: us(7), ..bare() };
    let mut device = VirtualDevice::new(parameters).unwrap();
    for number in 0..3 {
        // A tasklet without kernels has no gap after it.
        let kernels = if number == 1 { Vec::new() } else { vec![kernel(10, 1.0)] };
        device.launch(&background(number), VirtualWork::graph(kernels)).unwrap();
    }
    assert_eq!(run(&mut device).last().unwrap().1, us(27));
}

#[test]
fn of_kernels_that_become_ready_together_the_older_launch_goes_first() {
    let mut device = VirtualDevice::new(DeviceParameters { multiprocessors: 10, ..bare() }).unwrap();
    let launch = |device: &mut VirtualDevice, job, number, time, share| {
        let work = VirtualWork::graph([kernel(time, share)]);
        device.launch(&Tasklet::new(JobId::background(job), number), work).unwrap();
    };
    // The stream of job 0 is older, but its second launch is later.
    launch(&mut device, 0, 0, 10, 0.1);
    launch(&mut device, 1, 0, 10, 0.9);
    launch(&mut device, 1, 1, 30, 1.0);
    launch(&mut device, 0, 1, 30, 1.0);
    let ends = run(&mut device);
    let last: Vec<_> = ends[2..].iter().map(|end| (end.0.job, end.1)).collect();
    assert_eq!(last, [(JobId::background(1), us(40)), (JobId::background(0), us(70))]);
}

#[test]
fn a_share_is_rounded_up_to_whole_multiprocessors() {
    let parameters = DeviceParameters { multiprocessors: 10, ..bare() };
    let mut device = VirtualDevice::new(parameters).unwrap();
    // Of 10 multiprocessors: 6, and then the remaining 4 of the 5 that a share of 0.41 requests.
    device.launch(&foreground(0), VirtualWork::graph([kernel(50, 0.6)])).unwrap();
    device.launch(&background(0), VirtualWork::graph([kernel(40, 0.41)])).unwrap();
    assert_eq!(run(&mut device).iter().map(|end| end.1).collect::<Vec<_>>(), [us(50), us(50)]);
}

#[test]
fn duration_starts_when_a_tasklet_is_first_on_its_stream() {
    let mut device = VirtualDevice::new(bare()).unwrap();
    device.launch(&background(0), VirtualWork::graph([kernel(1_000, 1.0)])).unwrap();
    device.wait(Some(us(100))).unwrap();
    for number in 0..2 {
        device.launch(&foreground(number), VirtualWork::graph([kernel(10, 1.0)])).unwrap();
    }
    let took: Vec<_> = run(&mut device).iter().map(|end| end.2).collect();
    // The first has waited for the background, the second for the first.
    assert_eq!(took, [us(1_000), us(910), us(10)]);
}

#[test]
fn tasklets_wait_for_their_dependency() {
    let parameters = DeviceParameters::a100();
    let mut device = VirtualDevice::new(parameters).unwrap();
    let receive = foreground(0).receiving();
    let transfer = VirtualWork::Communication { transfer: us(20), partners: Partners::After(us(200)) };
    device.launch(&receive, transfer).unwrap();
    let layer = foreground(1).after(receive.id);
    device.launch(&layer, VirtualWork::graph([kernel(30, 1.0)])).unwrap();
    let ends = run(&mut device);
    let end = us(220) + parameters.kernel_gap + us(30) + parameters.completion_latency;
    assert_eq!((ends[1].0, ends[1].1, ends[1].2), (layer.id, end, us(30)));
    // It holds its share of the device while it waits.
    assert_eq!(ends[0].2, us(220).saturating_sub(parameters.launch_time + parameters.launch_latency));
    assert_eq!(device.occupancy().time(ForegroundState::Transferring), us(20));
}

#[test]
fn external_partner_times_determine_the_exchange() {
    let mut device = VirtualDevice::new(bare()).unwrap();
    let exchange = foreground(0).on(Lane::Communication);
    let work = VirtualWork::Communication { transfer: us(20), partners: Partners::External };
    device.launch(&exchange, work).unwrap();
    device.wait(None).unwrap();
    let arrived = device.exchange().unwrap();
    assert_eq!((arrived.tasklet, arrived.at, arrived.awaits), (exchange.id, us(0), Awaits::Partners));
    assert_eq!(device.next_event(), None, "nothing happens until the partners arrive");
    device.wait(Some(us(40))).unwrap();
    device.partners_arrive(exchange.id, us(50)).unwrap();
    device.wait(None).unwrap();
    let done = device.exchange().unwrap();
    assert_eq!((done.tasklet, done.at, done.awaits), (exchange.id, us(70), Awaits::End));
    device.partners_finish(exchange.id, us(75)).unwrap();
    assert_eq!(run(&mut device), [(exchange.id, us(75), us(75))]);
    assert_eq!(device.partners_arrive(exchange.id, us(80)), Err(Error::NotInFlight(exchange.id)));
    assert_eq!(device.occupancy().time(ForegroundState::Waiting), us(55));
}

#[test]
fn partner_times_are_refused_without_external_partners() {
    let mut device = VirtualDevice::new(bare()).unwrap();
    let work = [
        VirtualWork::Communication { transfer: us(20), partners: Partners::Ready },
        VirtualWork::graph([kernel(50, 1.0)]),
    ];
    for (number, work) in (0..).zip(work) {
        let tasklet = foreground(number).on(if number == 0 { Lane::Communication } else { Lane::Compute });
        device.launch(&tasklet, work).unwrap();
        assert_eq!(device.partners_arrive(tasklet.id, us(9)), Err(Error::PartnersNotExternal(tasklet.id)));
        assert_eq!(device.partners_finish(tasklet.id, us(9)), Err(Error::PartnersNotExternal(tasklet.id)));
    }
    assert_eq!(run(&mut device).len(), 2);
}

#[test]
fn unpolled_exchange_is_an_error() {
    let mut driver = Driver::new(Policy::default(), VirtualDevice::new(bare()).unwrap());
    let receive = foreground(0).receiving();
    let work = VirtualWork::Communication { transfer: us(10), partners: Partners::External };
    driver.offer(receive, work).unwrap();
    assert_eq!(driver.poll().unwrap(), None);
    driver.wait(None).unwrap();
    assert_eq!(driver.poll().unwrap(), None);
    assert_eq!(driver.wait(None), Err(DriverError::Device(Error::ExchangeNotPolled(receive.id))));
    // The remedy named in the error.
    while driver.device_mut().exchange().is_some() {}
    driver.device_mut().partners_arrive(receive.id, us(5)).unwrap();
    driver.wait(None).unwrap();
    while driver.device_mut().exchange().is_some() {}
    driver.device_mut().partners_finish(receive.id, us(15)).unwrap();
    driver.wait(None).unwrap();
    assert_eq!(driver.poll().unwrap().map(|finished| finished.tasklet), Some(receive.id));
}

#[test]
fn wait_respects_its_limit_and_returns_when_idle() {
    let mut device = VirtualDevice::new(bare()).unwrap();
    device.wait(None).unwrap();
    assert_eq!(device.now(), us(0));
    device.launch(&background(0), VirtualWork::graph([kernel(50, 1.0)])).unwrap();
    device.wait(Some(us(20))).unwrap();
    assert_eq!((device.now(), device.finished().unwrap()), (us(20), None));
    device.wait(Some(us(90))).unwrap();
    assert_eq!(device.now(), us(50));
    let usage = device.occupancy();
    assert_eq!(
        (usage.time(ForegroundState::Idle), usage.background(ForegroundState::Idle)),
        (us(50), us(50))
    );
}

#[test]
fn values_outside_their_range_are_named() {
    for (share, memory) in [(0.0, 0.5), (1.1, 0.5), (f64::NAN, 0.5), (0.5, -0.1), (0.5, 1.1), (0.5, f64::NAN)]
    {
        assert!(
            matches!(Kernel::new(us(1), share, memory), Err(Error::OutOfRange { .. })),
            "{share} {memory}"
        );
    }
    let longest = Kernel::new(Duration::MAX, 1.0, 0.0).unwrap_err().to_string();
    assert!(longest.starts_with("a kernel's time is ") && longest.ends_with("expected at most an hour"));
    let hour = Kernel::new(us(3_600_000_000), 1.0, 0.0).unwrap();
    assert_eq!(VirtualWork::graph([hour, hour]).time(), us(7_200_000_000));
    let endless = DeviceParameters { kernel_gap: Duration::MAX, ..bare() };
    let error = VirtualDevice::new(endless).unwrap_err().to_string();
    assert!(error.starts_with("kernel_gap is ") && error.ends_with("expected at most an hour"), "{error}");
    let none = DeviceParameters { hardware_queues: 0, ..bare() };
    let error = VirtualDevice::new(none).unwrap_err().to_string();
    assert_eq!(error, "hardware_queues is 0, expected at least 1");
}

#[test]
fn a_parameter_is_scaled_within_its_range() {
    let a100 = DeviceParameters::a100();
    assert_eq!(a100.scaled(DeviceParameter::LaunchTime, 1.5).launch_time, ns(4_500));
    assert_eq!(a100.scaled(DeviceParameter::Multiprocessors, 0.0).multiprocessors, 1);
    for parameter in DeviceParameter::ALL {
        for factor in [0.0, 0.5, 1.5, 100.0, 1e300, f64::INFINITY, f64::NAN, -1.0] {
            assert!(VirtualDevice::new(a100.scaled(parameter, factor)).is_ok(), "{parameter:?} {factor}");
        }
        assert_ne!(a100.scaled(parameter, 0.4), a100, "{parameter:?}");
    }
}

#[test]
fn communication_without_multiprocessors_does_not_slow_kernels() -> Result<(), Error> {
    let parameters = DeviceParameters {
        communication_share: 0.0,
        communication_memory: 0.0,
        ..DeviceParameters::a100().without_overheads()
    };
    let mut device = VirtualDevice::new(parameters)?;
    let kernel = Kernel::new(Duration::from_micros(100), 1.0, 1.0)?;
    device.launch(&Tasklet::new(JobId::FOREGROUND, 0), VirtualWork::graph([kernel]))?;
    let transfer =
        VirtualWork::Communication { transfer: Duration::from_micros(40), partners: Partners::Ready };
    device.launch(&Tasklet::new(JobId::FOREGROUND, 1).on(Lane::Communication), transfer)?;
    let mut ends = Vec::new();
    while ends.len() < 2 {
        device.wait(None)?;
        while let Some(finished) = device.finished()? {
            ends.push((finished.tasklet.number, device.now().as_micros()));
        }
    }
    assert_eq!(ends, [(1, 40), (0, 100)]);
    Ok(())
}
