//! Least squares in three non-negative unknowns.

/// Returns the `x >= 0` that minimizes the sum of `(row . x - target)^2` over all rows, each a pair
/// of `row` and `target`. `None` if the rows do not determine it. Exact: all eight sets of unknowns
/// that may be zero are tried. O(rows).
pub(super) fn non_negative(rows: &[([f64; 3], f64)]) -> Option<[f64; 3]> {
    let norms: [f64; 3] =
        std::array::from_fn(|i| rows.iter().map(|(row, _)| row[i] * row[i]).sum::<f64>().sqrt());
    if norms.iter().any(|norm| !norm.is_finite() || *norm == 0.0) {
        return None;
    }
    // Columns of norm 1 give unknowns of similar magnitude for any units.
    let gram: [[f64; 3]; 3] = std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            rows.iter().map(|(row, _)| row[i] / norms[i] * (row[j] / norms[j])).sum::<f64>()
        })
    });
    let target: [f64; 3] =
        std::array::from_fn(|i| rows.iter().map(|(row, target)| row[i] / norms[i] * target).sum());
    // Some columns are nearly linearly dependent.
    if determinant(&gram) < 1e-9 {
        return None;
    }
    // Sum of squared errors minus the sum of squared targets.
    let excess = |x: &[f64; 3]| -> f64 {
        (0..3).map(|i| x[i] * ((0..3).map(|j| gram[i][j] * x[j]).sum::<f64>() - 2.0 * target[i])).sum()
    };
    (0..8_u8)
        .map(|free| solve(&gram, &target, |i| free & (1 << i) != 0))
        .filter(|x| x.iter().all(|x| *x >= 0.0))
        .min_by(|a, b| excess(a).total_cmp(&excess(b)))
        .map(|x| std::array::from_fn(|i| x[i] / norms[i]))
}

/// Solves for the free unknowns by Cramer's rule. The other unknowns are zero.
fn solve(gram: &[[f64; 3]; 3], target: &[f64; 3], is_free: impl Fn(usize) -> bool) -> [f64; 3] {
    // The equation of an unknown that is not free is replaced by `x = 0`.
    let matrix: [[f64; 3]; 3] =
        std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                if is_free(i) && is_free(j) { gram[i][j] } else { f64::from(u8::from(i == j)) }
            })
        });
    let whole = determinant(&matrix);
    std::array::from_fn(|unknown| {
        let mut replaced = matrix;
        for (i, row) in replaced.iter_mut().enumerate() {
            row[unknown] = if is_free(i) { target[i] } else { 0.0 };
        }
        determinant(&replaced) / whole
    })
}

fn determinant(m: &[[f64; 3]; 3]) -> f64 {
    m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
}

#[cfg(test)]
mod tests {
    use super::non_negative;

    #[test]
    fn unknowns_that_would_be_negative_are_zero() {
        // Without the constraint, the first unknown would be -1 and the others 1.
        let rows = [[1.0, 1.0, 1.0], [1.0, 2.0, 0.0], [1.0, 0.0, 2.0], [0.0, 1.0, 0.0]];
        let x = non_negative(&rows.map(|row| (row, 1.0))).unwrap();
        // No point of a fine grid is better.
        let squares = |x: [f64; 3]| -> f64 {
            rows.iter().map(|row| (0..3).map(|i| row[i] * x[i]).sum::<f64>() - 1.0).map(|e| e * e).sum()
        };
        let grid = || (0..=50).map(|i| f64::from(i) * 0.025);
        for a in grid() {
            for b in grid() {
                for c in grid() {
                    assert!(squares(x) <= squares([a, b, c]) + 1e-12, "{x:?}: {a} {b} {c}");
                }
            }
        }
        assert!(x[0].abs() < 1e-12, "{x:?}");
    }

    #[test]
    fn dependent_rows_have_no_solution() {
        let of = |rows: [[f64; 3]; 3]| non_negative(&rows.map(|row| (row, 1.0)));
        assert_eq!(of([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 1.0]]), None);
        assert_eq!(of([[1.0, 0.0, 1.0], [1.0, 0.0, 2.0], [3.0, 0.0, 1.0]]), None);
        assert_eq!(non_negative(&[]), None);
    }
}
