//! Each rule in isolation, and the errors for a driver that breaks its contract.

use std::time::Duration;

use gpu_mux::{
    BesideCommunication, Communication, Error, Feedback, IdlePeriodFitting, JobId, Lane, Multiplexer,
    MuxCommand, MuxEvent, Policy, Tasklet,
};

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Reports an event and returns the commands that follow.
fn tell(mux: &mut Multiplexer, now: u64, event: MuxEvent) -> Vec<MuxCommand> {
    mux.handle(us(now), event).unwrap();
    std::iter::from_fn(|| mux.poll_command()).collect()
}

fn layer(number: u64) -> Tasklet {
    Tasklet::new(JobId::FOREGROUND, number)
}

fn piece(number: u64) -> Tasklet {
    Tasklet::new(JobId::BACKGROUND, number)
}

fn launch(tasklet: Tasklet) -> MuxCommand {
    MuxCommand::Launch(tasklet.id)
}

fn finished(tasklet: Tasklet, took: u64) -> MuxEvent {
    MuxEvent::Finished { tasklet: tasklet.id, took: us(took) }
}

#[test]
fn a_background_limit_of_zero_holds_it_back() {
    let mut mux = Multiplexer::new(Policy { background_in_flight_alone: 0, ..Policy::default() });
    mux.handle(us(0), MuxEvent::Ready(Tasklet::new(JobId::BACKGROUND, 0))).unwrap();
    assert_eq!(mux.poll_command(), None);
}

#[test]
fn communication_leaves_the_compute_lane_to_the_background() {
    let mut mux = Multiplexer::new(Policy::default());
    let transfer = Tasklet::new(JobId::FOREGROUND, 0).on(Lane::Communication);
    let piece = Tasklet::new(JobId::BACKGROUND, 0);
    mux.handle(us(0), MuxEvent::Ready(piece)).unwrap();
    mux.handle(us(0), MuxEvent::Ready(transfer)).unwrap();
    assert_eq!(mux.poll_command(), Some(MuxCommand::Launch(transfer.id)));
    assert_eq!(mux.poll_command(), Some(MuxCommand::Launch(piece.id)));
}

#[test]
fn background_that_exceeds_its_bound_is_counted() {
    let mut mux = Multiplexer::new(Policy { background_piece: Some(us(50)), ..Policy::default() });
    for (number, took) in [(0, us(50)), (1, us(51))] {
        let piece = Tasklet::new(JobId::BACKGROUND, number);
        mux.handle(us(0), MuxEvent::Ready(piece)).unwrap();
        assert_eq!(mux.poll_command(), Some(MuxCommand::Launch(piece.id)));
        mux.handle(us(0), MuxEvent::Finished { tasklet: piece.id, took }).unwrap();
    }
    assert_eq!(mux.over_limit(), 1);
}

#[test]
fn a_refused_event_changes_nothing() {
    let mut mux = Multiplexer::new(Policy::default());
    let layer = Tasklet::new(JobId::FOREGROUND, 7);
    let finished = MuxEvent::Finished { tasklet: layer.id, took: us(1) };
    assert_eq!(mux.handle(us(5), finished), Err(Error::NotInFlight(layer.id)), "unknown");
    mux.handle(us(5), MuxEvent::Ready(layer)).unwrap();
    assert_eq!(mux.handle(us(5), finished), Err(Error::NotInFlight(layer.id)), "not launched");
    let out_of_order = Err(Error::OutOfOrder { tasklet: layer.id, last: 7 });
    assert_eq!(mux.handle(us(5), MuxEvent::Ready(layer)), out_of_order, "twice");
    let went_back = Err(Error::TimeWentBack { now: us(4), last: us(5) });
    assert_eq!(mux.handle(us(4), MuxEvent::Tick), went_back);

    assert_eq!(mux.poll_command(), Some(MuxCommand::Launch(layer.id)));
    assert_eq!(mux.poll_command(), None, "the duplicate was not queued");
    mux.handle(us(6), finished).unwrap();
    assert_eq!(mux.handle(us(6), finished), Err(Error::NotInFlight(layer.id)), "finished before");
}

