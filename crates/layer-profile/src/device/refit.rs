//! Fit of a device model that starts from another model.

use std::collections::HashMap;

use super::costs::Costs;
use super::errors::errors;
use super::fit::{Equation, Problem};
use super::observations::Observation;
use super::term::{Group, Term};
use super::{DeviceModel, FitReport, Formula, Observations};
use crate::{Gpu, ModelAccuracy, ProfileError};

/// Number of Gauss-Newton iterations. The objective settles within 30.
const ITERATIONS: usize = 60;
/// Error, as a logarithm, beyond which the penalty grows linearly instead of quadratically.
const TOLERANCE: f64 = 0.05;
/// Weight of all observations of a network, relative to the regularisation.
const NETWORK_WEIGHT: f64 = 12.0;
/// Standard deviation of the logarithm of a term's cost over that of its group, in units of
/// [`TOLERANCE`].
const TERM_WEIGHT: f64 = 0.3;

impl DeviceModel {
    /// Fits the costs of a model to observations, starting from those of this model, and reports
    /// its errors. `name` is the name of the new model. This model and the new one are for `gpu`;
    /// observations of other GPUs are scaled by their data sheets.
    ///
    /// Few measured networks determine few costs. A cost is therefore the product of three factors:
    /// that of this model, one for its group of terms (such as the arithmetic of convolutions, or
    /// the bytes of normalisations), and one of its own. The objective is a robust penalty on the
    /// logarithm of predicted over observed time, with the same weight for each network and each of
    /// its batch sizes, plus quadratic penalties on the logarithms of the factors, of which those
    /// of groups are penalised less. It is minimised by 60 iterations of the Gauss-Newton method
    /// with step halving. There is no cross-validation: [`Observations::without`] leaves a network
    /// out. Equal observations give equal models. O(iterations x terms^2 x (terms + observations)).
    ///
    /// # Errors
    /// [`ProfileError::NoObservations`] if `observations` is empty; [`ProfileError::FixedDevice`]
    /// for `cpu-core`, whose formula is fixed.
    pub fn refit(
        &self,
        name: impl Into<String>,
        gpu: &Gpu,
        observations: &Observations,
    ) -> Result<(Self, FitReport), ProfileError> {
        let Formula::Costs(start) = &self.formula else {
            return Err(ProfileError::FixedDevice { name: self.name.clone() });
        };
        let scaled = observations.scaled_to(gpu);
        let rows: Vec<&Observation> = scaled.rows().iter().collect();
        if rows.is_empty() {
            return Err(ProfileError::NoObservations);
        }
        let costs = refined(start, gpu, &rows);
        let fitted = errors(&scaled, |row| Some(costs.time_us(&row.demand)));
        let report = FitReport { fitted, held_out: Vec::new() };
        let accuracy = ModelAccuracy {
            basis: format!("fitted to {}", observations.source()),
            errors: None,
            held_out: Vec::new(),
        };
        Ok((Self { name: name.into(), formula: Formula::Costs(costs), accuracy }, report))
    }
}

/// Factors of costs, as logarithms.
struct Factors<'a> {
    terms: &'a [Term],
    start_us: &'a [f64],
    /// Minimum costs.
    floor_us: &'a [f64],
    /// Weights of the penalties on the logarithms.
    penalties: &'a [f64],
    /// Logarithms of the groups' factors, followed by those of the terms.
    logarithms: Vec<f64>,
}

impl Factors<'_> {
    fn group(&self, term: usize) -> usize {
        self.terms[term].group() as usize
    }

    fn costs(&self, logarithms: &[f64]) -> Vec<f64> {
        let of = |term: usize| {
            let factor = (logarithms[self.group(term)] + logarithms[Group::COUNT + term]).exp();
            (self.start_us[term] * factor).max(self.floor_us[term])
        };
        (0..self.terms.len()).map(of).collect()
    }

    fn objective(&self, rows: &[Equation], logarithms: &[f64]) -> f64 {
        let costs = self.costs(logarithms);
        let of_row = |row: &Equation| {
            let square = NETWORK_WEIGHT * row.weight * (row.ratio(&costs).ln() / TOLERANCE).powi(2);
            2.0 * ((1.0 + square).sqrt() - 1.0)
        };
        rows.iter().map(of_row).sum::<f64>()
            + self.penalties.iter().zip(logarithms).map(|(weight, x)| weight * x * x).sum::<f64>()
    }

    /// Returns the step of the Gauss-Newton method, with rows reweighted by the robust penalty.
    fn step(&self, rows: &[Equation]) -> Option<Vec<f64>> {
        let n = self.logarithms.len();
        let costs = self.costs(&self.logarithms);
        let penalties = self.penalties;
        let mut matrix = vec![0.0; n * n];
        let mut linear: Vec<f64> =
            penalties.iter().zip(&self.logarithms).map(|(weight, x)| -weight * x).collect();
        (0..n).for_each(|i| matrix[i * n + i] = penalties[i]);
        let mut slope = vec![0.0; n];
        for row in rows {
            let ratio = row.ratio(&costs);
            let logarithm = ratio.ln();
            let weight = NETWORK_WEIGHT * row.weight / (TOLERANCE * TOLERANCE);
            let weight = weight / (1.0 + weight * logarithm * logarithm).sqrt();
            slope.fill(0.0);
            for &(term, amount) in &row.amounts {
                if costs[term] > self.floor_us[term] {
                    let part = amount * costs[term] / ratio;
                    slope[self.group(term)] += part;
                    slope[Group::COUNT + term] += part;
                }
            }
            let used: Vec<usize> = (0..n).filter(|&i| slope[i] != 0.0).collect();
            for &i in &used {
                linear[i] -= weight * slope[i] * logarithm;
                for &j in &used {
                    matrix[i * n + j] += weight * slope[i] * slope[j];
                }
            }
        }
        solve(matrix, linear)
    }
}

