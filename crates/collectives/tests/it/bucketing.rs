//! Tests of gradient bucketing.

use collectives::Bucketing;
use proptest::prelude::*;

/// Ranks that hold a gradient, and its bytes.
type Gradient = (Vec<usize>, u64);

fn gradients() -> impl Strategy<Value = Vec<Gradient>> {
    let ranks = prop::sample::subsequence((0..4_usize).collect::<Vec<_>>(), 1..=4);
    prop::collection::vec((ranks, 0..300_u64), 1..12)
}

proptest! {
    /// Each gradient is in one bucket of its group, in order. Without its last gradient, a full
    /// bucket is below the size.
    #[test]
    fn buckets_have_one_group_and_the_given_size(gradients in gradients(), bucket_bytes in 1..2_000_u64) {
        let mut bucketing = Bucketing::new(bucket_bytes);
        let bytes = |g: usize| gradients[g].1;
        let mut seen = Vec::new();
        for (g, (ranks, _)) in gradients.iter().enumerate() {
            if let Some(full) = bucketing.add(ranks.as_slice(), g, bytes(g)) {
                prop_assert_eq!(full.gradients.last(), Some(&g));
                prop_assert!(full.bytes >= bucket_bytes && full.bytes - bytes(g) < bucket_bytes);
                seen.push(full);
            }
        }
        seen.extend(bucketing.finish());
        for bucket in &seen {
            prop_assert!(bucket.gradients.iter().all(|&g| gradients[g].0 == bucket.group));
            prop_assert!(bucket.gradients.is_sorted());
            prop_assert_eq!(bucket.gradients.iter().map(|&g| bytes(g)).sum::<u64>(), bucket.bytes);
        }
        let mut all: Vec<usize> = seen.into_iter().flat_map(|bucket| bucket.gradients).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..gradients.len()).collect::<Vec<_>>());
    }
}
