//! Hybrid and data parallelism: the inequality compared with the two speed-ups.

use proptest::prelude::*;
use time_to_accuracy::{AccuracyError, Comparison, Crossover, EpochCurve, Winner};

use crate::random::curve;

/// Generates efficiencies of 1, 2, 4, ... workers, and epochs at their batches.
fn efficiencies_and_epochs() -> impl Strategy<Value = (Vec<(f64, f64)>, u32, f64, usize)> {
    (prop::collection::vec((0.05..1.5_f64, 1.0..50.0_f64), 4..10), 1..3_u32, 0.5..5.0_f64, 1..100_usize)
}

proptest! {
    #[test]
    fn crossover_equals_enumeration((of_doublings, doublings, speedup, batch) in efficiencies_and_epochs()) {
        let points: Vec<(usize, f64, f64, f64)> =
            of_doublings.iter().enumerate().map(|(i, of)| (batch << i, of.1, 0.0, 0.0)).collect();
        let curve = curve(1000, &points);
        let efficiency = |workers: usize| of_doublings.get(workers.ilog2() as usize).map(|of| of.0);
        let m = 1_usize << doublings;
        let gpus = (doublings as usize..of_doublings.len()).map(|i| 1_usize << i);
        let crossover = Crossover::new(&curve, batch, (m, speedup), efficiency, gpus.clone()).expect("known");

        let (mut from, mut is_clear) = (None, true);
        for gpus in gpus {
            let of = |workers: usize| of_doublings[workers.ilog2() as usize];
            let (of_gpus, of_workers) = (of(gpus), of(gpus / m));
            let one = of_doublings[0].1;
            let data_parallel = of_gpus.0 * gpus as f64 * one / of_gpus.1;
            let hybrid = speedup * of_workers.0 * (gpus / m) as f64 * one / of_workers.1;
            // Skip the check of the crossover if both speed-ups are equal up to rounding.
            is_clear &= (hybrid / data_parallel - 1.0).abs() > 1e-9;
            from = if hybrid > data_parallel { from.or(Some(gpus)) } else { None };
            let comparison = crossover.comparisons().iter().find(|of| of.gpus() == gpus).expect("compared");
            prop_assert!((comparison.data_parallel_speedup(one) / data_parallel - 1.0).abs() < 1e-12);
            prop_assert!((comparison.hybrid_speedup(one) / hybrid - 1.0).abs() < 1e-12);
            prop_assert!((comparison.gain() / (hybrid / data_parallel) - 1.0).abs() < 1e-12);
            let at_that_ratio = Comparison {
                data_parallel_efficiency: comparison.hybrid_efficiency
                    * comparison.efficiency_ratio_for(1.25),
                ..*comparison
            };
            prop_assert!((at_that_ratio.gain() - 1.25).abs() < 1e-9);
        }
        if is_clear {
            prop_assert_eq!(crossover.first_hybrid_win().map(Comparison::gpus), from);
        }
    }

    #[test]
    fn workers_of_one_gpu_equal_data_parallelism((of_doublings, _, _, batch) in efficiencies_and_epochs()) {
        let points: Vec<(usize, f64, f64, f64)> =
            of_doublings.iter().enumerate().map(|(i, of)| (batch << i, of.1, 0.0, 0.0)).collect();
        let efficiency = |workers: usize| of_doublings.get(workers.ilog2() as usize).map(|of| of.0);
        let crossover = Crossover::new(&curve(1000, &points), batch, (1, 1.0), efficiency, [1, 2, 4]);
        let crossover = crossover.expect("known");
        for comparison in crossover.comparisons() {
            prop_assert_eq!((comparison.winner(), comparison.gain()), (Winner::Tie, 1.0));
        }
        prop_assert_eq!(crossover.first_hybrid_win(), None);
    }
}

#[test]
fn display_shows_the_evaluated_inequality() -> Result<(), AccuracyError> {
    let curve = EpochCurve::named("gnmt")?;
    let efficiency = |workers: usize| Some(if workers > 512 { 0.4 } else { 0.5 });
    let crossover = Crossover::new(&curve, 16, (2, 1.2), efficiency, [1024, 256, 256, 512])?;
    assert_eq!(
        crossover.to_string(),
        "256 GPUs: SU^2 = 1.200 < 1.592 = 2 x (0.500 / 0.500) x (4.10 / 5.15): 128 workers of 2 GPUs are \
         slower: data parallelism is \
         1.327 times as fast\n\
         512 GPUs: SU^2 = 1.200 < 1.661 = 2 x (0.500 / 0.500) x (5.15 / 6.20): 256 workers of 2 GPUs are \
         slower: data parallelism is \
         1.384 times as fast\n\
         1024 GPUs: SU^2 = 1.200 > 1.078 = 2 x (0.400 / 0.500) x (6.20 / 9.20): 512 workers of 2 GPUs are \
         1.113 times as fast as data \
         parallelism\n\
         hybrid wins from 1024 GPUs on"
    );
    Ok(())
}

#[test]
fn unknown_and_invalid_figures_are_errors() {
    let curve = EpochCurve::named("gnmt").expect("built in");
    let known = |_: usize| Some(1.0);
    let message = |crossover: Result<Crossover, AccuracyError>| crossover.expect_err("an error").to_string();
    let of = |batch, worker, gpus: &[usize]| {
        message(Crossover::new(&curve, batch, worker, known, gpus.iter().copied()))
    };
    assert!(of(16, (2, 1.3), &[2048]).contains("covers global batches of 2048 to 16384 samples, not 32768"));
    assert!(of(16, (2, 1.3), &[usize::MAX - 1]).contains("covers global batches"));
    assert!(of(16, (2, 1.3), &[257]).contains("257 GPUs are no whole number of workers of 2 GPUs"));
    assert!(of(16, (2, 1.3), &[]).contains("the list of GPU counts is empty"));
    assert!(of(16, (0, 1.3), &[256]).contains("the number of GPUs of a worker is 0"));
    assert!(of(0, (2, 1.3), &[256]).contains("the number of samples of a worker is 0"));
    assert!(of(16, (2, f64::NAN), &[256]).contains("the speed-up of a worker is NaN"));
    let unknown = |workers: usize| (workers < 256).then_some(1.0);
    assert!(
        message(Crossover::new(&curve, 16, (2, 1.3), unknown, [256])).contains("256 workers is not known")
    );
    assert!(
        message(Crossover::new(&curve, 16, (2, 1.3), |_| Some(0.0), [256]))
            .contains("of 128 workers is 0, expected")
    );
}
