//! The link model's formulas, at figures that can be checked by hand.

use std::time::Duration;

use collectives::{Error, LinkModel, Partition, Redistribution};
use proptest::prelude::*;

/// 10 us startup, 1 us a step, 1 byte a nanosecond.
fn link() -> LinkModel {
    LinkModel::new("test", Duration::from_micros(10), Duration::from_micros(1), 1e9)
        .expect("a valid bandwidth")
}

#[track_caller]
fn assert_us(time: Duration, expected_us: f64) {
    let us = time.as_secs_f64() * 1e6;
    assert!((us - expected_us).abs() < 2e-3, "{us} us instead of {expected_us} us");
}

#[test]
fn operations_cost_startup_steps_and_bytes() {
    let link = link();
    assert_us(link.send(5_000), 10.0 + 1.0 + 5.0);
    assert_us(link.all_reduce(4, 8_000), 10.0 + 6.0 + 12.0);
    assert_us(link.reduce_scatter(4, 8_000), 10.0 + 3.0 + 6.0);
    assert_us(link.all_gather(4, 8_000), 10.0 + 3.0 + 6.0);
    // Five ranks are three levels of a tree; long messages go by scatter and all-gather.
    assert_us(link.broadcast(5, 1_000), 10.0 + 3.0 + 3.0);
    assert_us(link.broadcast(5, 100_000), 10.0 + 7.0 + 160.0);
}

#[test]
fn a_redistribution_lasts_as_long_as_its_busiest_rank() {
    let narrow = Partition::even(8, &[0]).expect("one rank");
    let wide = Partition::even(8, &[0, 1, 2, 3]).expect("four ranks");
    let widen = Redistribution::new(&narrow, &wide).expect("eight samples");
    assert_us(link().redistribution(&widen, 1_000), 10.0 + 1.0 + 6.0);
    assert_eq!(link().redistribution(&widen, 1_000), link().redistribution(&widen.reversed(), 1_000));
    let stay = Redistribution::new(&wide, &wide).expect("eight samples");
    assert_eq!(link().redistribution(&stay, 1_000), Duration::ZERO);
}

#[test]
fn links_are_looked_up_by_name() {
    for name in LinkModel::names() {
        assert_eq!(LinkModel::named(&name).map(|link| link.name().to_owned()), Ok(name));
    }
    let error = LinkModel::named("dgx-z9").expect_err("there is none");
    assert_eq!(error.to_string(), "there is no link model \"dgx-z9\"; there are: dgx-a100, shared-memory");
}

#[test]
fn a_bandwidth_is_positive_and_finite() {
    for bytes_per_s in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        let link = LinkModel::new("bad", Duration::ZERO, Duration::ZERO, bytes_per_s);
        assert!(matches!(link, Err(Error::BadBandwidth { .. })), "{link:?}");
    }
    let slow =
        LinkModel::new("slow", Duration::ZERO, Duration::ZERO, f64::MIN_POSITIVE).expect("it is positive");
    assert_eq!(slow.send(1), Duration::MAX);
}

proptest! {
    #[test]
    fn one_rank_is_free_and_more_costs_more(ranks in 2..64_usize, bytes in 0..1_u64 << 34) {
        for link in [LinkModel::dgx_a100(), LinkModel::shared_memory()] {
            for cost in [LinkModel::all_reduce, LinkModel::reduce_scatter, LinkModel::all_gather, LinkModel::broadcast] {
                prop_assert_eq!(cost(&link, 1, bytes), Duration::ZERO);
                prop_assert!(cost(&link, ranks, bytes) > link.startup());
                prop_assert!(cost(&link, ranks, bytes) <= cost(&link, ranks, bytes + 1_000));
                prop_assert!(cost(&link, ranks, bytes) <= cost(&link, ranks + 1, bytes));
            }
            let both_halves = link.reduce_scatter(ranks, bytes) + link.all_gather(ranks, bytes);
            let difference = both_halves.abs_diff(link.all_reduce(ranks, bytes) + link.startup());
            prop_assert!(difference < Duration::from_nanos(5));
        }
    }
}