fn refined(start: &Costs, gpu: &Gpu, rows: &[&Observation]) -> Costs {
    let terms = Term::all();
    let start_us: Vec<f64> = terms.iter().map(|&term| start.cost_us(term)).collect();
    let floor_us: Vec<f64> = terms.iter().map(|term| term.physical_min_us(gpu)).collect();
    let columns: HashMap<Term, usize> = terms.iter().copied().zip(0..).collect();
    let problem = Problem::new(rows, |term| Some((*columns.get(&term)?, 1.0)));
    let weights = Group::ALL.map(Group::weight).into_iter();
    let weights = weights.chain(std::iter::repeat_n(TERM_WEIGHT, terms.len()));
    let penalties: Vec<f64> = weights.map(|weight| (weight / TOLERANCE).powi(2)).collect();
    let mut factors = Factors {
        terms: &terms,
        start_us: &start_us,
        floor_us: &floor_us,
        penalties: &penalties,
        logarithms: vec![0.0; Group::COUNT + terms.len()],
    };
    let mut objective = factors.objective(&problem.rows, &factors.logarithms);
    for _ in 0..ITERATIONS {
        let Some(step) = factors.step(&problem.rows) else { break };
        let along = |part: f64| -> Vec<f64> {
            factors.logarithms.iter().zip(&step).map(|(x, step)| x + part * step).collect()
        };
        let halves = [1.0, 0.5, 0.25, 0.125, 0.0625];
        let better = halves.into_iter().map(|part| {
            let logarithms = along(part);
            (factors.objective(&problem.rows, &logarithms), logarithms)
        });
        let Some((found, logarithms)) = better.into_iter().find(|(found, _)| *found < objective) else {
            break;
        };
        let gain = objective - found;
        (objective, factors.logarithms) = (found, logarithms);
        if gain < 1e-9 * objective {
            break;
        }
    }
    let costs = factors.costs(&factors.logarithms);
    Costs::new(|term| costs[columns[&term]])
}

/// Solves a system with a symmetric positive definite matrix, in row-major order, by Cholesky's
/// method. `None` if the matrix is not positive definite. O(n^3).
fn solve(mut matrix: Vec<f64>, mut linear: Vec<f64>) -> Option<Vec<f64>> {
    let n = linear.len();
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| matrix[i * n + k] * matrix[j * n + k]).sum();
            let rest = matrix[i * n + j] - sum;
            if i == j {
                if rest <= 0.0 || !rest.is_finite() {
                    return None;
                }
                matrix[i * n + i] = rest.sqrt();
            } else {
                matrix[i * n + j] = rest / matrix[j * n + j];
            }
        }
    }
    for i in 0..n {
        let sum: f64 = (0..i).map(|k| matrix[i * n + k] * linear[k]).sum();
        linear[i] = (linear[i] - sum) / matrix[i * n + i];
    }
    for i in (0..n).rev() {
        let sum: f64 = (i + 1..n).map(|k| matrix[k * n + i] * linear[k]).sum();
        linear[i] = (linear[i] - sum) / matrix[i * n + i];
    }
    Some(linear)
}

#[cfg(test)]
mod tests {
    use super::solve;

    #[test]
    fn cholesky_solves_a_system_and_rejects_an_indefinite_matrix() {
        let x = solve(vec![4.0, 2.0, 2.0, 3.0], vec![2.0, 5.0]).expect("positive definite");
        assert!((x[0] + 0.5).abs() < 1e-12 && (x[1] - 2.0).abs() < 1e-12, "{x:?}");
        assert!(solve(vec![1.0, 2.0, 2.0, 1.0], vec![1.0, 1.0]).is_none());
    }
}
