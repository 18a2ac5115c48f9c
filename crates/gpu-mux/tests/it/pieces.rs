//! Cutting a background tasklet to a bound.

use std::time::Duration;

use gpu_mux::{Piece, pieces};
use proptest::prelude::*;

proptest! {
    #[test]
    fn pieces_cover_the_tasklet_within_the_bound(
        takes in 0..50_000_u64, samples in 0..200_usize, bound in 0..3_000_u64,
    ) {
        let (takes, bound) = (Duration::from_nanos(takes), Duration::from_nanos(bound));
        let cut: Vec<Piece> = pieces(takes, samples, bound).collect();
        prop_assert_eq!(cut.iter().map(|piece| piece.takes).sum::<Duration>(), takes);
        let mut covered = 0;
        for piece in &cut {
            prop_assert_eq!(piece.samples.start, covered);
            covered = piece.samples.end;
            prop_assert!(piece.takes <= bound || piece.samples.len() <= 1);
        }
        prop_assert_eq!(covered, samples);
        let sizes = || cut.iter().map(|piece| piece.samples.len());
        prop_assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
        // The number of pieces is minimal: with one fewer, the largest piece would exceed the
        // bound.
        if cut.len() > 1 {
            let larger = samples.div_ceil(cut.len() - 1) as u128;
            prop_assert!(takes.as_nanos() * larger > bound.as_nanos() * samples as u128);
        }
    }
}

#[test]
fn extreme_times_do_not_overflow() {
    let cut = pieces(Duration::MAX, usize::MAX, Duration::from_nanos(u64::MAX / 2));
    assert_eq!(cut.len(), 3);
    assert!(cut.map(|piece| piece.takes).all(|takes| takes <= Duration::from_nanos(u64::MAX / 2)));
}
