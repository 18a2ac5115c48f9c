use std::fmt;
use std::str::FromStr;

use burst_planner::gpu_counts;

use crate::Error;

/// On how many GPUs a layer may run.
///
/// A count need not divide the batch: of 32 samples on 5 GPUs two get 7 and three get 6. A layer takes as long as its largest
/// shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GpuCounts {
    /// 1, 2, 4, ... and all there are.
    #[default]
    PowersOfTwo,
    /// Every count. Plans are never slower than with powers of two, and take longer to find.
    All,
    /// These; those above the number of GPUs or of samples are left out.
    List(Vec<usize>),
}

impl GpuCounts {
    /// The counts from 1 to `most`, ascending.
    ///
    /// ```
    /// use deeppool::planning::GpuCounts;
    ///
    /// assert_eq!(GpuCounts::PowersOfTwo.up_to(6), [1, 2, 4, 6]);
    /// assert_eq!("6,1,3,12".parse::<GpuCounts>()?.up_to(6), [1, 3, 6]);
    /// # Ok::<(), deeppool::Error>(())
    /// ```
    #[must_use]
    pub fn up_to(&self, most: usize) -> Vec<usize> {
        match self {
            Self::PowersOfTwo => gpu_counts::powers_of_two(most),
            Self::All => gpu_counts::all(most),
            Self::List(counts) => {
                let mut counts: Vec<usize> =
                    counts.iter().copied().filter(|count| (1..=most).contains(count)).collect();
                counts.sort_unstable();
                counts.dedup();
                counts
            }
        }
    }
}

/// `powers-of-two`, `all`, or counts with commas between them.
impl FromStr for GpuCounts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "powers-of-two" => return Ok(Self::PowersOfTwo),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let count = |part: &str| part.trim().parse().ok().filter(|&count| count >= 1);
        let counts: Option<Vec<usize>> = text.split(',').map(count).collect();
        counts.map(Self::List).ok_or_else(|| Error::Setting {
            setting: "GPU counts",
            expected: "`powers-of-two`, `all`, or a list such as 1,2,3,6",
            got: format!("`{text}`"),
        })
    }
}

/// As it is parsed.
impl fmt::Display for GpuCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowersOfTwo => f.write_str("powers-of-two"),
            Self::All => f.write_str("all"),
            Self::List(counts) => {
                let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
                f.write_str(&counts.join(","))
            }
        }
    }
}
