//! Fit of a device model's costs to measured times, and its cross-validation. A *row* is the
//! measured time of one pass, or of several that were measured together, at one batch size; a
//! *term* is a resource that work uses, and its *cost* the time for one unit of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::costs::Costs;
use super::errors::{RESOLUTION_US, errors, median};
use super::observations::Observation;
use super::term::{Term, Unit};
use super::{DeviceModel, Formula, NetworkErrors, Observations, nonnegative};
use crate::{DataSheet, ErrorSummary, Gpu, ModelAccuracy, ProfileError};

/// Errors of a fitted model on its observations and in cross-validation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FitReport {
    /// Errors on the observations that the model was fitted to, by network.
    pub fitted: Vec<NetworkErrors>,
    /// Errors in cross-validation: for each network, those of a model fitted to the other networks.
    /// With a single network, its layer shapes are divided into five parts, and each part is
    /// predicted by a model fitted to the other four. Empty if there is a single shape.
    pub held_out: Vec<NetworkErrors>,
}

impl FitReport {
    /// Summarises the absolute errors in three numbers: the median over `NetworkErrors::rows` of
    /// the fitted observations, the maximum over whole networks on the fitted observations, and the
    /// maximum over whole networks in cross-validation.
    #[must_use]
    pub fn summary(&self) -> ErrorSummary {
        let rows = self.fitted.iter().flat_map(|network| &network.rows);
        let max =
            |networks: &[NetworkErrors]| networks.iter().map(NetworkErrors::max_error).fold(0.0, f64::max);
        ErrorSummary {
            layers_median: median(rows.map(|row| row.2.abs())),
            networks_max: max(&self.fitted),
            held_out_max: (!self.held_out.is_empty()).then(|| max(&self.held_out)),
        }
    }
}

/// Weight of the regularisation towards the default costs at the peaks of a data sheet, relative to
/// all rows of a network. It determines costs that were not observed and hardly affects the others.
const SHEET_PRIOR_WEIGHT: f64 = 4e-3;
/// Weight of the regularisation towards default costs at fitted peaks, which are less certain.
const FITTED_PRIOR_WEIGHT: f64 = 6e-4;
/// Number of reweighting iterations. Costs converge within ten.
const ROUNDS: usize = 12;
/// Lower limit of ratios, since the logarithm of 0 is not finite.
const MIN_RATIO: f64 = 1e-3;
/// Relative errors below this have no further effect on the weights.
const ERROR_TOLERANCE: f64 = 0.03;
/// Number of parts into which the shapes of a single network are divided for cross-validation.
const FOLDS: usize = 5;

impl DeviceModel {
    /// Fits the costs of a model to observations and reports its errors. `name` is the name of the
    /// new model; `sheet` is the data sheet of the measured device, or `None` if there is none.
    ///
    /// The objective is the weighted sum of the absolute logarithms of predicted over observed
    /// time, minimised by iteratively reweighted least squares (12 iterations) with non-negative
    /// costs. Each network has the same weight, each of its batch sizes has the same weight within
    /// it, and each row is weighted by the square root of its time.
    ///
    /// A weak regularisation towards default costs, on squared logarithms, determines the costs
    /// that were not observed. The defaults are those at the peaks of the data sheet, if there is
    /// one. Otherwise four peaks are fitted first: the times of a kernel launch, of a Gflop, of a
    /// megabyte moved, and of a thousand products summed into a tile. Equal observations give equal
    /// models.
    ///
    /// # Errors
    /// [`ProfileError::NoObservations`] if `observations` is empty.
    pub fn fit(
        name: impl Into<String>,
        sheet: Option<&DataSheet>,
        observations: &Observations,
    ) -> Result<(Self, FitReport), ProfileError> {
        let rows: Vec<&Observation> = observations.rows().iter().collect();
        if rows.is_empty() {
            return Err(ProfileError::NoObservations);
        }
        let gpu = sheet.map(|&sheet| Gpu { sheet, format: sheet.default_format() });
        let costs = fit_costs(gpu.as_ref(), &rows);
        let fitted = errors(observations, |row| Some(costs.time_us(&row.demand)));
        let held_out = cross_validate(observations, |rows| fit_costs(gpu.as_ref(), rows));
        let report = FitReport { fitted, held_out };
        let networks = observations.networks().join(", ");
        let accuracy = ModelAccuracy {
            basis: format!("fitted to {} ({networks})", observations.source()),
            errors: Some(report.summary()),
            held_out: Vec::new(),
        };
        Ok((Self { name: name.into(), formula: Formula::Costs(costs), accuracy }, report))
    }
}

