//! Waiting time of the foreground and share of the background on a device that runs one tasklet at
//! a time.

mod device;

use std::num::NonZeroU32;
use std::time::Duration;

use device::{Run, SerialDevice};
use gpu_mux::{Driver, Feedback, IdlePeriodFitting, JobId, Policy, Tasklet};
use proptest::prelude::*;

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// One iteration of the foreground: it is away, and then computes.
#[derive(Debug, Clone)]
struct Round {
    away: Duration,
    computes: Duration,
}

/// Actual and estimated durations of the background pieces, repeated.
type Pieces = Vec<(Duration, Option<Duration>)>;

struct Outcome {
    /// The time at which each foreground tasklet was ready.
    ready: Vec<Duration>,
    runs: Vec<Run>,
    end: Duration,
}

impl Outcome {
    fn foreground(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.id.job.is_foreground())
    }

    fn background(&self, job: JobId) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.id.job == job)
    }

    /// Returns the time for which each foreground tasklet waited for background.
    fn waits(&self) -> Vec<Duration> {
        self.foreground().zip(&self.ready).map(|(run, &ready)| run.start.saturating_sub(ready)).collect()
    }

    /// Returns the fraction of the foreground's idle time that the background used.
    fn share_of_idle(&self) -> f64 {
        let busy = |run: &Run| run.end.min(self.end).saturating_sub(run.start);
        let foreground: Duration = self.foreground().map(busy).sum();
        let background: Duration = self.runs.iter().filter(|run| !run.id.job.is_foreground()).map(busy).sum();
        background.as_secs_f64() / self.end.saturating_sub(foreground).as_secs_f64()
    }
}

/// The foreground's estimates, relative to the actual durations.
const ESTIMATES: [f64; 4] = [1.0, 0.7, 1.3, 2.0];

/// Simulates `laps` repetitions of the rounds. The foreground is away from the end of the previous
/// tasklet.
fn simulate(policy: Policy, rounds: &[Round], laps: usize, jobs: &[(Pieces, u32)]) -> Outcome {
    simulate_with_estimates(policy, rounds, laps, jobs, 1.0)
}

fn simulate_with_estimates(
    policy: Policy,
    rounds: &[Round],
    laps: usize,
    jobs: &[(Pieces, u32)],
    estimate: f64,
) -> Outcome {
    let mut driver = Driver::new(policy, SerialDevice::default());
    let mut offered = vec![0_u64; jobs.len()];
    let mut ready = Vec::new();
    let mut back = rounds[0].away;
    let mut computing = false;
    let total = (rounds.len() * laps) as u64;
    for (job, (_, weight)) in jobs.iter().enumerate() {
        driver.set_weight(JobId::background(job as u32), NonZeroU32::new(*weight).unwrap()).unwrap();
    }
    loop {
        for (job, (pieces, _)) in jobs.iter().enumerate() {
            let id = JobId::background(job as u32);
            while !pieces.is_empty() && offered[job] < driver.device().runs.len() as u64 + 4 {
                let (takes, said) = pieces[offered[job] as usize % pieces.len()];
                driver.offer(Tasklet::new(id, offered[job]).estimated(said), takes).unwrap();
                offered[job] += 1;
            }
        }
        if !computing && driver.device_now() >= back {
            let number = ready.len() as u64;
            let round = &rounds[number as usize % rounds.len()];
            let site = number as u32 % rounds.len() as u32;
            let tasklet = Tasklet::new(JobId::FOREGROUND, number)
                .estimated(round.computes.mul_f64(estimate))
                .at_site(site);
            driver.offer(tasklet, round.computes).unwrap();
            ready.push(back);
            computing = true;
        }
        while let Some(finished) = driver.poll().unwrap() {
            if finished.tasklet.job.is_foreground() {
                if ready.len() as u64 == total {
                    let device = driver.device();
                    let end = device.runs.iter().rfind(|run| run.id == finished.tasklet).map(|run| run.end);
                    return Outcome { ready, runs: device.runs.clone(), end: end.unwrap() };
                }
                computing = false;
                back = driver.device_now() + rounds[ready.len() % rounds.len()].away;
            }
        }
        driver.wait((!computing).then_some(back)).unwrap();
    }
}

trait Now {
    fn device_now(&self) -> Duration;
}

impl Now for Driver<SerialDevice> {
    fn device_now(&self) -> Duration {
        gpu_mux::Device::now(self.device())
    }
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let round = (1..3000_u64, 1..1000_u64)
        .prop_map(|(away, computes)| Round { away: us(away), computes: us(computes) });
    prop::collection::vec(round, 1..6)
}

/// Pieces with correct, wrong and missing estimates.
fn pieces(longest: u64) -> impl Strategy<Value = Pieces> {
    let piece = (1..=longest, prop::option::of(1..=longest), any::<bool>())
        .prop_map(|(takes, other, honest)| (us(takes), if honest { Some(us(takes)) } else { other.map(us) }));
    prop::collection::vec(piece, 1..8)
}

