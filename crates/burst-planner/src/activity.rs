//! What a rank does with its time.

/// Intervals of time on one lane, in order and without overlap, microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intervals(Vec<(f64, f64)>);

impl Intervals {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    #[inline]
    pub(crate) fn add(&mut self, start: f64, end: f64) {
        match self.0.last_mut() {
            Some(last) if last.1 >= start => last.1 = end,
            _ if end > start => self.0.push((start, end)),
            _ => {}
        }
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// How long both have a stretch at the same time.
    pub(crate) fn overlap(&self, other: &Self) -> f64 {
        let (mut mine, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
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

/// Where the time of an iteration goes on a rank, or on all of them together, microseconds.
///
/// A rank is *active* while it computes and while a collective that it belongs to transfers, all of whose ranks have
/// arrived. While it waits for others, or has nothing to do, it is *idle*. The three add up to the iteration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Activity {
    /// It computes, whether or not a collective transfers beside that.
    pub computing_us: f64,
    /// A collective transfers, and nothing is computed.
    pub communicating_us: f64,
    /// Neither.
    pub idle_us: f64,
}

impl Activity {
    /// Computing or communicating.
    #[must_use]
    pub fn active_us(&self) -> f64 {
        self.computing_us + self.communicating_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_of_interleaved_stretches() {
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
