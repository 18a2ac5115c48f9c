//! Cutting of a tasklet into pieces of its samples.

use std::ops::Range;
use std::time::Duration;

/// Part of a tasklet: a range of its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Samples of this piece, numbered from 0 within the tasklet.
    pub samples: Range<usize>,
    /// Duration of this piece: the share of the tasklet's duration in proportion to its samples.
    pub takes: Duration,
}

/// Cuts a background tasklet by samples into the smallest number of pieces that take at most
/// `bound` each.
///
/// `takes` is the duration of the whole tasklet and is assumed to be proportional to its samples;
/// launch overhead is not modelled. The pieces are in order, differ by at most one sample, cover
/// every sample once and add up to `takes` exactly. A single sample is not cut: if one sample takes
/// longer than `bound`, the pieces are single samples and exceed the bound. A tasklet of at most
/// one sample is one piece. Durations above 584 years (2^64 ns) are clamped.
///
/// O(1) to start and for each piece; nothing is allocated.
///
/// ```
/// use gpu_mux::{Piece, pieces};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let cut: Vec<Piece> = pieces(ms(12), 6, ms(5)).collect();
/// assert_eq!(cut.len(), 3);
/// assert_eq!(cut[0], Piece { samples: 0..2, takes: ms(4) });
/// ```
#[must_use]
pub fn pieces(takes: Duration, samples: usize, bound: Duration) -> impl ExactSizeIterator<Item = Piece> {
    let (takes, bound) = (nanos(takes), nanos(bound));
    // A tasklet without samples is one unit.
    let units = samples.max(1);
    let largest = if takes <= bound { units as u128 } else { part_of(units, bound, takes).max(1) };
    let count = (units as u128).div_ceil(largest) as usize;
    (0..count).map(move |piece| {
        let (start, end) =
            (part_of(piece, units as u64, count as u64), part_of(piece + 1, units as u64, count as u64));
        let time_before = |unit: u128| part_of(unit as usize, takes, units as u64) as u64;
        Piece {
            samples: samples.min(start as usize)..samples.min(end as usize),
            takes: Duration::from_nanos(time_before(end) - time_before(start)),
        }
    })
}

/// Returns `whole * numerator / denominator`, rounded down, without intermediate overflow.
fn part_of(whole: usize, numerator: u64, denominator: u64) -> u128 {
    whole as u128 * u128::from(numerator) / u128::from(denominator)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
