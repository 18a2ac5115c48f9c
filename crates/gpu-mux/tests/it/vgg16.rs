//! The default policy on the virtual device: VGG-16 on one of 8 GPUs beside another VGG-16.

use std::time::Duration;

use gpu_mux::{
    DeviceParameter, DeviceParameters, ForegroundState, Jobs, Occupancy, Policy, SimulationOptions,
    SimulationReport, Workload,
};

const VGG16: &str = include_str!("../../workloads/vgg16-8-gpus-rank-1.json");

/// Results of sharing a device.
struct Shared {
    /// Slow-down of the foreground's total time, and of its median iteration, relative to running
    /// alone.
    slowdown: f64,
    median_slowdown: f64,
    /// Fraction of the foreground's idle time (neither compute nor transfer) in which background
    /// was on the device, and the same fraction of the time in which communication waits for its
    /// partners (`None` if there is none).
    share_of_idle: f64,
    share_of_waiting: Option<f64>,
    /// Time that the background's work takes alone, divided by the foreground's idle time.
    worth_of_idle: f64,
}

fn share(workload: &Workload, options: &SimulationOptions) -> Shared {
    let alone = workload.simulate(&options.with_jobs(Jobs::Foreground)).unwrap();
    let background = workload.simulate(&options.with_jobs(Jobs::Background)).unwrap();
    let both = workload.simulate(options).unwrap();
    let seconds = |of: fn(&Occupancy, ForegroundState) -> Duration, states: &[ForegroundState]| {
        states.iter().map(|&state| of(&both.occupancy, state).as_secs_f64()).sum::<f64>()
    };
    let part = |states: &[ForegroundState]| {
        let time = seconds(Occupancy::time, states);
        (time > 0.0).then(|| seconds(Occupancy::background, states) / time)
    };
    let idle = [ForegroundState::Idle, ForegroundState::Waiting];
    Shared {
        slowdown: both.elapsed().as_secs_f64() / alone.elapsed().as_secs_f64(),
        median_slowdown: median(&both).as_secs_f64() / median(&alone).as_secs_f64(),
        share_of_idle: part(&idle).unwrap_or_default(),
        share_of_waiting: part(&[ForegroundState::Waiting]),
        worth_of_idle: both.background_samples
            / background.background_samples_per_s()
            / seconds(Occupancy::time, &idle),
    }
}

fn median(report: &SimulationReport) -> Duration {
    let mut iterations = report.iterations.clone();
    iterations.sort();
    iterations[iterations.len() / 2]
}

fn vgg16() -> Workload {
    Workload::from_json(VGG16).unwrap()
}

fn show(shared: &Shared, what: &str) {
    println!(
        "{what}: {:.4} (median {:.4}), {:.1}% of the idle time, {} of the waiting, worth {:.1}%",
        shared.slowdown,
        shared.median_slowdown,
        shared.share_of_idle * 100.0,
        shared.share_of_waiting.map_or("none".to_owned(), |share| format!("{:.1}%", share * 100.0)),
        shared.worth_of_idle * 100.0,
    );
}

#[track_caller]
fn check(shared: &Shared, slowdown: f64, of_idle: f64, device: &str) {
    show(shared, device);
    assert!(shared.slowdown.max(shared.median_slowdown) <= slowdown, "{device}");
    // Both the time for which background is on the device and the work it does.
    assert!(shared.share_of_idle.min(shared.worth_of_idle) >= of_idle, "{device}");
    assert!(shared.share_of_waiting.is_none_or(|share| share >= of_idle), "{device}");
}

#[test]
fn default_slows_the_foreground_by_at_most_3_percent_and_fills_80_percent_of_its_idle_time() {
    check(&share(&vgg16(), &SimulationOptions::default()), 1.03, 0.8, "A100");
}

