//! Estimates compared with enumeration of all candidates.

use std::time::Duration;

use proptest::prelude::*;
use time_to_accuracy::{
    AccuracyError, Batches, Candidates, Configuration, EpochCurve, EpochTime, Estimate, Estimates, GpuHours,
    MeasuredEpochs, SkipReason, StepTime, estimate, scaling_efficiency,
};

use crate::random::{curve, curves};

/// Returns the iteration times of an invented job: computation shrinks with the GPUs, communication
/// grows with the workers, and lower limits are slower and use less GPU time. There are few
/// distinct times, so that ties occur.
fn steps(configuration: &Configuration) -> Option<StepTime> {
    let Configuration { workers, gpus_per_worker, batch, limit } = *configuration;
    if (workers + gpus_per_worker + batch) % 7 == 0 {
        return None;
    }
    let slower = limit.map_or(1.0, |limit| 1.0 + 1.0 / limit);
    let ms = (batch as f64 / (workers * gpus_per_worker) as f64 * slower).ceil() + f64::from(workers.ilog2());
    let iteration = Duration::from_millis(ms as u64 + 1);
    let active_gpu_time = limit.map(|limit| iteration.mul_f64(limit.min(workers as f64)));
    Some(StepTime { iteration, active_gpu_time, amplification: limit })
}

/// Computes seconds and GPU hours of a candidate directly from the documentation.
fn reference(curve: &EpochCurve, configuration: &Configuration, kind: GpuHours) -> Option<(f64, f64)> {
    let step = steps(configuration)?;
    let points = curve.points();
    let after = points.iter().position(|point| point.batch >= configuration.batch)?;
    let epochs = if points[after].batch == configuration.batch {
        points[after].epochs
    } else {
        let (left, right) = (&points[after.checked_sub(1)?], &points[after]);
        let doublings = |to: usize| (to as f64 / left.batch as f64).log2();
        left.epochs + (right.epochs - left.epochs) * doublings(configuration.batch) / doublings(right.batch)
    };
    let iterations = curve.document().samples_per_epoch as f64 / configuration.batch as f64 * epochs;
    let gpus = (configuration.workers * configuration.gpus_per_worker) as f64;
    let held = step.iteration.as_secs_f64() * gpus;
    let gpu_seconds = match kind {
        GpuHours::Held => held,
        GpuHours::Active => step.active_gpu_time.map_or(held, |active| active.as_secs_f64()),
    };
    Some((step.iteration.as_secs_f64() * iterations, gpu_seconds * iterations / 3600.0))
}

fn figures(estimate: &Estimate, kind: GpuHours) -> (f64, f64) {
    let active = estimate.active_gpu_hours.filter(|_| kind == GpuHours::Active);
    (estimate.time.as_secs_f64(), active.unwrap_or(estimate.gpu_hours))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.max(b) + 2e-9
}

/// Workers, GPUs per worker, samples per worker, limits.
type Lists = (Vec<usize>, Vec<usize>, Vec<usize>, Vec<Option<f64>>);

/// Generates lists of candidates, with repetitions.
fn candidates() -> impl Strategy<Value = Lists> {
    let limits = prop::sample::select(vec![None, Some(1.0), Some(1.5), Some(4.0)]);
    (
        prop::collection::vec(1..20_usize, 1..5),
        prop::collection::vec(1..5_usize, 1..3),
        prop::collection::vec(1..300_usize, 1..5),
        prop::collection::vec(limits, 1..4),
    )
}

