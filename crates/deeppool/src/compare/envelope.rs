//! The maximum total throughput of ways to share GPUs that alternate in time. A point is a pair:
//! foreground samples per second, and total samples per second of foreground and background.

/// The maximum total samples per second at each number of foreground samples per second if any two
/// of some points may alternate in any proportion: the upper convex hull of the points.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// Foreground and total samples per second, by ascending foreground; concave.
    corners: Vec<(f64, f64)>,
}

impl Envelope {
    /// Computes the envelope of points, each (foreground, total) samples per second. O(n log n):
    /// A. M. Andrew, "Another Efficient Algorithm for Convex Hulls in Two Dimensions", 1979.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut points: Vec<(f64, f64)> = points.into_iter().collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut corners: Vec<(f64, f64)> = Vec::new();
        for point in points {
            while let [.., before, last] = corners[..] {
                let is_below =
                    (last.0 - before.0) * (point.1 - before.1) >= (last.1 - before.1) * (point.0 - before.0);
                if !is_below {
                    break;
                }
                corners.pop();
            }
            if let [(foreground, total)] = corners[..] {
                // Points are sorted: its foreground is at least as fast.
                if foreground >= point.0 && total <= point.1 {
                    corners.pop();
                }
            }
            corners.push(point);
        }
        Self { corners }
    }

    /// Returns the points at the corners of the convex hull, each (foreground, total) samples per
    /// second, by ascending foreground.
    #[must_use]
    pub fn corners(&self) -> &[(f64, f64)] {
        &self.corners
    }

    /// Returns the maximum foreground samples per second of any point; 0 without points.
    #[must_use]
    pub fn fastest(&self) -> f64 {
        self.corners.last().map_or(0.0, |&(foreground, _)| foreground)
    }

    /// Returns the maximum total samples per second with at least `foreground` foreground samples
    /// per second; `None` if no point has such a foreground.
    #[must_use]
    pub fn total_at(&self, foreground: f64) -> Option<f64> {
        self.at(foreground).map(|(total, _)| total)
    }

    /// Returns the total samples per second of [`total_at`](Self::total_at), and the corners that
    /// give it: one, or two that alternate. `None` if no point has such a foreground.
    #[must_use]
    pub fn at(&self, foreground: f64) -> Option<(f64, &[(f64, f64)])> {
        let first = self.corners.partition_point(|corner| corner.0 < foreground);
        let after = &self.corners[first..];
        let &(x1, y1) = after.first()?;
        // Totals increase up to one corner and decrease after it.
        let best = after.iter().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let (best, total) = best.map_or((0, y1), |(index, &(_, total))| (index, total));
        let alone = (total, &after[best..=best]);
        let Some(&(x0, y0)) = first.checked_sub(1).and_then(|before| self.corners.get(before)) else {
            return Some(alone);
        };
        let between = y0 + (y1 - y0) * (foreground - x0) / (x1 - x0);
        Some(if between > total { (between, &self.corners[first - 1..=first]) } else { alone })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dominated_points_are_excluded() {
        let envelope =
            Envelope::new([(0.0, 10.0), (1.0, 9.0), (2.0, 9.6), (4.0, 9.0), (4.0, 2.0), (3.0, 1.0)]);
        assert_eq!(envelope.corners(), [(0.0, 10.0), (2.0, 9.6), (4.0, 9.0)]);
        assert_eq!(envelope.total_at(1.0), Some(9.8));
        assert_eq!((envelope.total_at(4.0), envelope.total_at(4.1)), (Some(9.0), None));
        assert_eq!(Envelope::new([(1.0, 2.0), (1.0, 5.0)]).total_at(0.0), Some(5.0));
        assert_eq!(Envelope::new([]).total_at(0.0), None);
    }

    proptest! {
        /// Compares the envelope with the maximum over all pairs of points.
        #[test]
        fn envelope_is_the_best_of_all_pairs(
            points in prop::collection::vec((0.0..10.0_f64, 0.0..10.0_f64), 1..12), at in 0.0..10.0_f64,
        ) {
            let envelope = Envelope::new(points.iter().copied());
            let mut best: Option<f64> = None;
            for &(x0, y0) in &points {
                if x0 >= at {
                    best = Some(best.map_or(y0, |best| best.max(y0)));
                }
                for &(x1, y1) in points.iter().filter(|(x1, _)| x0 < at && *x1 >= at) {
                    let between = y0 + (y1 - y0) * (at - x0) / (x1 - x0);
                    best = Some(best.map_or(between, |best| best.max(between)));
                }
            }
            match (envelope.total_at(at), best) {
                (None, None) => {}
                (Some(found), Some(best)) => prop_assert!((found - best).abs() < 1e-9, "{found} {best}"),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
