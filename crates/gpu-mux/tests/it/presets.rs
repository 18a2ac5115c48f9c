//! The rules of DeepPool's runtimes, as in its code.

use std::time::Duration;

use gpu_mux::{Communication, JobId, Multiplexer, MuxCommand, MuxEvent, Policy, Tasklet, TaskletId};

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn layer(number: u64) -> Tasklet {
    Tasklet::new(JobId::FOREGROUND, number).estimated(us(100)).at_site((number % 10) as u32)
}

fn piece(number: u64) -> Tasklet {
    Tasklet::new(JobId::BACKGROUND, number).estimated(us(500))
}

/// Offers tasklets and returns those that are launched.
fn offer(mux: &mut Multiplexer, now: u64, tasklets: impl IntoIterator<Item = Tasklet>) -> Vec<TaskletId> {
    tasklets.into_iter().for_each(|tasklet| mux.handle(us(now), MuxEvent::Ready(tasklet)).unwrap());
    launched(mux)
}

/// Finishes a tasklet and returns those that are launched then.
fn finish(mux: &mut Multiplexer, now: u64, tasklet: Tasklet) -> Vec<TaskletId> {
    mux.handle(us(now), MuxEvent::Finished { tasklet: tasklet.id, took: us(1) }).unwrap();
    launched(mux)
}

fn launched(mux: &mut Multiplexer) -> Vec<TaskletId> {
    let launch = |command| if let MuxCommand::Launch(id) = command { Some(id) } else { None };
    std::iter::from_fn(|| mux.poll_command()).filter_map(launch).collect()
}

fn ids(tasklets: impl IntoIterator<Item = Tasklet>) -> Vec<TaskletId> {
    tasklets.into_iter().map(|tasklet| tasklet.id).collect()
}

/// Returns whether a background piece is launched beside this tasklet alone.
fn runs_beside(policy: Policy, tasklet: Tasklet) -> bool {
    let mut mux = Multiplexer::new(policy);
    offer(&mut mux, 0, [tasklet]);
    !offer(&mut mux, 0, [piece(0)]).is_empty()
}

#[test]
fn artifact_queues_the_larger_of_four_tasklets_and_one_millisecond() {
    let queued = |tasklet: &dyn Fn(u64) -> Tasklet| {
        let mut mux = Multiplexer::new(Policy::artifact());
        offer(&mut mux, 0, (0..100).map(tasklet)).len()
    };
    // Communication counts.
    assert_eq!(queued(&|number| layer(number).receiving()), 10);
    assert_eq!(queued(&|number| layer(number).estimated(us(2000))), 4);
    // Six tasklets of 100 us exceed 500 us and are merged; of shorter ones, at most eleven are.
    assert_eq!(queued(&layer), 4 * 6);
    assert_eq!(queued(&|number| layer(number).estimated(us(30))), 4 * 11);
}

#[test]
fn artifact_withholds_background_beside_queued_communication_only() {
    assert!(runs_beside(Policy::artifact(), layer(0)));
    for communication in [Communication::Send, Communication::Receive, Communication::AllReduce] {
        assert!(!runs_beside(Policy::artifact(), layer(0).communicating(communication).estimated(us(5000))));
    }
    // Also if the communication is queued behind running compute.
    let mut mux = Multiplexer::new(Policy::artifact());
    offer(&mut mux, 0, [layer(0), layer(1).receiving()]);
    assert_eq!(offer(&mut mux, 0, [piece(0)]), []);
    finish(&mut mux, 100, layer(0));
    assert_eq!(finish(&mut mux, 200, layer(1)), ids([piece(0)]));
}