fn all((workers, widths, batches, limits): &Lists) -> Vec<Configuration> {
    let mut all = Vec::new();
    for &workers in workers {
        for &gpus_per_worker in widths {
            for batch in batches.iter().map(|batch| batch * workers) {
                all.extend(limits.iter().map(|&limit| Configuration {
                    workers,
                    gpus_per_worker,
                    batch,
                    limit,
                }));
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn estimates_equal_enumeration(
        curve in curves(), lists in candidates(), hours in 0.0..1.0_f64, active: bool
    ) {
        let kind = if active { GpuHours::Active } else { GpuHours::Held };
        let (workers, widths, batches, limits) = lists.clone();
        let candidates = Candidates::new(workers, Batches::PerWorker(batches))
            .with_gpus_per_worker(widths)
            .with_limits(limits);
        let all = all(&lists);
        let slow: Vec<(f64, f64)> =
            all.iter().filter_map(|of| reference(&curve, of, kind)).collect();
        let estimates = match estimate(&curve, &steps, &candidates) {
            Ok(estimates) => estimates.with_gpu_hours(kind),
            Err(AccuracyError::NoEstimate { .. }) => {
                prop_assert!(slow.is_empty());
                return Ok(());
            }
            Err(error) => panic!("{error}"),
        };
        for one in estimates.all() {
            let (seconds, gpu_hours) = reference(&curve, &one.configuration, kind).expect("possible");
            let found = figures(one, kind);
            prop_assert!(near(found.0, seconds) && near(found.1, gpu_hours), "{one}: {seconds} s, \
                {gpu_hours} GPU h");
        }

        let soonest = slow.iter().map(|of| of.0).fold(f64::INFINITY, f64::min);
        prop_assert!(near(estimates.soonest().time.as_secs_f64(), soonest));

        let slowest = slow.iter().map(|of| of.0).fold(0.0, f64::max);
        let deadline = soonest * 0.9 + (slowest * 1.1 - soonest * 0.9) * hours;
        let in_time = slow.iter().filter(|of| of.0 <= deadline).map(|of| of.1).fold(f64::INFINITY, f64::min);
        // Near the time of a candidate both answers are valid.
        let is_clear = slow.iter().all(|of| !near(of.0, deadline));
        match estimates.cheapest_by(Duration::from_secs_f64(deadline)) {
            _ if !is_clear => {}
            Ok(cheap) => prop_assert!(near(figures(cheap, kind).1, in_time)),
            Err(AccuracyError::Deadline { .. }) => prop_assert!(in_time.is_infinite()),
            Err(error) => panic!("{error}"),
        }

        // No candidate dominates a point of the frontier, and each candidate is dominated by or
        // equal to one.
        let frontier = estimates.frontier();
        for one in &frontier {
            let (time, cost) = figures(one, kind);
            let beats = |of: &&(f64, f64)| {
                of.0 < time && of.1 < cost && !near(of.0, time) && !near(of.1, cost)
            };
            prop_assert_eq!(slow.iter().find(beats), None);
        }
        for (time, cost) in &slow {
            let covers = |one: &&Estimate| {
                let found = figures(one, kind);
                (found.0 <= *time || near(found.0, *time)) && (found.1 <= *cost || near(found.1, *cost))
            };
            prop_assert!(frontier.iter().any(covers));
        }
        prop_assert!(frontier.windows(2).all(|two| two[0].time < two[1].time));
        let falls = |two: &[&Estimate]| figures(two[0], kind).1 > figures(two[1], kind).1;
        prop_assert!(frontier.windows(2).all(falls));
        prop_assert_eq!(frontier[0], estimates.soonest());
    }

    #[test]
    fn estimates_do_not_depend_on_list_order(curve in curves(), lists in candidates(), by in 1..5_usize) {
        let (mut workers, mut widths, mut batches, mut limits) = lists;
        let make = |workers: &[usize], widths: &[usize], batches: &[usize], limits: &[Option<f64>]| {
            Candidates::new(workers.iter().copied(), Batches::PerWorker(batches.to_vec()))
                .with_gpus_per_worker(widths.iter().copied())
                .with_limits(limits.iter().copied())
        };
        let one = estimate(&curve, &steps, &make(&workers, &widths, &batches, &limits));
        let turn = |length: usize| by % length;
        let (w, g, b, l) = (turn(workers.len()), turn(widths.len()), turn(batches.len()), turn(limits.len()));
        workers.rotate_left(w);
        widths.rotate_left(g);
        batches.rotate_left(b);
        limits.rotate_left(l);
        let other = estimate(&curve, &steps, &make(&workers, &widths, &batches, &limits));
        prop_assert_eq!(one.ok(), other.ok());
    }

    #[test]
    fn more_candidates_never_increase_the_time(
        curve in curves(), lists in candidates(), more in 1..20_usize
    ) {
        let (workers, _, batches, _) = lists;
        let soonest = |workers: Vec<usize>| {
            let candidates = Candidates::new(workers, Batches::PerWorker(batches.clone()));
            estimate(&curve, &steps, &candidates).ok().map(|estimates| estimates.soonest().time)
        };
        let (few, many) = (soonest(workers.clone()), soonest([workers, vec![more]].concat()));
        prop_assert!(few.is_none_or(|few| many.is_some_and(|many| many <= few)));
    }
}

fn tied() -> Estimates {
    let curve = curve(64, &[(16, 1.0, 0.0, 0.0), (64, 4.0, 0.0, 0.0)]);
    // Time and GPU hours are equal for both batches, all numbers of workers and all limits.
    let steps = |c: &Configuration| Some(StepTime::new(Duration::from_secs(16) / c.gpus() as u32));
    let candidates = Candidates::new([4, 2, 2], Batches::Global(vec![64, 16]))
        .with_gpus_per_worker([2, 1])
        .with_limits([None, Some(2.0), Some(1.5)])
        .with_max_gpus(4);
    estimate(&curve, &steps, &candidates).expect("estimates")
}

#[test]
fn ties_are_broken_by_gpus_batch_workers_and_limit() {
    let estimates = tied();
    let of = |workers, gpus_per_worker, limit| Configuration { workers, gpus_per_worker, batch: 16, limit };
    assert_eq!(estimates.all().len(), 3 * 2 * 3);
    assert_eq!(estimates.soonest().configuration, of(4, 1, None));
    let order: Vec<Configuration> = estimates.all().iter().take(4).map(|one| one.configuration).collect();
    assert_eq!(order, [of(4, 1, None), of(4, 1, Some(1.5)), of(4, 1, Some(2.0)), of(2, 2, None)]);
    let cheap = estimates.cheapest_by(Duration::from_secs(3600)).expect("in time");
    assert_eq!(cheap, estimates.soonest(), "of the same GPU hours the soonest");
    assert_eq!(estimates.frontier(), [estimates.soonest()]);
}

#[test]
fn burst_limits_are_chosen_only_for_active_gpu_time() {
    let curve = curve(64, &[(16, 1.0, 0.0, 0.0)]);
    let ms = Duration::from_millis;
    let steps = |c: &Configuration| {
        let (iteration, active) = if c.limit.is_some() { (ms(110), ms(220)) } else { (ms(100), ms(390)) };
        Some(StepTime { active_gpu_time: Some(active), ..StepTime::new(iteration) })
    };
    let candidates = Candidates::new([4], Batches::Global(vec![16])).with_limits([None, Some(1.5)]);
    let estimates = estimate(&curve, &steps, &candidates).expect("estimates");
    let deadline = Duration::from_secs(1);
    let limit = |estimates: &Estimates| estimates.cheapest_by(deadline).expect("in time").configuration.limit;
    assert_eq!((estimates.frontier().len(), limit(&estimates)), (1, None));
    let estimates = estimates.with_gpu_hours(GpuHours::Active);
    assert_eq!((estimates.frontier().len(), limit(&estimates)), (2, Some(1.5)));
}

#[test]
fn skipped_candidates_are_listed_and_global_batches_outside_are_errors() {
    let curve = curve(1000, &[(32, 1.0, 0.0, 0.0), (256, 4.0, 0.0, 0.0)]);
    let steps = |c: &Configuration| (c.workers != 2).then(|| StepTime::new(Duration::from_millis(10)));
    let per_worker = Candidates::new([1, 2, 4, 16], Batches::PerWorker(vec![32]));
    let estimates = estimate(&curve, &steps, &per_worker).expect("two");
    let left_out: Vec<(usize, SkipReason)> =
        estimates.skipped().iter().map(|of| (of.configuration.workers, of.reason)).collect();
    let outside = SkipReason::OutsideCurve { smallest: 32, largest: 256 };
    assert_eq!(left_out, [(2, SkipReason::UnknownStepTime), (16, outside)]);

    let message =
        |candidates: &Candidates| estimate(&curve, &steps, candidates).expect_err("an error").to_string();
    let global = |workers: usize, batch: usize| Candidates::new([workers], Batches::Global(vec![batch]));
    assert!(message(&global(1, 512)).contains("covers global batches of 32 to 256 samples, not 512"));
    assert_eq!(
        message(&global(2, 64)),
        "none of the 1 candidates has an estimate; the first one, 2 x 1 GPUs at batch 64: how long an \
         iteration takes is not known"
    );
    assert!(message(&global(65, 64)).contains("some workers would have no sample"));
    assert_eq!(message(&global(0, 64)), "one of the workers is 0, expected at least 1");
    assert!(message(&Candidates::new([], Batches::Global(vec![64]))).contains("workers is empty"));
    assert!(message(&global(4, 64).with_max_gpus(3)).contains("that fit on the GPUs is empty"));
    assert!(message(&global(4, 64).with_limits([Some(f64::NAN)])).contains("an amplification limit is NaN"));
    assert!(message(&global(4, 64).with_gpus_per_worker([usize::MAX])).contains("machine word"));

    let now = |_: &Configuration| Some(StepTime::new(Duration::ZERO));
    assert!(
        estimate(&curve, &now, &global(1, 64))
            .expect_err("0 s")
            .to_string()
            .contains("is 0 s, expected more")
    );
    let late = |_: &Configuration| Some(StepTime::new(Duration::MAX));
    let estimates = estimate(&curve, &late, &global(1, 64)).expect("late, but no panic");
    assert_eq!(estimates.soonest().time, Duration::MAX);
    let message = estimates.cheapest_by(Duration::from_secs(3600)).expect_err("late").to_string();
    assert!(
        message.starts_with("nothing reaches the target within 1.000 h: the soonest, 1 x 1 GPUs at batch 64")
    );
}

#[test]
fn an_estimate_prints_its_factors() {
    let curve = curve(1000, &[(50, 4.0, 0.25, 0.5)]);
    let ms = Duration::from_millis;
    let steps = |_: &Configuration| {
        Some(StepTime { iteration: ms(900), active_gpu_time: Some(ms(1800)), amplification: Some(1.25) })
    };
    let candidates = Candidates::new([4], Batches::Global(vec![50])).with_limits([Some(1.5)]);
    let estimates = estimate(&curve, &steps, &candidates).expect("an estimate");
    assert_eq!(
        estimates.soonest().to_string(),
        "4 x 1 GPUs at batch 50 and amplification 1.5 at most: 0.020 h, 0.080 h of GPU time (900.00 ms an \
         iteration x 20.0 iterations an epoch \
         x 4.00 epochs, 3.20 to 6.00), 0.040 h of it active, amplification 1.25"
    );
    assert_eq!(estimates.soonest().time_range, Some((ms(57_600), ms(108_000))));
}

#[test]
fn measured_epoch_times_are_reproduced() -> Result<(), AccuracyError> {
    let row = |gpus, batch, s| EpochTime { gpus, batch, epoch: Duration::from_secs_f64(s) };
    let measured = MeasuredEpochs::new(1_000_003, [row(8, 512, 40.5), row(2, 128, 100.25)])?;
    let curve = curve(1_000_003, &[(128, 1.0, 0.0, 0.0), (512, 2.0, 0.0, 0.0)]);
    let estimates = estimate(&curve, &measured, &Candidates::new([2, 8], Batches::Global(vec![128, 512])))?;
    let times: Vec<f64> = estimates.all().iter().map(|one| one.time.as_secs_f64()).collect();
    assert!(times.len() == 2 && near(times[0], 81.0) && near(times[1], 100.25), "{times:?}");
    assert_eq!(estimates.skipped().len(), 2, "what nobody measured is not guessed");

    let on = Configuration::data_parallel;
    let efficiency = scaling_efficiency(&measured, &on(2, 128), &on(8, 512)).expect("measured");
    assert!(near(efficiency, 100.25 * 2.0 / (40.5 * 8.0)));
    assert_eq!(scaling_efficiency(&measured, &on(2, 128), &on(8, 128)), None);
    for (rows, expected) in [
        (vec![], "measured epochs is empty"),
        (vec![row(2, 128, 0.0)], "the time of the epoch on 2 GPUs at batch 128 is 0 s"),
        (vec![row(0, 128, 1.0)], "a count of the epoch on 0 GPUs at batch 128 is 0"),
        (vec![row(2, 128, 1.0), row(2, 128, 2.0)], "expected one row for each number of GPUs and batch"),
    ] {
        let message = MeasuredEpochs::new(10, rows).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