#[test]
fn errors_say_which_tasklet() {
    let id = Tasklet::new(JobId::BACKGROUND, 3).id;
    assert_eq!(
        Error::NotInFlight(id).to_string(),
        "background tasklet 3 has finished, but it is not in flight"
    );
}

/// A policy in which only the rule under test withholds the background.
fn without_gaps() -> Policy {
    Policy { idle_periods: None, ..Policy::default() }
}

#[test]
fn compute_that_waits_for_communication_leaves_the_device_to_the_background() {
    let mut mux = Multiplexer::new(without_gaps());
    let receive = layer(0).receiving();
    let next = layer(1).after(receive.id);
    assert_eq!(tell(&mut mux, 0, MuxEvent::Ready(receive)), [launch(receive)]);
    assert_eq!(tell(&mut mux, 0, MuxEvent::Ready(next)), [launch(next)], "launched ahead");
    assert_eq!(tell(&mut mux, 1, MuxEvent::Ready(piece(0))), [launch(piece(0))]);
    assert_eq!(tell(&mut mux, 2, finished(receive, 2)), []);
    assert_eq!(tell(&mut mux, 2, MuxEvent::Ready(piece(1))), [], "now it computes");
    assert_eq!(tell(&mut mux, 9, finished(next, 7)), [launch(piece(1))]);
}

#[test]
fn communication_withholds_the_background_as_the_policy_says() {
    let receive = layer(0).receiving().estimated(us(501));
    let all_reduce = layer(0).communicating(Communication::AllReduce).estimated(us(900));
    let beside = |rule, communication| {
        let mut mux = Multiplexer::new(Policy { background_beside_communication: rule, ..without_gaps() });
        tell(&mut mux, 0, MuxEvent::Ready(communication));
        !tell(&mut mux, 0, MuxEvent::Ready(piece(0))).is_empty()
    };
    for communication in [receive, all_reduce] {
        assert!(beside(BesideCommunication::Always, communication));
        assert!(!beside(BesideCommunication::Never, communication));
    }
}

#[test]
fn feedback_holds_the_background_back_until_the_foreground_is_fast_again() {
    let feedback = Feedback { limit: 1.1, rise: 1.0, fall: 0.5, patience: us(1000) };
    let mut mux = Multiplexer::new(Policy { feedback: Some(feedback), ..without_gaps() });
    let layer = |number| layer(number).estimated(us(100));
    tell(&mut mux, 0, MuxEvent::Ready(layer(0)));
    tell(&mut mux, 0, MuxEvent::Ready(piece(1)));
    assert_eq!(
        tell(&mut mux, 120, finished(layer(0), 120)),
        [MuxCommand::WakeAt(us(1120))],
        "1.2 times as long"
    );
    for (number, now) in [(1, 200), (2, 300)] {
        tell(&mut mux, now, MuxEvent::Ready(layer(number)));
        let commands = tell(&mut mux, now + 100, finished(layer(number), 100));
        // The average falls to 1.1, which is not above the limit.
        assert_eq!(commands, if number == 1 { vec![launch(piece(1))] } else { vec![] });
    }
    assert!(mux.foreground_slowdown().is_some_and(|slowdown| (slowdown - 1.05).abs() < 1e-9));
}

#[test]
fn feedback_expires_after_its_patience() {
    let feedback = Feedback { limit: 1.1, rise: 1.0, fall: 0.1, patience: us(1000) };
    let mut mux = Multiplexer::new(Policy { feedback: Some(feedback), ..without_gaps() });
    tell(&mut mux, 0, MuxEvent::Ready(layer(0).estimated(us(100))));
    tell(&mut mux, 300, finished(layer(0), 300));
    assert_eq!(tell(&mut mux, 400, MuxEvent::Ready(piece(0))), [MuxCommand::WakeAt(us(1300))]);
    assert_eq!(tell(&mut mux, 1300, MuxEvent::Tick), [launch(piece(0))]);
}

