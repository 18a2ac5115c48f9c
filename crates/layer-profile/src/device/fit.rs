use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::costs::Costs;
use super::errors::{RESOLUTION_US, errors, median};
use super::observations::Observation;
use super::term::{Term, Unit};
use super::{DataSheet, DeviceModel, Formula, NetworkErrors, Observations, nonnegative};
use crate::{ModelAccuracy, ProfileError, SeenErrors};

/// How well a model fits the observations that it was fitted to, and others.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FitReport {
    /// The errors of the model on what it was fitted to.
    pub fitted: Vec<NetworkErrors>,
    /// Cross-validation: the errors on each network of a model that was fitted to the other networks. With one network
    /// alone, the errors on a fifth of its layers' shapes of a model that was fitted to the other four. Empty where there
    /// is nothing to leave out, with a single shape.
    pub held_out: Vec<NetworkErrors>,
}

impl FitReport {
    /// The errors in three figures.
    #[must_use]
    pub fn summary(&self) -> SeenErrors {
        let rows = self.fitted.iter().flat_map(|network| &network.rows);
        let worst =
            |networks: &[NetworkErrors]| networks.iter().map(NetworkErrors::worst).fold(0.0, f64::max);
        SeenErrors {
            layers_median: median(rows.map(|row| row.2.abs())),
            networks_worst: worst(&self.fitted),
            held_out_worst: (!self.held_out.is_empty()).then(|| worst(&self.held_out)),
        }
    }
}

/// Weight of the regularisation that pulls a cost towards the textbook's at the peaks of a data sheet, relative to all rows of a network: enough
/// for what was not observed, and next to nothing for what was.
const PULL_TO_SHEET: f64 = 4e-3;
/// The same at fitted peaks, which are less certain.
const PULL_TO_FITTED: f64 = 6e-4;
/// Rounds of reweighting; the costs settle within ten.
const ROUNDS: usize = 12;
/// Smaller ratios are raised to this, since the logarithm of 0 is not finite.
const SMALLEST: f64 = 1e-3;
/// Relative errors below this are as good as none.
const INDIFFERENT: f64 = 0.03;
/// Parts that the shapes of a single network are cut into for cross-validation.
const FOLDS: usize = 5;

impl DeviceModel {
    /// A model with the costs that explain the observations best, and how well they do.
    ///
    /// The costs minimise the sum of the errors' absolute logarithms (by least squares that are reweighted 12 times), none
    /// of them negative, where each network counts the same, each of its batch sizes the same, and within them each row by
    /// the square root of its time. A weak pull to the textbook's costs, by the squares of logarithms, decides about what was not observed. They are the
    /// costs at the peaks of the data sheet where there is one; otherwise the peaks are fitted first, four numbers alone.
    /// The same observations give the same model.
    ///
    /// # Errors
    /// [`ProfileError::NoObservations`] when there are none.
    pub fn fit(
        name: impl Into<String>,
        sheet: Option<&DataSheet>,
        observations: &Observations,
    ) -> Result<(Self, FitReport), ProfileError> {
        let rows: Vec<&Observation> = observations.rows().iter().collect();
        if rows.is_empty() {
            return Err(ProfileError::NoObservations);
        }
        let costs = fit_costs(sheet, &rows);
        let fitted = errors(observations, |row| Some(costs.time_us(&row.demand)));
        let held_out = cross_validate(sheet, observations);
        let report = FitReport { fitted, held_out };
        let networks = observations.networks().join(", ");
        let accuracy = ModelAccuracy {
            basis: format!("fitted to {} ({networks})", observations.source()),
            seen: Some(report.summary()),
        };
        Ok((Self { name: name.into(), formula: Formula::Costs(costs), accuracy }, report))
    }
}

/// The name by which observations are divided into parts.
type NameOf = fn(&Observation) -> &str;

fn cross_validate(sheet: Option<&DataSheet>, observations: &Observations) -> Vec<NetworkErrors> {
    let networks = observations.networks();
    // The part that each network, or each shape, belongs to.
    let (parts, by): (HashMap<&str, usize>, NameOf) = if networks.len() > 1 {
        (networks.into_iter().zip(0..).collect(), |row| &row.network)
    } else {
        // Distributed by kind, so that no part has all layers of one; each kind from the part after that where the one before
        // it began, so that kinds of one shape do not all end up in the same part.
        let mut dealt = HashMap::<&str, usize>::new();
        let mut deal = |shape| {
            let kind = str::split(shape, ['(', ' ']).next().unwrap_or_default();
            let kinds = dealt.len();
            let next = dealt.entry(kind).or_insert(kinds);
            *next += 1;
            (shape, (*next - 1) % FOLDS)
        };
        (observations.shapes().into_iter().map(&mut deal).collect(), |row| &row.shape)
    };
    let part = |row: &Observation| parts.get(by(row)).copied();
    let all: BTreeSet<usize> = parts.values().copied().collect();
    let models: BTreeMap<usize, Costs> = all
        .into_iter()
        .filter_map(|out| {
            let rest: Vec<_> = observations.rows().iter().filter(|row| part(row) != Some(out)).collect();
            (!rest.is_empty()).then(|| (out, fit_costs(sheet, &rest)))
        })
        .collect();
    errors(observations, |row| Some(models.get(&part(row)?)?.time_us(&row.demand)))
}

