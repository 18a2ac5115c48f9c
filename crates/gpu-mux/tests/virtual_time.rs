//! The virtual-time driver against a simulation that goes tick by tick.

use std::collections::VecDeque;
use std::time::Duration;

use gpu_mux::{BackgroundLoop, Policy, Span, Usage, VirtualDriver};
use proptest::prelude::*;

/// A tick is a microsecond.
const fn ticks(ticks: u64) -> Duration {
    Duration::from_micros(ticks)
}

/// When a foreground tasklet could run, counted from the end of the one before it, and how long it takes. Negative:
/// it has been ready for a while.
type Foreground = (i64, u64);

#[derive(Default, Debug, PartialEq)]
struct Timeline {
    foreground: Vec<(u64, u64)>,
    background: Vec<(u64, u64)>,
    delay: u64,
}

/// One tick after another: what is at the head of the lane runs for a tick.
fn oracle(foreground: &[Foreground], pieces: &[u64], limit: usize) -> Timeline {
    let mut timeline = Timeline::default();
    // (is foreground, ticks left, started)
    let mut lane: VecDeque<(bool, u64, Option<u64>)> = VecDeque::new();
    let mut todo: VecDeque<Foreground> = foreground.iter().copied().collect();
    let (mut previous_end, mut launched, mut now) = (0_u64, 0, 0_u64);
    let mut queued_at = 0;
    loop {
        while let Some(&(is_foreground, 0, started)) = lane.front() {
            lane.pop_front();
            let start = started.unwrap_or(now);
            if is_foreground {
                timeline.foreground.push((start, now));
                previous_end = now;
            } else {
                timeline.background.push((start, now));
            }
        }
        let running = lane.iter().any(|&(is_foreground, ..)| is_foreground);
        let ready = todo.front().map(|&(gap, _)| previous_end.saturating_add_signed(gap));
        if !running && ready.is_none() {
            return timeline;
        }
        if !running && ready.is_some_and(|ready| ready <= now) {
            lane.extend(todo.pop_front().map(|(_, takes)| (true, takes, None)));
            queued_at = now;
        }
        if lane.iter().all(|&(is_foreground, ..)| !is_foreground) {
            while lane.len() < limit && !pieces.is_empty() {
                lane.push_back((false, pieces[launched % pieces.len()], None));
                launched += 1;
            }
        }
        if let Some((is_foreground, left, started)) = lane.front_mut() {
            if *is_foreground && started.is_none() {
                timeline.delay += now - queued_at;
            }
            started.get_or_insert(now);
            *left -= 1;
        }
        now += 1;
    }
}

/// Background whenever the foreground does not compute, as much of it as this.
fn in_flight(limit: usize) -> Policy {
    Policy { background_in_flight: limit, background_in_flight_alone: limit, gaps: None, ..Policy::default() }
}

fn drive(foreground: &[Foreground], pieces: &[u64], limit: usize) -> (Timeline, Usage) {
    let policy = in_flight(limit);
    let background = BackgroundLoop::new(pieces.iter().copied().map(ticks)).ok();
    let mut device = VirtualDriver::new(policy, background).recording();
    let whole = |span: &Span| (span.start.as_micros() as u64, span.end.as_micros() as u64);
    let mut timeline = Timeline::default();
    let mut previous_end = 0_u64;
    for &(gap, takes) in foreground {
        let span = device.foreground(ticks(previous_end.saturating_add_signed(gap)), ticks(takes)).unwrap();
        timeline.foreground.push(whole(&span));
        previous_end = whole(&span).1;
    }
    timeline.background = device.background_spans().iter().map(whole).collect();
    timeline.delay = device.foreground_delay().as_micros() as u64;
    (timeline, device.usage())
}

proptest! {
    #[test]
    fn it_agrees_with_going_tick_by_tick(
        foreground in prop::collection::vec((-5..40_i64, 1..20_u64), 0..20),
        pieces in prop::collection::vec(1..9_u64, 0..5),
        limit in 0..4_usize,
    ) {
        let (timeline, usage) = drive(&foreground, &pieces, limit);
        prop_assert_eq!(&timeline, &oracle(&foreground, &pieces, limit));
        prop_assert_eq!(usage.background_tasklets as usize, timeline.background.len());
        prop_assert_eq!(usage.foreground_busy, ticks(foreground.iter().map(|&(_, takes)| takes).sum()));
        prop_assert_eq!(usage.elapsed, ticks(timeline.foreground.last().map_or(0, |&(_, end)| end)));
        let longest = pieces.iter().max().copied().unwrap_or(0);
        prop_assert!(timeline.delay <= foreground.len() as u64 * limit as u64 * longest);
        if limit > 0 && !pieces.is_empty() {
            prop_assert_eq!(usage.background_busy, usage.foreground_idle(), "no gap is left empty");
        }
    }
}

#[test]
fn a_background_tasklet_in_flight_counts_as_far_as_it_has_run() {
    let mut device = VirtualDriver::new(in_flight(1), BackgroundLoop::new([ticks(40)]).ok());
    device.idle_until(ticks(100)).unwrap();
    let usage = device.usage();
    assert_eq!((usage.background_tasklets, usage.background_busy), (2, ticks(100)));
    assert!((device.background_laps() - 2.5).abs() < 1e-12);
    // Looking back in time is allowed and does nothing.
    device.idle_until(ticks(10)).unwrap();
    assert_eq!(device.usage(), usage);
    assert_eq!(device.foreground(ticks(10), ticks(5)).unwrap(), Span { start: ticks(120), end: ticks(125) });
}

#[test]
fn alone_the_foreground_is_never_delayed() {
    let mut device = VirtualDriver::new(in_flight(1), None);
    assert_eq!(device.foreground(ticks(7), ticks(3)).unwrap(), Span { start: ticks(7), end: ticks(10) });
    assert_eq!(device.foreground(ticks(7), ticks(0)).unwrap(), Span { start: ticks(10), end: ticks(10) });
    assert_eq!(device.foreground_delay(), Duration::ZERO);
    assert!(device.background_laps().abs() < f64::EPSILON);
    assert_eq!(device.usage().background_share_of_idle(), Some(0.0));
}

#[test]
fn usages_add_up() {
    let run = |idle: u64, piece: u64| {
        let mut device = VirtualDriver::new(in_flight(1), BackgroundLoop::new([ticks(piece)]).ok());
        device.foreground(ticks(idle), ticks(100)).unwrap();
        device.usage()
    };
    let mut total = run(700, 700);
    total += run(1200, 600);
    assert_eq!(total.elapsed, ticks(2100));
    assert_eq!((total.foreground_tasklets, total.background_tasklets), (2, 3));
    assert_eq!((total.longest_background, total.over_long), (ticks(700), 3));
    assert_eq!(total.background_share_of_idle(), Some(1.0));
}