/// A multiplexer with this rule, whose foreground has left an idle period of this length after its
/// only site and is in the next one.
fn after_an_idle_period_of(length: u64, idle_periods: IdlePeriodFitting) -> Multiplexer {
    let mut mux = Multiplexer::new(Policy { idle_periods: Some(idle_periods), ..Policy::default() });
    for (number, now) in [(0, 0), (1, 100 + length)] {
        tell(&mut mux, now, MuxEvent::Ready(layer(number).at_site(0)));
        tell(&mut mux, now + 100, finished(layer(number), 100));
    }
    mux
}

#[test]
fn a_piece_that_fits_into_the_gap_is_launched_and_a_longer_one_waits() {
    let idle_periods = IdlePeriodFitting { delay_share: 0.01, credit: us(100), weight: 0.5 };
    let mut mux = after_an_idle_period_of(1000, idle_periods);
    // The second idle period began at 1200 and is expected to end at 2200.
    let fits = piece(0).estimated(us(800));
    assert_eq!(tell(&mut mux, 1200, MuxEvent::Ready(fits)), [launch(fits)]);
    tell(&mut mux, 2000, finished(fits, 800));
    let longer = piece(1).estimated(us(600));
    // It would end 400 us late, which is not worth it. When the foreground is 600 us late, its
    // return is no longer predictable.
    assert_eq!(tell(&mut mux, 2000, MuxEvent::Ready(longer)), [MuxCommand::WakeAt(us(2800))]);
    assert_eq!(tell(&mut mux, 2799, MuxEvent::Tick), [MuxCommand::WakeAt(us(2800))], "an early tick");
    assert_eq!(tell(&mut mux, 2800, MuxEvent::Tick), [launch(longer)]);
}

#[test]
fn measured_delays_are_charged_to_the_budget() {
    let idle_periods = IdlePeriodFitting { delay_share: 0.01, credit: us(100), weight: 0.5 };
    let mut mux = after_an_idle_period_of(1000, idle_periods);
    let wrong = piece(0).estimated(us(900));
    assert_eq!(tell(&mut mux, 1200, MuxEvent::Ready(wrong)), [launch(wrong)]);
    // The foreground returns at 2200 and waits for another 500 us, of which 400 us are not covered.
    tell(&mut mux, 2200, MuxEvent::Ready(layer(2).at_site(0)));
    tell(&mut mux, 2700, finished(wrong, 1500));
    tell(&mut mux, 2800, finished(layer(2), 100));
    let fits = piece(1).estimated(us(900));
    let commands = tell(&mut mux, 2800, MuxEvent::Ready(fits));
    let [MuxCommand::WakeAt(again)] = commands[..] else { panic!("{commands:?}") };
    assert!(again > us(40_000) && again < us(43_000), "{again:?}");
    assert_eq!(tell(&mut mux, 43_000, MuxEvent::Tick), [launch(fits)]);
}

#[test]
fn a_foreground_that_runs_beside_the_background_is_not_delayed_by_it() {
    let idle_periods = IdlePeriodFitting { delay_share: 0.01, credit: us(100), weight: 0.5 };
    let mut mux = after_an_idle_period_of(1000, idle_periods);
    let wrong = piece(0).estimated(us(900));
    tell(&mut mux, 1200, MuxEvent::Ready(wrong));
    let next = layer(2).at_site(0).estimated(us(100));
    tell(&mut mux, 2200, MuxEvent::Ready(next));
    tell(&mut mux, 2310, finished(next, 110));
    tell(&mut mux, 2700, finished(wrong, 1500));
    let fits = piece(1).estimated(us(500));
    assert_eq!(tell(&mut mux, 2700, MuxEvent::Ready(fits)), [launch(fits)], "10 us are covered");
}