const PIECE: u64 = 250;

fn policies() -> impl Strategy<Value = Policy> {
    let idle_periods =
        (0..=5_u32, 0..600_u64, 0..=4_u32).prop_map(|(share, credit, weight)| IdlePeriodFitting {
            delay_share: f64::from(share) / 100.0,
            credit: us(credit),
            weight: f64::from(weight) / 4.0,
        });
    (1..4_usize, any::<bool>(), prop::option::of(idle_periods)).prop_map(
        |(in_flight, beside, idle_periods)| Policy {
            background_piece: Some(us(PIECE)),
            background_in_flight: in_flight,
            background_in_flight_alone: in_flight,
            background_beside_compute: beside,
            idle_periods,
            ..Policy::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn foreground_wait_is_bounded_by_the_limit_in_flight(
        policy in policies(), rounds in rounds(), pieces in pieces(PIECE), long in 1..5000_u64,
    ) {
        // One piece that cannot be cut and has a correct estimate.
        let pieces: Pieces = pieces.into_iter().chain([(us(long), Some(us(long)))]).collect();
        let waits = simulate(policy, &rounds, 10, &[(pieces, 1)]).waits();
        let longest = us(PIECE * policy.background_in_flight as u64 + long);
        prop_assert!(waits.iter().all(|&wait| wait <= longest), "{waits:?}");
    }

    #[test]
    fn delays_stay_within_the_budget(
        policy in policies(), (percent, credit) in (1..=5_u32, 0..600_u64), rounds in rounds(),
        pieces in pieces(4 * PIECE),
        estimate in prop::sample::select(&ESTIMATES[..]),
    ) {
        let delay_share = f64::from(percent) / 100.0;
        let idle_periods = IdlePeriodFitting { delay_share, credit: us(credit), weight: 0.5 };
        let policy = Policy { idle_periods: Some(idle_periods), background_beside_compute: false, ..policy };
        let outcome = simulate_with_estimates(policy, &rounds, 20, &[(pieces, 1)], estimate);
        let in_flight = us(4 * PIECE * policy.background_in_flight as u64);
        // For a window that begins at any time.
        let waits: Vec<_> = outcome.foreground().map(|run| run.start).zip(outcome.waits()).collect();
        for (first, &(begin, _)) in waits.iter().enumerate() {
            let mut waited = Duration::ZERO;
            for &(now, wait) in &waits[first + 1..] {
                waited += wait;
                let accrued = now.saturating_sub(begin).mul_f64(2.0 * idle_periods.delay_share);
                let budget = accrued + idle_periods.credit + 2 * in_flight;
                prop_assert!(waited <= budget + us(1), "{waited:?} from {begin:?} to {now:?}, of {budget:?}");
            }
        }
    }

    /// Without another job, the device is never idle.
    #[test]
    fn without_a_foreground_the_background_has_the_device(policy in policies(), pieces in pieces(PIECE)) {
        let once = [Round { away: us(100_000), computes: us(1) }];
        let outcome = simulate(policy, &once, 1, &[(pieces, 1)]);
        prop_assert!(outcome.share_of_idle() > 0.99, "{}", outcome.share_of_idle());
    }
}

/// A periodic foreground with idle periods of 1 and 3 ms, and pieces of 190 us.
fn regular() -> (Vec<Round>, Pieces) {
    let round = |away| Round { away: us(away), computes: us(1000) };
    (vec![round(1000), round(3000)], vec![(us(190), Some(us(190)))])
}

#[test]
fn gap_fitting_delays_only_where_it_gains_more() {
    let (rounds, pieces) = regular();
    let outcome = simulate(Policy::default(), &rounds, 100, &[(pieces.clone(), 1)]);
    let waited: Duration = outcome.waits().iter().sum();
    // Five pieces fit into the short idle period. In the long one 150 us remain: a sixteenth piece
    // is worth a delay of 40 us.
    assert!(waited < us(50 * 100), "{waited:?} of {:?}", outcome.end);
    assert!(outcome.share_of_idle() > 0.93, "{}", outcome.share_of_idle());

    let without = simulate(Policy { idle_periods: None, ..Policy::default() }, &rounds, 100, &[(pieces, 1)]);
    let waited: Duration = without.waits().iter().sum();
    assert!(waited > without.end.mul_f64(0.05), "{waited:?} of {:?}", without.end);
}

/// Wrong foreground estimates do not affect the charges to the budget.
#[test]
fn budget_holds_with_wrong_foreground_estimates() {
    let away = |us_away| Round { away: us(us_away), computes: us(900) };
    let irregular: Vec<Round> = (0..97).map(|round| away(300 + 61 * (round * round % 97))).collect();
    let policy = Policy::default();
    let pieces = vec![(us(240), Some(us(240)))];
    for estimate in ESTIMATES {
        let outcome = simulate_with_estimates(policy, &irregular, 20, &[(pieces.clone(), 1)], estimate);
        let waited: Duration = outcome.waits().iter().sum();
        let share = waited.as_secs_f64() / outcome.end.as_secs_f64();
        assert!(share < 0.0125, "{share} with estimates of {estimate} times what it takes");
    }
}

/// Background that regularly takes longer than its estimate, as it does beside communication, is
/// expected to.
#[test]
fn systematically_wrong_estimates_are_corrected() {
    let idle = [Round { away: us(1000), computes: us(500) }];
    let pieces = |said| vec![(us(240), Some(us(said)))];
    let [honest, hasty] =
        [240, 170].map(|said| simulate(Policy::default(), &idle, 500, &[(pieces(said), 1)]));
    let waited = |outcome: &Outcome| outcome.waits().iter().sum::<Duration>();
    assert!(honest.share_of_idle() > 0.9, "{}", honest.share_of_idle());
    assert!(waited(&honest) < honest.end.mul_f64(0.002), "{:?} of {:?}", waited(&honest), honest.end);
    assert!(hasty.share_of_idle() > 0.88, "{}", hasty.share_of_idle());
    assert!(waited(&hasty) < hasty.end.mul_f64(0.005), "{:?} of {:?}", waited(&hasty), hasty.end);
}

/// In idle periods that fit one job's pieces and not the other's, both jobs make progress.
#[test]
fn long_pieces_are_not_starved_by_short_ones() {
    let short_gaps = [Round { away: us(150), computes: us(300) }];
    let job = |takes| (vec![(us(takes), Some(us(takes)))], 1);
    for long in [240, 600] {
        let both = simulate(Policy::default(), &short_gaps, 8000, &[job(100), job(long)]);
        let alone = simulate(Policy::default(), &short_gaps, 8000, &[job(long)]);
        let (both, alone) = (both.background(JobId::background(1)).count(), alone.runs.len() - 8000);
        assert!(2 * both >= alone && both > 20, "{both} pieces of {long} us, {alone} alone");
    }
}

/// A job that returns does not delay the other jobs.
#[test]
fn a_job_that_was_away_does_not_catch_up() {
    for paused in [true, false] {
        let mut driver =
            Driver::new(Policy { idle_periods: None, ..Policy::default() }, SerialDevice::default());
        let (stays, leaves) = (JobId::background(0), JobId::background(1));
        let mut numbers = [0; 2];
        let mut offer = |driver: &mut Driver<SerialDevice>, job: JobId, place: usize| {
            driver.offer(Tasklet::new(job, numbers[place]).estimated(us(100)), us(100)).unwrap();
            numbers[place] += 1;
        };
        let mut turns = |driver: &mut Driver<SerialDevice>, both: bool, turns: usize| {
            for _ in 0..turns {
                offer(driver, stays, 0);
                if both {
                    offer(driver, leaves, 1);
                }
                while driver.poll().unwrap().is_some() {}
                driver.wait(None).unwrap();
            }
        };
        turns(&mut driver, true, 10);
        if paused {
            driver.pause(leaves).unwrap();
        }
        turns(&mut driver, paused, 400);
        driver.resume(leaves).unwrap();
        let before = driver.device().runs.len();
        turns(&mut driver, true, 100);
        let since = &driver.device().runs[before..];
        let returned = since.iter().filter(|run| run.id.job == leaves).count();
        assert!((45..=55).contains(&(100 * returned / since.len())), "{returned} of {}", since.len());
    }
}

/// The driver loop wakes up when only the passing of time allows a launch.
#[test]
fn driver_wakes_up_when_feedback_expires() {
    let feedback = Feedback { limit: 1.1, rise: 1.0, fall: 0.1, patience: us(5000) };
    let policy = Policy { idle_periods: None, feedback: Some(feedback), ..Policy::default() };
    let mut driver = Driver::new(policy, SerialDevice::default());
    driver.offer(Tasklet::new(JobId::FOREGROUND, 0).estimated(us(100)), us(300)).unwrap();
    driver.offer(Tasklet::new(JobId::BACKGROUND, 0), us(100)).unwrap();
    for _ in 0..10 {
        while driver.poll().unwrap().is_some() {}
        driver.wait(None).unwrap();
    }
    let background = driver.device().runs.iter().find(|run| run.id.job == JobId::BACKGROUND);
    assert_eq!(background.map(|run| run.start), Some(us(5300)));
}

#[test]
fn background_jobs_share_by_weight_whatever_their_pieces_take() {
    let (rounds, _) = regular();
    let job = |takes, weight| (vec![(us(takes), Some(us(takes)))], weight);
    let outcome = simulate(Policy::default(), &rounds, 200, &[job(60, 1), job(150, 3), job(30, 2)]);
    let time =
        |job| -> f64 { outcome.background(JobId::background(job)).map(|run| run.took().as_secs_f64()).sum() };
    let all = time(0) + time(1) + time(2);
    for (job, weight) in [(0, 1.0), (1, 3.0), (2, 2.0)] {
        let share = time(job) / all;
        assert!((share - weight / 6.0).abs() < 0.02, "job {job}: {share}");
    }
}
