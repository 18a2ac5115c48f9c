//! Valid ranges of numeric options.

use std::ops::RangeInclusive;

/// Valid batch sizes, in samples.
pub(crate) const BATCH: RangeInclusive<usize> = 1..=1 << 20;
/// Valid numbers of threads, and of ranks that are threads or processes on this host.
pub(crate) const THREADS: RangeInclusive<usize> = 1..=1024;