#[test]
fn communication_ends_one_gap_and_begins_another() {
    let mut mux = Multiplexer::new(Policy::default());
    let mut number = 0;
    let mut next = |site| {
        number += 1;
        Tasklet::new(JobId::FOREGROUND, number).at_site(site)
    };
    for round in [0, 1000] {
        let (layer, sends) = (next(0), next(1).on(Lane::Communication));
        tell(&mut mux, round, MuxEvent::Ready(layer));
        tell(&mut mux, round + 100, finished(layer, 100));
        tell(&mut mux, round + 300, MuxEvent::Ready(sends));
        tell(&mut mux, round + 900, finished(sends, 600));
    }
    let (layer, sends) = (next(0), next(1).on(Lane::Communication));
    tell(&mut mux, 2000, MuxEvent::Ready(layer));
    tell(&mut mux, 2100, finished(layer, 100));
    // 200 us until the communication, and 700 us from then on.
    let long = piece(0).estimated(us(500));
    assert_eq!(tell(&mut mux, 2100, MuxEvent::Ready(long)), [MuxCommand::WakeAt(us(2800))]);
    assert_eq!(tell(&mut mux, 2300, MuxEvent::Ready(sends)), [launch(sends), launch(long)]);
}

#[test]
fn long_gaps_admit_background_despite_debt() {
    let idle_periods = IdlePeriodFitting { delay_share: 0.01, credit: us(100), weight: 0.5 };
    let mut mux = after_an_idle_period_of(1000, idle_periods);
    let stalls = piece(0).estimated(us(900));
    tell(&mut mux, 1200, MuxEvent::Ready(stalls));
    tell(&mut mux, 2200, MuxEvent::Ready(layer(2).at_site(0)));
    // A delay of ten seconds, which would accrue in a thousand seconds.
    tell(&mut mux, 10_002_200, finished(stalls, 10_001_000));
    tell(&mut mux, 10_002_300, finished(layer(2), 100));
    let next = piece(1).estimated(us(250));
    let away = 10_002_300 + 2_025_000;
    assert_eq!(tell(&mut mux, 10_002_300, MuxEvent::Ready(next)), [MuxCommand::WakeAt(us(away))]);
    assert_eq!(tell(&mut mux, away, MuxEvent::Tick), [launch(next)], "20 and 0.25 ms are 1% of that");
}

#[test]
fn values_out_of_range_are_clamped() {
    let wild = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300];
    for figure in wild {
        let idle_periods = IdlePeriodFitting { delay_share: figure, credit: Duration::MAX, weight: figure };
        let feedback = Feedback { limit: figure, rise: figure, fall: figure, patience: Duration::MAX };
        let mut mux = Multiplexer::new(Policy {
            idle_periods: Some(idle_periods),
            feedback: Some(feedback),
            ..Policy::default()
        });
        for (number, now) in [(0, 0), (1, 10), (2, u64::MAX - 10)] {
            tell(&mut mux, now, MuxEvent::Ready(layer(number).at_site(0).estimated(us(1))));
            tell(&mut mux, now, MuxEvent::Ready(piece(number).estimated(Duration::MAX)));
            tell(&mut mux, now + 1, finished(layer(number), 1));
        }
    }
}

#[test]
fn id_of_a_forgotten_job_can_be_reused() {
    let mut mux = Multiplexer::new(Policy { background_in_flight_alone: 1, ..without_gaps() });
    assert_eq!(tell(&mut mux, 0, MuxEvent::Ready(piece(7))), [launch(piece(7))]);
    tell(&mut mux, 1, MuxEvent::Forget(JobId::BACKGROUND));
    assert_eq!(mux.handle(us(1), finished(piece(7), 1)), Err(Error::NotInFlight(piece(7).id)));
    assert_eq!(tell(&mut mux, 2, MuxEvent::Ready(piece(0))), [launch(piece(0))]);
}

#[test]
fn pause_and_drain_are_independent() {
    let mut mux = Multiplexer::new(without_gaps());
    for event in [MuxEvent::Ready(piece(0)), MuxEvent::Drain(JobId::BACKGROUND)] {
        mux.handle(us(0), event).unwrap();
    }
    assert_eq!(tell(&mut mux, 0, MuxEvent::Pause(JobId::BACKGROUND)), []);
    assert_eq!(mux.handle(us(0), MuxEvent::Ready(piece(1))), Err(Error::Closed(piece(1))));
    assert_eq!(tell(&mut mux, 1, MuxEvent::Resume(JobId::BACKGROUND)), [launch(piece(0))]);
    assert_eq!(mux.handle(us(1), MuxEvent::Ready(piece(1))), Err(Error::Closed(piece(1))));
}

