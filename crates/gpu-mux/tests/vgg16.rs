//! What the default policy keeps on the virtual device: VGG-16 on one of 8 GPUs, beside another VGG-16.

use std::time::Duration;

use gpu_mux::{DeviceParameter, DeviceParameters, ForegroundState, Jobs, Play, Played, Workload};

const VGG16: &str = include_str!("../workloads/vgg16-8-gpus-rank-1.json");

/// What came of sharing a device.
struct Shared {
    /// The foreground's iterations together, by alone, and the middle one.
    slowdown: f64,
    median_slowdown: f64,
    /// The part of the foreground's compute-idle time in which the background was on the device.
    share_of_idle: f64,
}

fn share(workload: &Workload, parameters: DeviceParameters) -> Shared {
    let play = Play { parameters, ..Play::default() };
    let alone = workload.play(&Play { jobs: Jobs::Foreground, ..play }).unwrap();
    let both = workload.play(&play).unwrap();
    // Compute-idle: nothing to compute, and no transfer, which is counted apart.
    let idle = [ForegroundState::Idle, ForegroundState::Waiting];
    let sum = |time: fn(&Played, ForegroundState) -> Duration| {
        idle.iter().map(|&state| time(&both, state).as_secs_f64()).sum::<f64>()
    };
    Shared {
        slowdown: both.elapsed().as_secs_f64() / alone.elapsed().as_secs_f64(),
        median_slowdown: median(&both).as_secs_f64() / median(&alone).as_secs_f64(),
        share_of_idle: sum(|both, state| both.occupancy.background(state))
            / sum(|both, state| both.occupancy.time(state)),
    }
}

fn median(played: &Played) -> Duration {
    let mut iterations = played.iterations.clone();
    iterations.sort();
    iterations[iterations.len() / 2]
}

fn vgg16() -> Workload {
    Workload::from_json("the workload", VGG16).unwrap()
}

#[track_caller]
fn check(shared: &Shared, slowdown: f64, share_of_idle: f64, device: &str) {
    let Shared { slowdown: mean, median_slowdown: median, share_of_idle: share } = shared;
    println!("{device}: {mean:.4} (median {median:.4}), {:.1}% of the idle time", share * 100.0);
    assert!(mean.max(*median) <= slowdown && *share >= share_of_idle, "{device}");
}

#[test]
fn the_default_keeps_the_foreground_within_3_percent_and_fills_80_percent_of_its_idle_time() {
    check(&share(&vgg16(), DeviceParameters::a100()), 1.03, 0.8, "A100");
}

#[test]
fn it_stays_within_5_and_70_percent_when_parameters_are_half_as_large_again_or_half() {
    let (workload, a100) = (vgg16(), DeviceParameters::a100());
    let check = |parameters: DeviceParameters, device: &str| {
        check(&share(&workload, parameters), 1.05, 0.7, device);
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
            // Numerical Recipes' generator; its upper bits are good enough.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            device.scaled(parameter, 0.5 + (random >> 11) as f64 / (1_u64 << 53) as f64)
        });
        check(device, &format!("combination {combination}"));
    }
}