#[test]
fn deeppool_queues_two_tasklets_in_launch_order() {
    let mut mux = Multiplexer::new(Policy::deeppool());
    let of = |number| match number {
        0 => layer(0).communicating(Communication::AllReduce),
        _ => layer(number).estimated(us(300)),
    };
    assert_eq!(offer(&mut mux, 0, (0..5).map(of)), ids([of(0), of(1)]));
    assert_eq!(finish(&mut mux, 50, of(1)), [], "the all-reduce before it has not finished");
    assert_eq!(finish(&mut mux, 90, of(0)), ids([of(2), of(3)]));
}

#[test]
fn consecutive_layers_count_as_one_until_the_last_has_finished() {
    let mut mux = Multiplexer::new(Policy::deeppool());
    // Three tasklets of 100 us exceed 250 us.
    assert_eq!(offer(&mut mux, 0, (0..12).map(layer)), ids((0..6).map(layer)));
    assert_eq!(finish(&mut mux, 100, layer(0)), []);
    assert_eq!(finish(&mut mux, 200, layer(1)), []);
    assert_eq!(finish(&mut mux, 300, layer(2)), ids((6..9).map(layer)));
}

#[test]
fn deeppool_considers_only_the_current_tasklet() {
    let policy = Policy::deeppool();
    assert!(runs_beside(policy, layer(0)));
    assert!(runs_beside(policy, layer(0).communicating(Communication::Send)));
    assert!(runs_beside(policy, layer(0).receiving()));
    assert!(!runs_beside(policy, layer(0).communicating(Communication::AllReduce)));
    let mut mux = Multiplexer::new(policy);
    offer(&mut mux, 0, [layer(0), layer(1).communicating(Communication::AllReduce)]);
    assert_eq!(offer(&mut mux, 0, [piece(0)]), ids([piece(0)]), "the all-reduce does not run yet");
    finish(&mut mux, 100, piece(0));
    finish(&mut mux, 100, layer(0));
    assert_eq!(offer(&mut mux, 100, [piece(1)]), []);
}

#[test]
fn deeppool_withholds_background_beside_slowed_tasklets_except_long_receives() {
    let receive = |number, us_alone| layer(number).receiving().estimated(us(us_alone));
    let cases: [(&dyn Fn(u64) -> Tasklet, bool); 3] =
        [(&layer, true), (&|number| receive(number, 500), true), (&|number| receive(number, 501), false)];
    for (tasklet, withholds) in cases {
        let mut mux = Multiplexer::new(Policy::deeppool());
        let mut now = 0;
        // A slow-down of 2, once.
        let mut round = |number: u64, slowdown: u32| {
            let tasklet = tasklet(number);
            offer(&mut mux, now, [tasklet]);
            let runs = !offer(&mut mux, now, [piece(number)]).is_empty();
            now += (tasklet.estimate.unwrap() * slowdown).as_micros() as u64;
            finish(&mut mux, now, tasklet);
            finish(&mut mux, now, piece(number));
            runs
        };
        assert!(round(0, 2), "no slow-down is learned yet");
        // 2, 1.9, 1.81, ...: 1 + 0.9^n is at most 1.1 from n = 22 on.
        let runs: Vec<bool> = (1..30).map(|number| round(10 * number, 1)).collect();
        let held = runs.iter().take_while(|runs| !**runs).count();
        assert_eq!(held, if withholds { 22 } else { 0 });
        assert!(runs[held..].iter().all(|runs| *runs));
    }
}

#[test]
fn pieces_in_flight_without_a_foreground_follow_the_preset() {
    for (policy, pieces) in [(Policy::deeppool(), 4), (Policy::artifact(), 1), (Policy::ungated(), 2)] {
        let mut mux = Multiplexer::new(policy);
        assert_eq!(offer(&mut mux, 0, (0..8).map(piece)).len(), pieces);
    }
}

#[test]
fn ungated_never_withholds_background() {
    for communication in [Communication::Send, Communication::Receive, Communication::AllReduce] {
        assert!(runs_beside(Policy::ungated(), layer(0).communicating(communication)));
    }
    assert!(runs_beside(Policy::ungated(), layer(0)));
}
