//! Minimisation of a quadratic function under lower bounds.

/// Minimises `x' H x / 2 - g' x` subject to `x >= floor`, and returns `x`. `matrix` is a symmetric
/// positive definite `H` in row-major order, and `linear` is `g`.
///
/// Coordinate descent from `start`: each element in turn is minimised with the others fixed, until
/// a sweep changes no element by more than 1e-9 or 5,000 sweeps are done. Complexity: O(n^2) for
/// each sweep.
pub(super) fn minimise(matrix: &[f64], linear: &[f64], floor: &[f64], start: &[f64]) -> Vec<f64> {
    const SWEEPS: usize = 5_000;
    const CHANGE: f64 = 1e-9;
    let n = linear.len();
    let mut x = start.to_vec();
    for _ in 0..SWEEPS {
        let mut change = 0.0_f64;
        for i in 0..n {
            let row = &matrix[i * n..(i + 1) * n];
            let slope: f64 = row.iter().zip(&x).map(|(h, x)| h * x).sum::<f64>() - linear[i];
            let better = (x[i] - slope / row[i]).max(floor[i]);
            change = change.max((better - x[i]).abs());
            x[i] = better;
        }
        if change < CHANGE {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::minimise;

    proptest! {
        /// Karush-Kuhn-Tucker conditions: the gradient is zero for an element above its floor and
        /// not negative for one on its floor.
        #[test]
        fn solution_satisfies_the_kkt_conditions(
            factor in prop::collection::vec(-1.0..1.0_f64, 25),
            linear in prop::collection::vec(-1.0..1.0_f64, 5),
            floor in prop::collection::vec(-0.5..0.5_f64, 5),
        ) {
            let n = linear.len();
            let product =
                |i: usize, j: usize| (0..n).map(|k| factor[i * n + k] * factor[j * n + k]).sum::<f64>();
            let ridge = |i: usize, j: usize| if i == j { 0.1 } else { 0.0 };
            let matrix: Vec<f64> =
                (0..n * n).map(|at| product(at / n, at % n) + ridge(at / n, at % n)).collect();
            let x = minimise(&matrix, &linear, &floor, &[1.0; 5]);
            for i in 0..n {
                let slope = (0..n).map(|j| matrix[i * n + j] * x[j]).sum::<f64>() - linear[i];
                let is_optimal = slope > -1e-6 && (x[i] <= floor[i] || slope < 1e-6);
                prop_assert!(x[i] >= floor[i] && is_optimal, "{x:?}: {slope}");
            }
        }
    }
}
