//! Time in which a rank computes, communicates and idles.

/// Intervals of time on one lane, ascending and disjoint: their starts and ends since the start of
/// the simulation, microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intervals {
    /// All intervals but the last one. The first one is empty if the second starts after 0.
    earlier: Vec<(f64, f64)>,
    /// Sum of the lengths of `earlier`, microseconds.
    earlier_us: f64,
    last: (f64, f64),
}

impl Intervals {
    /// Removes all intervals.
    pub(crate) fn clear(&mut self) {
        self.earlier.clear();
        (self.earlier_us, self.last) = (0.0, (0.0, 0.0));
    }

    /// Adds an interval that starts no earlier than the last one. It is merged with the last one if
    /// they touch, and ignored if it is empty. `start` and `end` are in microseconds.
    #[inline]
    pub(crate) fn add(&mut self, start: f64, end: f64) {
        if start <= self.last.1 {
            self.last.1 = end;
        } else if end > start {
            self.earlier_us += self.last.1 - self.last.0;
            self.earlier.push(self.last);
            self.last = (start, end);
        }
    }

    /// Returns the sum of the lengths of all intervals, microseconds.
    pub(crate) fn total(&self) -> f64 {
        self.earlier_us + (self.last.1 - self.last.0)
    }

    fn all(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.earlier.iter().chain([&self.last])
    }

    /// Returns the total time that is in an interval of both, microseconds.
    pub(crate) fn overlap(&self, other: &Self) -> f64 {
        let (mut mine, mut others) = (self.all().peekable(), other.all().peekable());
        let mut total = 0.0;
        while let (Some(a), Some(b)) = (mine.peek(), others.peek()) {
            total += (a.1.min(b.1) - a.0.max(b.0)).max(0.0);
            if a.1 <= b.1 {
                mine.next();
            } else {
                others.next();
            }
        }
        total
    }
}

/// Split of an iteration's time on one rank, or summed over all ranks, microseconds.
///
/// A rank is *active* while it computes, and while a collective that it belongs to transfers. A
/// collective transfers once all its ranks are ready. A rank that waits for others or has no work
/// is *idle*. The three times add up to the iteration time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Activity {
    /// Time in which the rank computes, with or without a collective at the same time.
    pub computing_us: f64,
    /// Time in which a collective transfers and the rank does not compute.
    pub communicating_us: f64,
    /// Time in which the rank neither computes nor transfers.
    pub idle_us: f64,
}

impl Activity {
    /// Returns the time in which the rank computes or communicates, microseconds.
    #[must_use]
    pub fn active_us(&self) -> f64 {
        self.computing_us + self.communicating_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_of_interleaved_intervals() {
        let of = |spans: &[(f64, f64)]| {
            let mut stretches = Intervals::default();
            for &(start, end) in spans {
                stretches.add(start, end);
            }
            stretches
        };
        let compute = of(&[(0.0, 2.0), (2.0, 3.0), (5.0, 8.0), (9.0, 9.0)]);
        let communication = of(&[(1.0, 6.0), (7.0, 10.0)]);
        assert!((compute.total() - 6.0).abs() < 1e-12);
        assert!((compute.overlap(&communication) - 4.0).abs() < 1e-12);
        assert!((communication.overlap(&compute) - 4.0).abs() < 1e-12);
    }
}