#[test]
fn only_another_lane_of_the_same_job_is_waited_for() {
    for after in [layer(0).id, piece(0).id, layer(1).id] {
        let mut mux = Multiplexer::new(without_gaps());
        let receive = Tasklet::new(JobId::FOREGROUND, 0).receiving();
        tell(&mut mux, 0, MuxEvent::Ready(receive));
        tell(&mut mux, 0, MuxEvent::Ready(layer(1).after(after)));
        let commands = tell(&mut mux, 0, MuxEvent::Ready(piece(0)));
        // A dependency on itself or on a tasklet of another job does not prevent computing.
        assert_eq!(commands.is_empty(), after != receive.id, "{after}");
    }
}

#[test]
fn only_one_over_long_tasklet_is_in_flight() {
    let policy = Policy { background_piece: Some(us(100)), background_in_flight_alone: 3, ..without_gaps() };
    let mut mux = Multiplexer::new(policy);
    let (long, short) = (|number| piece(number).estimated(us(101)), piece(2).estimated(us(100)));
    assert_eq!(tell(&mut mux, 0, MuxEvent::Ready(long(0))), [launch(long(0))]);
    assert_eq!(tell(&mut mux, 0, MuxEvent::Ready(long(1))), []);
    assert_eq!(tell(&mut mux, 0, MuxEvent::Ready(short)), [], "a job's order is kept");
    assert_eq!(tell(&mut mux, 101, finished(long(0), 101)), [launch(long(1)), launch(short)]);
}

#[test]
fn a_job_that_is_drained_ends_and_one_that_failed_is_forgotten() {
    let mut mux = Multiplexer::new(Policy { background_in_flight_alone: 1, ..without_gaps() });
    let (first, second) = (JobId::background(0), JobId::background(1));
    tell(&mut mux, 0, MuxEvent::Ready(piece(0)));
    tell(&mut mux, 0, MuxEvent::Ready(piece(1)));
    assert_eq!(tell(&mut mux, 0, MuxEvent::Ready(Tasklet::new(second, 0))), []);
    assert_eq!(tell(&mut mux, 0, MuxEvent::Drain(first)), []);
    assert_eq!(mux.handle(us(0), MuxEvent::Ready(piece(2))), Err(Error::Closed(piece(2))));
    // The first job's piece never ends.
    assert_eq!(tell(&mut mux, 9, MuxEvent::Failed(first)), [MuxCommand::Launch(Tasklet::new(second, 0).id)]);
    assert!(mux.is_empty(first));
    assert_eq!(tell(&mut mux, 10, finished(piece(0), 10)), [], "a late end is ignored");
    assert_eq!(mux.handle(us(10), MuxEvent::Ready(piece(3))), Err(Error::Closed(piece(3))));
}

#[test]
fn the_foreground_cannot_be_held_back() {
    let mut mux = Multiplexer::new(Policy::default());
    for event in [MuxEvent::Pause, MuxEvent::Drain, MuxEvent::Failed] {
        assert!(matches!(mux.handle(us(0), event(JobId::FOREGROUND)), Err(Error::NotBackground(_))));
    }
}

#[test]
fn the_ladder_goes_from_naive_to_the_default_one_technique_at_a_time() {
    let ladder = Policy::ladder();
    assert_eq!(ladder[0], ("naive", Policy::naive()));
    let last = ladder.iter().rposition(|(name, _)| name.starts_with('+')).unwrap();
    assert_eq!(ladder[last].1, Policy::default());
    assert!(ladder[..=last].windows(2).all(|steps| steps[0].1 != steps[1].1));
    assert!(ladder[last + 1..].iter().all(|(_, policy)| *policy != Policy::default()));
    let mut names: Vec<_> = ladder.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ladder.len());
}
