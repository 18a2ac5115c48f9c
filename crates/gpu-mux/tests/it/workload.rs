//! Workloads in files and on the virtual device.

use std::num::NonZeroUsize;
use std::time::Duration;

use gpu_mux::{
    BackgroundHost, DeviceParameters, Error, ForegroundHost, ForegroundState, Iteration, Jobs, Kernel,
    Partners, Policy, SimulationOptions, StepWork, VirtualWork, Workload, WorkloadStep,
};

const TWO_LAYERS: &str = r#"{"schema": "deeppool/workload/v1", "name": "two layers",
 "foreground": {"samples": 32, "steps": [
   {"name": "receive", "lane": "communication", "transfer_us": 20, "partners_us": 300, "receives": true},
   {"name": "layer", "lane": "compute", "after": 0,
    "kernels": [{"time_us": 80.5, "share": 1, "memory": 0.3}]},
   {"name": "send", "lane": "communication", "transfer_us": 20, "partners_us": 80.5, "after": 1}]},
 "background": {"samples": 8, "steps": [
   {"name": "layer", "lane": "compute",
    "kernels": [{"time_us": 50, "share": 0.5, "memory": 0.3},
                {"time_us": 150, "share": 1, "memory": 0.1, "waves": 3}]}]}}"#;

fn two_layers() -> Workload {
    Workload::from_json(TWO_LAYERS).unwrap()
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn bare() -> DeviceParameters {
    DeviceParameters::a100().without_overheads()
}

#[test]
fn json_round_trip_is_lossless() {
    let workload = two_layers();
    assert_eq!(workload.foreground.steps[1].work, {
        StepWork::Compute(vec![Kernel::new(Duration::from_nanos(80_500), 1.0, 0.3).unwrap()])
    });
    assert_eq!(Workload::from_json(&workload.to_json()), Ok(workload));
}

#[test]
fn errors_name_the_position_in_the_file() {
    for (from, to, expected) in [
        ("workload/v1", "plan/v1", "expected the schema \"deeppool/workload/v1\", got \"deeppool/plan/v1\""),
        ("\"samples\": 32", "\"samples\": 0", "foreground.samples: expected at least 1"),
        (
            "\"samples\": 8",
            "\"samples\": 1000000000",
            "background.samples: 1000000000, expected at most 2097152 with 2 kernels an iteration",
        ),
        (", \"partners_us\": 300", "", "foreground.steps[0]: a communication needs partners_us"),
        (
            "\"share\": 0.5",
            "\"share\": 1.5",
            "background.steps[0]: a kernel's share of the device is 1.5, \
             expected above 0 and at most 1",
        ),
        (
            "\"after\": 0",
            "\"after\": 2",
            "foreground.steps[1]: after is 2, \
             expected the index of an earlier step on the other lane",
        ),
        (
            "\"time_us\": 80.5",
            "\"time_us\": -1",
            "foreground.steps[1]: time_us is -1, expected a time of at least 0",
        ),
        ("\"waves\": 3", "\"waves\": 0", "background.steps[0].kernels[1].waves: "),
        ("\"after\": 1", "\"afer\": 1", "foreground.steps[2].afer: unknown field `afer`"),
        (
            "{\"time_us\": 80.5, \"share\": 1, \"memory\": 0.3}",
            "",
            "foreground.steps: expected a kernel that takes time",
        ),
    ] {
        assert!(TWO_LAYERS.contains(from), "{from}");
        let error = Workload::from_json(&TWO_LAYERS.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let longer = Workload::from_json(&format!("{TWO_LAYERS}{{}}")).unwrap_err().to_string();
    assert!(longer.starts_with("trailing characters"), "{longer}");
}

#[test]
fn foreground_alone_takes_the_sum_of_its_steps() {
    let options = SimulationOptions::default()
        .with_jobs(Jobs::Foreground)
        .with_parameters(bare())
        .with_iterations(5)
        .with_warm_up(2);
    let report = two_layers().simulate(&options).unwrap();
    // 300 us until the partners arrive, 20 to receive, 80.5 to compute, 20 to send to partners that
    // have arrived.
    assert_eq!(report.iterations, vec![Duration::from_nanos(420_500); 5]);
    let state = |state| report.occupancy.time(state);
    assert_eq!(state(ForegroundState::Waiting), us(300) * 5);
    assert_eq!(state(ForegroundState::Transferring), us(40) * 5);
    assert_eq!((report.background_pieces, report.background_samples_per_s()), (0, 0.0));
}

#[test]
fn the_background_alone_trains_at_full_speed_cut_or_not() {
    let whole = Policy { captured_graphs: true, ..Policy::naive() };
    let pieces = Policy { background_piece: Some(us(60)), ..whole };
    for policy in [whole, pieces] {
        let options = SimulationOptions::default()
            .with_jobs(Jobs::Background)
            .with_parameters(bare())
            .with_policy(policy);
        let report = two_layers().simulate(&options).unwrap();
        assert_eq!(report.elapsed(), us(200) * 100);
        assert!((report.background_samples_per_s() - 8.0 / 200e-6).abs() < 1e-3);
    }
}

#[test]
fn the_background_is_cut_between_kernels_and_by_samples() {
    let pieces = |bound, micro_batch| {
        let policy = Policy {
            background_piece: bound,
            background_micro_batch: NonZeroUsize::new(micro_batch),
            ..Policy::naive()
        };
        let options = SimulationOptions::default()
            .with_jobs(Jobs::Background)
            .with_parameters(bare())
            .with_policy(policy)
            .with_iterations(1)
            .with_warm_up(1);
        let report = two_layers().simulate(&options).unwrap();
        (report.background_pieces, report.over_limit > 0, report.elapsed())
    };
    assert_eq!(pieces(None, 0), (1, false, us(200)));
    assert_eq!(pieces(Some(us(200)), 0), (1, false, us(200)));
    assert_eq!(pieces(Some(us(199)), 0), (2, false, us(200)));
    assert_eq!(pieces(Some(us(100)), 0), (2, true, us(200)), "a kernel is not cut");
    // Halves: of the kernel with one wave, which takes as long as before, and of that with several,
    // 75 us each.
    assert_eq!(pieces(Some(us(125)), 4), (3, false, us(250)));
}

#[test]
fn gaps_between_kernels_count_in_pieces_and_their_estimates() {
    let policy = Policy::default();
    let (bound, gap) = (policy.background_piece.unwrap(), DeviceParameters::a100().graph_node_gap);
    let kernel = Kernel::new(us(10), 1.0, 0.0).unwrap();
    let step = WorkloadStep { name: "short".into(), work: StepWork::Compute(vec![kernel; 100]), after: None };
    let workload = Workload { background: Iteration { samples: 1, steps: vec![step] }, ..two_layers() };
    let mut host = BackgroundHost::new(&workload.background, &policy, &DeviceParameters::a100());
    let mut kernels = 0;
    while kernels < 100 {
        let (piece, work) = host.offer().unwrap();
        let VirtualWork::Compute { kernels: of_piece, .. } = &work else { panic!("{work:?}") };
        let count = of_piece.len() as u32;
        kernels += count;
        assert_eq!(piece.estimate, Some(work.time() + gap * (count - 1)));
        assert!(piece.estimate <= Some(bound));
        assert!(
            kernels == 100 || piece.estimate.unwrap() + gap + kernel.time() > bound,
            "the piece is not maximal"
        );
    }
    let report = workload.simulate(&SimulationOptions::default().with_jobs(Jobs::Background)).unwrap();
    assert_eq!(report.over_limit, 0);
}

#[test]
fn iterations_do_not_overlap() {
    let workload = two_layers();
    let mut host = ForegroundHost::new(&workload.foreground, &Policy::default(), &bare());
    let mut after = Vec::new();
    while let Some((tasklet, _)) = host.offer() {
        after.push(tasklet.after.map(|id| id.number));
        if tasklet.id.number == 0 {
            host.finish();
        }
    }
    // Receive, layer and send, twice: the second receive waits for the first layer, the other
    // lane's last step.
    assert_eq!(after, [None, Some(0), Some(1), Some(1), Some(3), Some(4)]);
    // A step without a dependency in its iteration waits for the last step of the previous
    // iteration on the other lane.
    let layer = WorkloadStep { after: None, ..workload.foreground.steps[1].clone() };
    let send = WorkloadStep { after: Some(0), ..workload.foreground.steps[2].clone() };
    let two = Iteration { samples: 1, steps: vec![layer, send] };
    let mut host = ForegroundHost::new(&two, &Policy::default(), &bare());
    let first = host.offer().unwrap().0;
    let last = host.offer().unwrap().0;
    assert_eq!((first.after, host.offer()), (None, None));
    host.finish();
    assert_eq!(host.offer().unwrap().0.after, Some(last.id));
}

#[test]
fn external_partners_are_set_on_request() {
    let workload = two_layers();
    let host = ForegroundHost::new(&workload.foreground, &Policy::default(), &bare());
    let partners = |mut host: ForegroundHost<'_>| match host.offer().unwrap().1 {
        VirtualWork::Communication { partners, .. } => partners,
        VirtualWork::Compute { .. } => panic!("the first step is a communication"),
    };
    assert_eq!(partners(host.clone()), Partners::After(us(300)));
    assert_eq!(partners(host.with_external_partners()), Partners::External);
}

#[test]
fn warm_up_iterations_are_not_measured() {
    let options = SimulationOptions::default().with_jobs(Jobs::Background).with_iterations(4);
    let all = two_layers().simulate(&options.with_warm_up(0)).unwrap();
    let warm = two_layers().simulate(&options.with_warm_up(1).with_iterations(3)).unwrap();
    assert!(all.iterations[0] > all.iterations[1], "the first waits for its launch");
    assert_eq!(warm.iterations, all.iterations[1..]);
    assert!(warm.background_pieces < all.background_pieces);
}

#[test]
fn a_background_fills_the_gaps_and_costs_the_foreground_little() {
    let options = SimulationOptions::default();
    let workload = two_layers();
    let alone = workload.simulate(&options.with_jobs(Jobs::Foreground)).unwrap();
    let both = workload.simulate(&options).unwrap();
    assert_eq!(both, workload.simulate(&options).unwrap(), "the simulation is not deterministic");
    assert!(both.elapsed() >= alone.elapsed());
    assert!(both.elapsed() <= alone.elapsed().mul_f64(1.1), "{:?} {:?}", both.elapsed(), alone.elapsed());
    let waiting = ForegroundState::Waiting;
    assert!(both.occupancy.background(waiting) >= both.occupancy.time(waiting) / 4);
}

#[test]
fn workload_that_cannot_run_is_an_error() {
    let held_back = Policy { background_in_flight: 0, background_in_flight_alone: 0, ..Policy::default() };
    let options = SimulationOptions::default().with_jobs(Jobs::Background).with_policy(held_back);
    assert_eq!(two_layers().simulate(&options), Err(Error::Stalled));
    let idle = WorkloadStep { name: "nothing".into(), work: StepWork::Compute(Vec::new()), after: None };
    let empty = Workload { background: Iteration { samples: 1, steps: vec![idle] }, ..two_layers() };
    assert_eq!(empty.simulate(&SimulationOptions::default()), Err(Error::EmptyIteration("background")));
}

#[test]
fn simulations_of_implausible_times_are_refused() {
    for (from, to, expected) in [
        ("\"transfer_us\": 20,", "\"transfer_us\": 2e12,", "the number of background iterations in one"),
        ("\"transfer_us\": 20,", "\"transfer_us\": 8e15,", "the virtual time of the simulation"),
        ("\"partners_us\": 300", "\"partners_us\": 8e15", "the virtual time of the simulation"),
    ] {
        let workload = Workload::from_json(&TWO_LAYERS.replacen(from, to, 1)).unwrap();
        let error = workload.simulate(&SimulationOptions::default()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("check the units"), "{error}");
    }
    let text = TWO_LAYERS.replacen("\"transfer_us\": 20,", "\"transfer_us\": 2e12,", 1);
    let alone = SimulationOptions::default().with_jobs(Jobs::Foreground).with_iterations(3).with_warm_up(1);
    let report = Workload::from_json(&text).unwrap().simulate(&alone).unwrap();
    assert!(report.elapsed() > Duration::from_secs(6_000_000), "{:?}", report.elapsed());
}