fn fit_costs(sheet: Option<&DataSheet>, rows: &[&Observation]) -> Costs {
    let terms = Term::all();
    let columns: HashMap<Term, usize> = terms.iter().copied().zip(0..).collect();
    // Nothing is faster than a data sheet's peak. Fitted peaks bound nothing, and are no more certain for one term than for
    // another.
    let each = |value: &dyn Fn(Term) -> f64| terms.iter().map(|&term| value(term)).collect::<Vec<_>>();
    let (prices, floor, pull) = match sheet {
        Some(sheet) => (
            each(&|term| term.list_price_us(sheet)),
            each(&|term| term.least() / term.textbook().1),
            each(&|term| PULL_TO_SHEET * term.certainty()),
        ),
        None => (fitted_prices(&terms, rows), each(&|_| 0.0), each(&|_| PULL_TO_FITTED)),
    };
    let problem = Problem::new(rows, |term| Some((*columns.get(&term)?, 1.0)));
    let costs = problem.solve(&prices, &floor, &pull);
    let by_term = |term: Term| Ok::<_, std::convert::Infallible>(costs[columns[&term]]);
    let Ok(costs) = Costs::try_new(by_term);
    costs
}

/// The textbook's prices at peaks that suit the observations.
fn fitted_prices(terms: &[Term], rows: &[&Observation]) -> Vec<f64> {
    let column = |unit: Unit| Unit::ALL.iter().position(|&other| other == unit);
    let problem = Problem::new(rows, |term| {
        let (unit, multiple) = term.textbook();
        Some((column(unit)?, multiple))
    });
    // The price of each unit if the rows that ask for it, at the median, asked for nothing else.
    let alone = |at: usize| {
        let amounts = problem.rows.iter().flat_map(|row| &row.amounts).filter(|amount| amount.0 == at);
        let shares: Vec<f64> =
            amounts.map(|amount| 1.0 / amount.1).filter(|price| price.is_finite()).collect();
        median(shares.into_iter())
    };
    let start: Vec<f64> = (0..Unit::ALL.len()).map(alone).collect();
    let fitted = problem.solve(&start, &[0.0; 4], &[1e-3 * PULL_TO_FITTED; 4]);
    // A price that the observations do not show at all must not vanish.
    let price = |unit: Unit| column(unit).map_or(0.0, |at| fitted[at].max(start[at] * 1e-2));
    terms.iter().map(|term| term.textbook().1 * price(term.textbook().0)).collect()
}

/// Rows whose times are sums of amounts times costs.
struct Problem {
    rows: Vec<Equation>,
    columns: usize,
}

struct Equation {
    /// By column, divided by the row's time: with the right costs they add up to 1.
    amounts: Vec<(usize, f64)>,
    weight: f64,
}

impl Equation {
    /// Predicted time over observed time.
    fn ratio(&self, costs: &[f64]) -> f64 {
        self.amounts.iter().map(|&(column, amount)| amount * costs[column]).sum()
    }
}

impl Problem {
    /// `column` gives the column of a term, and by what its amounts are multiplied there.
    fn new(rows: &[&Observation], column: impl Fn(Term) -> Option<(usize, f64)>) -> Self {
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

    /// The costs, held weakly to `prior`, none below its `floor`, which is in multiples of `prior`.
    fn solve(&self, prior: &[f64], floor: &[f64], pull: &[f64]) -> Vec<f64> {
        let n = prior.len().max(self.columns);
        // In multiples of the prior.
        let mut multiples = vec![1.0; n];
        let mut weights: Vec<f64> = self.rows.iter().map(|row| row.weight).collect();
        for _ in 0..ROUNDS {
            let mut matrix = vec![0.0; n * n];
            // Towards 1 by the square of the logarithm, for all that a term may cost a hundred times the textbook's price.
            let pull: Vec<f64> =
                pull.iter().zip(&multiples).map(|(pull, &z)| pull * logarithmic(z)).collect();
            let mut linear = pull.clone();
            (0..n).for_each(|i| matrix[i * n + i] = pull[i]);
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

/// The factor by which the weight of a squared relative error makes it the logarithm's absolute value.
fn reweighted(ratio: f64) -> f64 {
    logarithmic(ratio) / ratio.max(SMALLEST).ln().abs().max(INDIFFERENT)
}

/// The factor by which the weight of a squared relative error makes it the logarithm's square.
fn logarithmic(ratio: f64) -> f64 {
    let relative = ratio - 1.0;
    if relative.abs() < 1e-6 { 1.0 } else { (ratio.max(SMALLEST).ln() / relative).powi(2) }
}

fn importance(row: &Observation) -> f64 {
    time_us(row).sqrt()
}

fn time_us(row: &Observation) -> f64 {
    row.time_us.max(RESOLUTION_US)
}