/// Key by which observations are divided into parts.
type NameOf = fn(&Observation) -> &str;

fn cross_validate(observations: &Observations, fit: impl Fn(&[&Observation]) -> Costs) -> Vec<NetworkErrors> {
    let networks = observations.networks();
    // Part of each network or shape.
    let (parts, by): (HashMap<&str, usize>, NameOf) = if networks.len() > 1 {
        (networks.into_iter().zip(0..).collect(), |row| &row.network)
    } else {
        // Shapes are distributed round-robin within each kind, so that no part holds all shapes of
        // a kind. Each kind starts one part later, so that kinds with a single shape are spread
        // over the parts.
        let mut next_part = HashMap::<&str, usize>::new();
        let mut assign = |shape| {
            let kind = str::split(shape, ['(', ' ']).next().unwrap_or_default();
            let kinds = next_part.len();
            let next = next_part.entry(kind).or_insert(kinds);
            *next += 1;
            (shape, (*next - 1) % FOLDS)
        };
        (observations.shapes().into_iter().map(&mut assign).collect(), |row| &row.shape)
    };
    let part = |row: &Observation| parts.get(by(row)).copied();
    let all: BTreeSet<usize> = parts.values().copied().collect();
    let models: BTreeMap<usize, Costs> = all
        .into_iter()
        .filter_map(|out| {
            let rest: Vec<_> = observations.rows().iter().filter(|row| part(row) != Some(out)).collect();
            (!rest.is_empty()).then(|| (out, fit(&rest)))
        })
        .collect();
    errors(observations, |row| Some(models.get(&part(row)?)?.time_us(&row.demand)))
}

fn fit_costs(gpu: Option<&Gpu>, rows: &[&Observation]) -> Costs {
    let terms = Term::all();
    let columns: HashMap<Term, usize> = terms.iter().copied().zip(0..).collect();
    // A data sheet's peak bounds the costs from below. Fitted peaks are no bound, and equally
    // certain for all terms.
    let each = |value: &dyn Fn(Term) -> f64| terms.iter().map(|&term| value(term)).collect::<Vec<_>>();
    let (prior, floor, prior_weight) = match gpu {
        Some(gpu) => (
            each(&|term| term.default_cost_us(gpu)),
            each(&|term| term.min_cost() / term.default_cost().1),
            each(&|term| SHEET_PRIOR_WEIGHT * term.prior_weight()),
        ),
        None => (fitted_default_costs(&terms, rows), each(&|_| 0.0), each(&|_| FITTED_PRIOR_WEIGHT)),
    };
    let problem = Problem::new(rows, |term| Some((*columns.get(&term)?, 1.0)));
    let costs = problem.solve(&prior, &floor, &prior_weight);
    Costs::new(|term| costs[columns[&term]])
}

/// Returns the default costs at peaks that are fitted to the observations.
fn fitted_default_costs(terms: &[Term], rows: &[&Observation]) -> Vec<f64> {
    let column = |unit: Unit| Unit::ALL.iter().position(|&other| other == unit);
    let problem = Problem::new(rows, |term| {
        let (unit, multiple) = term.default_cost();
        Some((column(unit)?, multiple))
    });
    // Cost of a unit that would explain the median row on its own.
    let alone = |at: usize| {
        let amounts = problem.rows.iter().flat_map(|row| &row.amounts).filter(|amount| amount.0 == at);
        let shares: Vec<f64> = amounts.map(|amount| 1.0 / amount.1).filter(|cost| cost.is_finite()).collect();
        median(shares.into_iter())
    };
    let start: Vec<f64> = (0..Unit::ALL.len()).map(alone).collect();
    let fitted =
        problem.solve(&start, &[0.0; Unit::ALL.len()], &[1e-3 * FITTED_PRIOR_WEIGHT; Unit::ALL.len()]);
    // A unit that is not visible in the observations must keep a positive cost.
    let cost = |unit: Unit| column(unit).map_or(0.0, |at| fitted[at].max(start[at] * 1e-2));
    terms.iter().map(|term| term.default_cost().1 * cost(term.default_cost().0)).collect()
}

