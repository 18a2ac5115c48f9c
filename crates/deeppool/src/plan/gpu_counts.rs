//! The GPU counts from which a search chooses. The *maximum shard* of a count is the number of
//! samples of its largest shard: the batch divided by the count, rounded up.

use std::fmt;
use std::str::FromStr;

use burst_planner::gpu_counts;

use crate::Error;

/// A set of GPU counts that a layer may run on.
///
/// A count need not divide the batch: of 32 samples on 5 GPUs, two GPUs get 7 and three get 6.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GpuCounts {
    /// Only counts with a smaller maximum shard than any smaller count: all of these up to 8, and
    /// above 8 each at least a quarter larger than the one before. They depend on the batch only,
    /// so the counts for more GPUs include those for fewer.
    #[default]
    Auto,
    /// The powers of two: 1, 2, 4 and so on.
    PowersOfTwo,
    /// All counts from 1 to the number of GPUs.
    All,
    /// The given counts. Those above the number of GPUs or of samples are [left
    /// out](Self::left_out).
    List(Vec<usize>),
}

impl GpuCounts {
    /// Returns the counts for a batch of `batch` samples on up to `gpus` GPUs, in ascending order.
    /// All are at most `gpus` and at most `batch`.
    ///
    /// ```
    /// use deeppool::plan::GpuCounts;
    ///
    /// assert_eq!(GpuCounts::Auto.for_batch(32, 12), [1, 2, 3, 4, 5, 6, 7, 8, 11]);
    /// assert_eq!(GpuCounts::PowersOfTwo.for_batch(32, 6), [1, 2, 4]);
    /// assert_eq!("6,1,3,12".parse::<GpuCounts>()?.for_batch(32, 6), [1, 3, 6]);
    /// # Ok::<(), deeppool::Error>(())
    /// ```
    #[must_use]
    pub fn for_batch(&self, batch: usize, gpus: usize) -> Vec<usize> {
        let max = gpus.min(batch);
        let mut counts = match self {
            Self::Auto => of_batch(batch),
            Self::PowersOfTwo => gpu_counts::powers_of_two_and_max(max),
            Self::All => return gpu_counts::all(max),
            Self::List(counts) => counts.clone(),
        };
        if *self == Self::PowersOfTwo {
            counts.retain(|count| count.is_power_of_two());
        }
        counts.retain(|count| (1..=max).contains(count));
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Returns the counts of a list that [`for_batch`](Self::for_batch) leaves out, because they
    /// are above the number of GPUs or of samples.
    #[must_use]
    pub fn left_out(&self, batch: usize, gpus: usize) -> Vec<usize> {
        let Self::List(counts) = self else { return Vec::new() };
        counts.iter().copied().filter(|&count| count > gpus.min(batch)).collect()
    }
}

/// Returns the smallest count for each maximum shard size; above 8 at least a quarter apart.
fn of_batch(batch: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut next = 1_usize;
    loop {
        counts.push(next);
        let at_least = if next < 8 { next + 1 } else { next + next.div_ceil(4) };
        let smaller = batch.div_ceil(at_least).min(batch.div_ceil(next).saturating_sub(1));
        if smaller == 0 {
            break;
        }
        next = batch.div_ceil(smaller);
    }
    counts
}

/// Parses `auto`, `powers-of-two`, `all`, or counts separated by commas.
impl FromStr for GpuCounts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => return Ok(Self::Auto),
            "powers-of-two" => return Ok(Self::PowersOfTwo),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let count = |part: &str| part.trim().parse().ok().filter(|&count| count >= 1);
        let counts: Option<Vec<usize>> = text.split(',').map(count).collect();
        counts.map(Self::List).ok_or_else(|| Error::Setting {
            setting: "GPU counts",
            expected: "`auto`, `powers-of-two`, `all`, or a list such as 1,2,3,6",
            got: format!("`{text}`"),
        })
    }
}

/// Writes the notation that is parsed.
impl fmt::Display for GpuCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::PowersOfTwo => f.write_str("powers-of-two"),
            Self::All => f.write_str("all"),
            Self::List(counts) => {
                let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
                f.write_str(&counts.join(","))
            }
        }
    }
}