/// The presets use the idle time as their rules imply, and the default slows the foreground less
/// than every preset that fills the idle time.
#[test]
fn presets_use_idle_time_according_to_their_rules() {
    let of = |name: &str, policy: Policy| {
        let shared = share(&vgg16(), &SimulationOptions::default().with_policy(policy));
        show(&shared, name);
        shared
    };
    let default = of("default", Policy::default());
    let (ungated, artifact) = (of("ungated", Policy::ungated()), of("artifact", Policy::artifact()));
    let deeppool = of("deeppool", Policy::deeppool());
    assert!(ungated.share_of_idle > 0.98 && deeppool.share_of_idle >= 0.8 && artifact.share_of_idle <= 0.4);
    for other in [ungated, deeppool] {
        assert!(default.slowdown < other.slowdown && default.share_of_idle > 0.95 * other.share_of_idle);
    }
    let promised = 1.0 + Policy::default().idle_periods.unwrap().delay_share;
    assert!(default.slowdown <= promised);
}

/// `naive` runs the two jobs kernel by kernel in turn, so its foreground waits for about as many
/// background kernels as it has kernels. With priority it waits for waves of them.
#[test]
fn without_priority_the_foreground_waits_for_a_background_kernel_before_each_of_its_own() {
    let of = |policy: Policy| share(&vgg16(), &SimulationOptions::default().with_policy(policy));
    let (naive, priority) = (of(Policy::naive()), of(Policy::priority()));
    show(&naive, "naive");
    // One background iteration of 19.1 ms in each foreground iteration of 12.9 ms, 4 of them idle.
    assert!((2.0..2.2).contains(&naive.slowdown), "{}", naive.slowdown);
    assert!((1.05..1.15).contains(&priority.slowdown), "{}", priority.slowdown);
}

/// `feedback` withholds the background for a whole idle period if one of the last compute tasklets
/// before it has taken 1.1 times its estimate. In virtual time without jitter, none does. A jitter
/// of 1 us exceeds a tenth of the tasklets of 7 to 9 us before the longest idle period.
#[test]
fn jitter_makes_feedback_withhold_the_background_and_leaves_default_as_it_is() {
    let of = |policy: Policy, jitter_us: u64| {
        let device =
            DeviceParameters { jitter: Duration::from_micros(jitter_us), ..DeviceParameters::a100() };
        let options = SimulationOptions::default().with_policy(policy).with_parameters(device);
        let shared = share(&vgg16(), &options.with_iterations(400));
        show(&shared, &format!("jitter {jitter_us} us"));
        shared
    };
    assert!(of(Policy::feedback(), 0).share_of_idle > 0.95);
    let share = of(Policy::feedback(), 1).share_of_idle;
    assert!((0.4..0.7).contains(&share), "{share}");
    let (exact, varying) = (of(Policy::default(), 0), of(Policy::default(), 1));
    assert!((varying.share_of_idle - exact.share_of_idle).abs() < 0.01);
    assert!((varying.slowdown - exact.slowdown).abs() < 0.005);
}

#[test]
fn default_stays_within_5_and_70_percent_when_parameters_change_by_half() {
    let (workload, a100) = (vgg16(), DeviceParameters::a100());
    let check = |parameters: DeviceParameters, device: &str| {
        check(
            &share(&workload, &SimulationOptions::default().with_parameters(parameters)),
            1.05,
            0.7,
            device,
        );
    };
    for factor in [0.5, 1.5] {
        for parameter in DeviceParameter::ALL {
            check(a100.scaled(parameter, factor), &format!("{parameter:?} x {factor}"));
        }
        let all =
            DeviceParameter::ALL.into_iter().fold(a100, |device, parameter| device.scaled(parameter, factor));
        check(all, &format!("all x {factor}"));
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for combination in 0..24 {
        let device = DeviceParameter::ALL.into_iter().fold(a100, |device, parameter| {
            // The generator of Numerical Recipes; its upper bits are sufficiently random.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            device.scaled(parameter, 0.5 + (random >> 11) as f64 / (1_u64 << 53) as f64)
        });
        check(device, &format!("combination {combination}"));
    }
}