/// Least-squares problem whose rows predict times as sums of amounts times costs.
pub(super) struct Problem {
    pub(super) rows: Vec<Equation>,
    columns: usize,
}

pub(super) struct Equation {
    /// Amounts by column, divided by the row's time: with exact costs they add up to 1.
    pub(super) amounts: Vec<(usize, f64)>,
    pub(super) weight: f64,
}

impl Equation {
    /// Returns predicted over observed time.
    pub(super) fn ratio(&self, costs: &[f64]) -> f64 {
        self.amounts.iter().map(|&(column, amount)| amount * costs[column]).sum()
    }
}

impl Problem {
    /// Creates a problem. `column` maps a term to its column and the factor of its amounts.
    pub(super) fn new(rows: &[&Observation], column: impl Fn(Term) -> Option<(usize, f64)>) -> Self {
        let mut batches = HashMap::<&str, BTreeSet<usize>>::new();
        let mut sums = HashMap::<(&str, usize), f64>::new();
        for row in rows {
            batches.entry(&row.network).or_default().insert(row.batch);
            *sums.entry((&row.network, row.batch)).or_default() += importance(row);
        }
        let mut columns = 0;
        let equation = |row: &&Observation| {
            let mut amounts = BTreeMap::<usize, f64>::new();
            for (term, amount) in row.demand.amounts() {
                if let Some((column, multiple)) = column(term) {
                    *amounts.entry(column).or_default() += amount * multiple / time_us(row);
                }
            }
            columns = columns.max(amounts.keys().max().map_or(0, |last| last + 1));
            let (network, batch) = (row.network.as_str(), row.batch);
            let weight = importance(row) / sums[&(network, batch)] / batches[network].len() as f64;
            Equation { amounts: amounts.into_iter().collect(), weight }
        };
        Self { rows: rows.iter().map(equation).collect(), columns }
    }

    /// Solves for the costs, regularised towards `prior`. `floor` holds their lower bounds in
    /// multiples of `prior`.
    fn solve(&self, prior: &[f64], floor: &[f64], prior_weight: &[f64]) -> Vec<f64> {
        let n = prior.len().max(self.columns);
        // Unknowns are multiples of the prior.
        let mut multiples = vec![1.0; n];
        let mut weights: Vec<f64> = self.rows.iter().map(|row| row.weight).collect();
        for _ in 0..ROUNDS {
            let mut matrix = vec![0.0; n * n];
            // Regularise the squared logarithm, since a cost may be a hundred times its default.
            let prior_weight: Vec<f64> = prior_weight
                .iter()
                .zip(&multiples)
                .map(|(prior_weight, &z)| prior_weight * logarithmic(z))
                .collect();
            let mut linear = prior_weight.clone();
            (0..n).for_each(|i| matrix[i * n + i] = prior_weight[i]);
            for (row, weight) in self.rows.iter().zip(&weights) {
                for &(i, amount) in &row.amounts {
                    let scaled = weight * amount * prior[i];
                    linear[i] += scaled;
                    row.amounts.iter().for_each(|&(j, other)| matrix[i * n + j] += scaled * other * prior[j]);
                }
            }
            multiples = nonnegative::minimise(&matrix, &linear, floor, &multiples);
            let costs: Vec<f64> =
                multiples.iter().zip(prior).map(|(multiple, prior)| multiple * prior).collect();
            for (row, weight) in self.rows.iter().zip(&mut weights) {
                *weight = row.weight * reweighted(row.ratio(&costs));
            }
        }
        multiples.iter().zip(prior).map(|(multiple, prior)| multiple * prior).collect()
    }
}

/// Returns the weight factor that turns a squared relative error into an absolute logarithm.
fn reweighted(ratio: f64) -> f64 {
    logarithmic(ratio) / ratio.max(MIN_RATIO).ln().abs().max(ERROR_TOLERANCE)
}

/// Returns the weight factor that turns a squared relative error into a squared logarithm.
fn logarithmic(ratio: f64) -> f64 {
    let relative = ratio - 1.0;
    if relative.abs() < 1e-6 { 1.0 } else { (ratio.max(MIN_RATIO).ln() / relative).powi(2) }
}

fn importance(row: &Observation) -> f64 {
    time_us(row).sqrt()
}

fn time_us(row: &Observation) -> f64 {
    row.time_us.max(RESOLUTION_US)
}
